"""The file in which a bank is written before it has its name, and whose turn it is to write it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from k3d.errors import Locked


def take_partial(partial: Path, name: str, wait: bool) -> tuple[int, bool]:
    """The partial file of bank `name`, open and locked, and whether another writer of it was waited
    for. Raises Locked for one unless `wait`, else OSError."""
    waited = False
    while True:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            waited |= _lock(descriptor, name, wait)
            # One that was published meanwhile is somebody else's bank.
            if same_file(descriptor, partial):
                return descriptor, waited
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def same_file(descriptor: int, path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _lock(descriptor: int, name: str, wait: bool) -> bool:
    """Lock an open file; whether that was waited for."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            raise Locked(
                f"bank {name} is being written by another process",
                hint="wait until it is done, or end it",
            ) from None
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    return False
