"""The fabric: bytes between the Station and its sparks. It knows frames, not experts."""

from k3d.fabric.facts import Facts, Holding
from k3d.fabric.frames import Frame, Kind, Reply
from k3d.fabric.inproc import InprocLink
from k3d.fabric.link import Link, Listener
from k3d.fabric.records import Record
from k3d.fabric.transports import connect, listen

__all__ = [
    "Facts",
    "Frame",
    "Holding",
    "InprocLink",
    "Kind",
    "Link",
    "Listener",
    "Record",
    "Reply",
    "connect",
    "listen",
]
