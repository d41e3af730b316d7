"""SQLite as this project uses it: one writer in WAL with immediate transactions, readers read-only.

SQLite from 3.7.0 to 3.51.2 can corrupt a WAL database when a write races a checkpoint, so the one
that pysqlite3 brings is used and an older one is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pysqlite3

from k3d.errors import ConfigError, K3Error, Locked, NotFound, StoreError

OLDEST_SQLITE = (3, 51, 3)
APPLICATION_ID = 0x6B337064  # "k3pd"
BUSY_TIMEOUT_MS = 5_000

Synchronous = Literal["FULL", "NORMAL"]
# pysqlite3 ships no types.
sqlite: Any = pysqlite3
Connection = Any


def require_sound_sqlite(version: tuple[int, ...] = sqlite.sqlite_version_info) -> None:
    """Refuse a SQLite with the WAL-reset bug."""
    if version < OLDEST_SQLITE:
        found = ".".join(map(str, version))
        raise StoreError(
            f"SQLite {found} can corrupt a database that two processes use",
            hint="install pysqlite3 0.6.1 or later, which brings 3.51.3 or later",
        )


def open_for_writing(path: Path, *, synchronous: Synchronous) -> Connection:
    """Open or create a database as its one writer. The caller holds the lock that makes it so.

    FULL keeps every acknowledged commit over a power cut; NORMAL may lose the last ones, never
    the database. Statements run outside transactions unless write_transaction() opens one.
    """
    require_sound_sqlite()
    with sentences(path):
        connection = sqlite.connect(
            str(path),
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_MS / 1000,
        )
        try:
            _settle(connection, path, synchronous)
        except BaseException:
            connection.close()
            raise
    return connection


def _settle(connection: Connection, path: Path, synchronous: Synchronous) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    check_owner(connection, path)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"{path} cannot use a write-ahead log (its mode stays {mode})",
            hint="put the home on a local file system",
        )
    connection.execute(f"PRAGMA synchronous = {synchronous}")


def open_for_reading(path: Path) -> Connection:
    """Open a database read-only. Raises NotFound when it does not exist."""
    require_sound_sqlite()
    if not path.exists():
        raise NotFound(f"there is no {path}", hint="make it: k3ctl init")
    with sentences(path):
        connection = sqlite.connect(
            f"file:{quote(str(path))}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_MS / 1000,
        )
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            check_owner(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def check_owner(connection: Connection, path: Path) -> None:
    """Refuse a SQLite file that some other program made."""
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if owner not in (APPLICATION_ID, 0) or (owner == 0 and tables > 0):
        raise ConfigError(
            f"{path} is a database of another program",
            hint="choose another home with --home or K3_HOME",
        )


@contextlib.contextmanager
def write_transaction(connection: Connection, path: Path) -> Iterator[Connection]:
    """One write, all of it or nothing of it.

    BEGIN IMMEDIATE takes the write lock at once: a transaction that reads first and writes later
    would fail under contention whatever its timeout.
    """
    with sentences(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            # A full disk may have ended the transaction already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def sentences(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about a file into one sentence each."""
    try:
        yield
    except sqlite.Error as error:
        raise _explained(path, error) from error


def disk_is_full(error: StoreError) -> bool:
    """Whether a StoreError came from a full disk or from the file's own size limit."""
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    return code == sqlite.SQLITE_FULL


def _explained(path: Path, error: Exception) -> K3Error:
    primary = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    if primary in (sqlite.SQLITE_BUSY, sqlite.SQLITE_LOCKED):
        return Locked(f"{path} is being written by another process", hint="try again")
    explanations = {
        sqlite.SQLITE_FULL: (
            f"{path} cannot grow: the disk is full",
            "free some space; what was written before is intact",
        ),
        sqlite.SQLITE_READONLY: (
            f"{path} cannot be written: it is read-only",
            "check the permissions of the file and of its directory",
        ),
        sqlite.SQLITE_PERM: (f"{path} cannot be opened: permission denied", "run as its owner"),
        sqlite.SQLITE_CANTOPEN: (
            f"{path} cannot be opened",
            "check that its directory exists and that you may write there: k3ctl init",
        ),
        sqlite.SQLITE_CORRUPT: (
            f"{path} is damaged ({error})",
            "move it and its -wal and -shm files aside, then: k3ctl init",
        ),
        sqlite.SQLITE_NOTADB: (
            f"{path} is not a SQLite database",
            "move it aside, then: k3ctl init",
        ),
        sqlite.SQLITE_IOERR: (
            f"{path} cannot be read or written: {error}",
            "look at the disk: dmesg, free space",
        ),
    }
    message, hint = explanations.get(primary, (f"{path}: {error}", None))
    return StoreError(message, hint=hint)
