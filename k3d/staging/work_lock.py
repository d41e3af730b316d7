"""One build, transfer or clearing at a time in a home: HOME/run/bank-work.lock.

So nothing is cleared away that is being sent, and no two builds share a disk. Verifying and
scrubbing take no lock: they read, and what they repair they put in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from k3d.errors import BankError, StoreError
from k3d.store.lock import FileLock
from k3d.store.paths import run_directory

NAME = "bank-work.lock"


@contextmanager
def work_lock(home: Path, verb: str, wait_s: float, *, dry: bool = False) -> Iterator[None]:
    """Hold it for as long as the context lasts; a `dry` run needs none. Raises Locked, naming who
    has it, after `wait_s`, BankError where the home takes no file."""
    if dry:
        yield
        return
    folder = run_directory(home)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BankError(
            f"work on banks cannot be noted in {folder}: {error.strerror}",
            hint=f"make {home} writable, or choose another home",
        ) from error
    lock = FileLock(folder / NAME, f"work on banks of {home}", f"k3d bank {verb}", wait_s)
    try:
        lock.acquire()
    except StoreError as error:
        raise BankError(
            error.message, hint=f"make {home} writable, or choose another home"
        ) from error
    try:
        yield
    finally:
        lock.release()
