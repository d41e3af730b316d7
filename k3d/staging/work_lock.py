"""One build, transfer or clearing at a time in a home: HOME/run/bank-work.lock.

So nothing is cleared away that is being sent, and no two builds share a disk. Verifying takes no
lock: it reads, and what it repairs it puts in its place. A scrub keeps out another scrub, with a
lock of its own: a timer that comes round before the last one is done must not read all of it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from k3d.errors import BankError, StoreError
from k3d.store.lock import FileLock
from k3d.store.paths import run_directory

NAME = "bank-work.lock"
SCRUB_NAME = "bank-scrub.lock"


@contextmanager
def work_lock(home: Path, verb: str, wait_s: float, *, dry: bool = False) -> Iterator[None]:
    """Hold it for as long as the context lasts; a `dry` run needs none. Raises Locked, naming who
    has it, after `wait_s`, BankError where the home takes no file."""
    if dry:
        yield
        return
    with _locked(home, NAME, f"work on banks of {home}", verb, wait_s):
        yield


@contextmanager
def scrub_lock(home: Path, wait_s: float) -> Iterator[None]:
    """Keep another scrub out. Raises Locked; a home that takes no file is read without a lock."""
    with ExitStack() as stack:
        with suppress(BankError):
            stack.enter_context(_locked(home, SCRUB_NAME, f"scrub of {home}", "scrub", wait_s))
        yield


@contextmanager
def _locked(home: Path, name: str, what: str, verb: str, wait_s: float) -> Iterator[None]:
    folder = run_directory(home)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BankError(
            f"work on banks cannot be noted in {folder}: {error.strerror}",
            hint=f"make {home} writable, or choose another home",
        ) from error
    lock = FileLock(folder / name, what, f"k3d bank {verb}", wait_s)
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
