"""One effect for each request id: of several copies of a command, one does it and the rest say so.

HOME/run/requests/ID.lock is locked by the copy at work, so its end frees it however it came;
ID.json says what was asked, by whom, and how it ended. A daemon is not needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import hashlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from k3d.errors import ConfigError, Locked, Refused, StoreError
from k3d.store.paths import run_directory
from k3d.store.run_file import process_start_ticks, write_atomically

SCHEMA = "k3d.request/1"
KEPT_S = 7 * 86_400
"""How long a request that was carried out is remembered."""
RETRY_S = 0.05
MOST_DOCUMENT_BYTES = 1 << 20
"""A larger answer is not kept: a copy then says that it was done, and no more."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,99}")


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is kept. `done_ms` is None until its effect is complete."""

    schema: str = SCHEMA
    id: str
    verb: str
    arguments: str
    user: str
    host: str
    pid: int
    start_time_ticks: int
    claimed_ms: int
    done_ms: int | None = None
    document: Any = None

    @property
    def who(self) -> str:
        """The copy that claimed it, for a person."""
        return f"k3ctl {self.verb} (pid {self.pid} of {self.user}@{self.host})"


@dataclass
class Claim:
    """A request in the hands of this process. `before` is its record where another copy has
    carried it out; `left` where another claimed it and ended before it was done."""

    record: RequestRecord
    path: Path
    before: RequestRecord | None = None
    left: RequestRecord | None = None

    def finish(self, document: Any = None) -> None:
        """Note that the effect is complete, with the answer that later copies give again."""
        kept = document if len(msgspec.json.encode(document)) <= MOST_DOCUMENT_BYTES else None
        done = msgspec.structs.replace(self.record, done_ms=_now_ms(), document=kept)
        write_atomically(self.path, msgspec.json.encode(done))


@contextlib.contextmanager
def claimed(
    home: Path,
    request_id: str,
    verb: str,
    arguments: Any,
    *,
    wait_s: float | None = None,
    waits: Callable[[str], None] | None = None,
) -> Iterator[Claim]:
    """Hold a request for as long as the context lasts.

    `arguments` is anything msgspec encodes; another verb or other arguments under the same id
    raise Refused. While another copy is at work this one waits, `wait_s` at most (None: until it
    has ended), and `waits` hears once of whom; then it raises Locked.
    """
    if not _ID.fullmatch(request_id):
        raise ConfigError(
            f"{request_id[:120]!r} is no request id",
            hint="1 to 100 letters, digits and . _ : + -, as in cron-2031-04-01",
        )
    folder = _folder(home)
    asked = _record(request_id, verb, arguments)
    path = folder / f"{request_id}.json"
    _check_same(asked, _read(path))
    lock = _lock(path.with_suffix(".lock"), path, wait_s, waits)
    try:
        known = _read(path)
        _check_same(asked, known)
        claim = Claim(asked, path)
        if known is not None and known.done_ms is not None:
            claim.before = known
        else:
            claim.left = known
            _prune(folder, path)
            write_atomically(path, msgspec.json.encode(asked))
        yield claim
    finally:
        os.close(lock)


def _folder(home: Path) -> Path:
    folder = run_directory(home) / "requests"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"requests cannot be kept in {folder}: {error.strerror}",
            hint="choose another home with --home, or leave --request-id out",
        ) from error
    return folder


def _record(request_id: str, verb: str, arguments: Any) -> RequestRecord:
    encoded = msgspec.json.encode(arguments, order="sorted")
    pid = os.getpid()
    return RequestRecord(
        id=request_id,
        verb=verb,
        arguments=hashlib.sha256(encoded).hexdigest(),
        user=_user(),
        host=socket.gethostname(),
        pid=pid,
        start_time_ticks=process_start_ticks(pid) or 0,
        claimed_ms=_now_ms(),
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        return str(os.getuid())


def _read(path: Path) -> RequestRecord | None:
    """The record of a request, or None. Raises StoreError for one that cannot be understood."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RequestRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(
            f"the request {path} cannot be read: {error}",
            hint="see whether its effect is there, then remove the file or take another id",
        ) from error


def _check_same(asked: RequestRecord, known: RequestRecord | None) -> None:
    if known is None or (known.verb, known.arguments) == (asked.verb, asked.arguments):
        return
    what = "with other arguments" if known.verb == asked.verb else "for another command"
    raise Refused(
        f"request id {asked.id} was used {what}, by {known.who}",
        hint="every request has an id of its own",
    )


def _lock(path: Path, record: Path, wait_s: float | None, waits: Callable | None) -> int:
    """A descriptor that holds the lock of a request; closing it gives it up."""
    deadline = None if wait_s is None else time.monotonic() + wait_s
    told = False
    while True:
        handle = _try_lock(path)
        if handle is not None:
            return handle
        known = _read(record)
        holder = known.who if known is not None else "another copy"
        if deadline is not None and time.monotonic() >= deadline:
            raise Locked(
                f"request {record.stem} is being carried out by {holder}",
                hint="it waits for that with a longer --lock-wait",
            )
        if waits is not None and not told and known is not None:
            waits(f"request {record.stem} is being carried out by {holder}; waiting for it")
            told = True
        time.sleep(RETRY_S)


def _try_lock(path: Path) -> int | None:
    """The lock, if it is free, on the file that is there: one that was pruned meanwhile is not."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(f"the lock {path} cannot be opened: {error.strerror}") from error
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(handle).st_ino:
            return handle
    os.close(handle)
    return None


def _prune(folder: Path, mine: Path) -> None:
    """Forget requests that are old and that no process holds."""
    oldest_s = time.time() - KEPT_S
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError, StoreError):
            if path == mine or path.stat().st_mtime > oldest_s:
                continue
            handle = _try_lock(path.with_suffix(".lock"))
            if handle is None:
                continue
            try:
                path.unlink()
                path.with_suffix(".lock").unlink()
            finally:
                os.close(handle)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
