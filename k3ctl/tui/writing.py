"""Whether the console may change the pod: here yes, over a network only when told so."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from k3d.errors import K3Error
from k3d.store.run_file import read_run_files


class WriteGuard:
    """Says why nothing may be changed, or None. Reads files: not for the thread that draws, but
    for once before it starts and again in the thread of every deed."""

    def __init__(self, home: Path | None, *, write: bool = False, read_only: bool = False) -> None:
        self._home = home
        self._write = write
        self._read_only = read_only

    def reason(self) -> str | None:
        """Why not; None where changes are allowed."""
        if self._read_only:
            return "it was started with --read-only"
        if self._write or self._home is None:
            return None
        try:
            station = read_run_files(self._home).station
        except (K3Error, OSError):
            return None  # there is no Station to be changed
        if station is None or is_loopback(station.url):
            return None
        host = urlsplit(station.url).hostname
        return f"the Station is on {host}; start with --write to allow changes"


def is_loopback(url: str) -> bool:
    """Whether a URL is of this machine alone."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
