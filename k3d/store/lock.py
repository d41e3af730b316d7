"""Locks between processes: an flock on a file that names its holder, freed when that dies."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import msgspec

from k3d.errors import Locked, StoreError

RETRY_S = 0.05


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock, as written in the lock file."""

    pid: int
    name: str
    since: str


@dataclass
class FileLock:
    """An exclusive lock; use it as a context manager, or acquire() and release().

    `what` is the thing guarded and `holder` the process asking, both as words for the error that
    the next one gets. `wait_s` is how long to wait for another holder; 0 does not wait. `hint` is
    what to do when that was in vain.
    """

    path: Path
    what: str
    holder: str
    wait_s: float = 0.0
    hint: str = "try again when it is done, or wait for it with --lock-wait"
    _handle: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises Locked with the holder's name when it is taken."""
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(
                f"the lock {self.path} cannot be opened: {error.strerror}",
                hint="check that the home exists and is yours: k3ctl init",
            ) from error
        deadline = time.monotonic() + self.wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    os.close(handle)
                    raise Locked(
                        f"{self.what} is held by {self._who()}",
                        hint=self.hint,
                    ) from error
            except OSError as error:
                os.close(handle)
                raise StoreError(
                    f"{self.path} cannot be locked: {error.strerror}",
                    hint="put the home on a local file system",
                ) from error
            time.sleep(RETRY_S)
        self._handle = handle
        self._sign(handle)

    def release(self) -> None:
        """Give the lock up; the file stays, since removing it would race with the next holder."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _sign(self, handle: int) -> None:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        note = msgspec.json.encode(Holder(os.getpid(), self.holder, since))
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, note, 0)
        except OSError:
            # A full disk: the lock holds all the same, only its note is missing.
            return

    def _who(self) -> str:
        try:
            holder = msgspec.json.decode(self.path.read_bytes(), type=Holder)
        except (OSError, msgspec.MsgspecError):
            return "another process"
        return f"{holder.name} (pid {holder.pid}) since {holder.since}"

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
