"""state.db: what the pod is and was told. One writer, who holds the lock; readers read-only."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from k3d.errors import NotFound, StoreError
from k3d.store.database import Connection, open_for_reading, open_for_writing, sentences
from k3d.store.database import write_transaction as transaction
from k3d.store.lock import FileLock
from k3d.store.paths import make_home, state_path
from k3d.store.records import Event, Intent, Receipt, StoredMap, StoredPod
from k3d.store.schema import VERSION, bring_up_to_date, check_version, schema_version


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class StateReader:
    """state.db for reading. Use as a context manager or close() it."""

    def __init__(self, connection: Connection, path: Path) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, home: Path) -> StateReader:
        """Raises NotFound without a state.db, StoreError when it is damaged."""
        path = state_path(home)
        connection = open_for_reading(path)
        with sentences(path):
            check_version(schema_version(connection), path)
        return cls(connection, path)

    @property
    def complete(self) -> bool:
        """Whether its schema is the newest; else a writer has still to bring it up to date."""
        with sentences(self.path):
            return schema_version(self._connection) == VERSION

    def pod(self) -> StoredPod | None:
        """The description the pod came up with last, or None before any."""
        row = self.row("SELECT ts_ms, name, digest, description FROM pod ORDER BY id DESC LIMIT 1")
        if row is None:
            return None
        return StoredPod(row[0], row[1], row[2], msgspec.json.decode(row[3]))

    def placement_map(self, epoch: int | None = None) -> StoredMap | None:
        """The map of an epoch, by default of the newest; None when there is none."""
        row = self.row(
            "SELECT epoch, ts_ms, digest, policy, map FROM placement_map "
            "WHERE ?1 IS NULL OR epoch = ?1 ORDER BY epoch DESC LIMIT 1",
            (epoch,),
        )
        return None if row is None else StoredMap(*row[:4], map_json=row[4].encode())

    def events(
        self, *, limit: int = 100, node: str | None = None, since_id: int = 0
    ) -> list[Event]:
        """The newest events after number `since_id`, oldest first."""
        rows = self.rows(
            "SELECT id, ts_ms, node, kind, message, detail FROM event "
            "WHERE (?1 IS NULL OR node = ?1) AND id > ?3 ORDER BY id DESC LIMIT ?2",
            (node, limit, since_id),
        )
        return [
            Event(*row[:5], detail=None if row[5] is None else msgspec.json.decode(row[5]))
            for row in reversed(rows)
        ]

    def intents(self, *, state: str | None = None) -> list[Intent]:
        """Intents, oldest first; `state` keeps those in one state."""
        rows = self.rows(
            f"SELECT {_INTENT} FROM intent WHERE ?1 IS NULL OR state = ?1 ORDER BY created_ms, id",
            (state,),
        )
        return [_intent(row) for row in rows]

    def intent(self, intent_id: str) -> Intent:
        row = self.row(f"SELECT {_INTENT} FROM intent WHERE id = ?", (intent_id,))
        if row is None:
            raise NotFound(f"there is no intent {intent_id}", hint="list them: they may be pruned")
        return _intent(row)

    def receipts(self, *, kind: str | None = None, limit: int = 100) -> list[Receipt]:
        """The newest receipts, oldest first."""
        rows = self.rows(
            "SELECT id, ts_ms, kind, provenance, command, figures, environment FROM receipt "
            "WHERE ?1 IS NULL OR kind = ?1 ORDER BY ts_ms DESC, rowid DESC LIMIT ?2",
            (kind, limit),
        )
        return [
            Receipt(
                *row[:5],
                figures=msgspec.json.decode(row[5]),
                environment=msgspec.json.decode(row[6]),
            )
            for row in reversed(rows)
        ]

    def check_integrity(self) -> None:
        """Read every page. Raises StoreError with what SQLite found wrong."""
        rows = self.rows("PRAGMA integrity_check(3)")
        if rows != [("ok",)]:
            raise StoreError(
                f"{self.path} is damaged: {'; '.join(row[0] for row in rows)}",
                hint="move it and its -wal and -shm files aside, then: k3ctl init",
            )

    def close(self) -> None:
        self._connection.close()

    def row(self, sql: str, values: tuple = ()) -> tuple | None:
        with sentences(self.path):
            return self._connection.execute(sql, values).fetchone()

    def rows(self, sql: str, values: tuple = ()) -> list[tuple]:
        with sentences(self.path):
            return self._connection.execute(sql, values).fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class StateStore(StateReader):
    """state.db for its one writer. Any thread may write; each call is one durable transaction.

    `migrations` names those that opening it applied.
    """

    def __init__(
        self, connection: Connection, path: Path, lock: FileLock, migrations: tuple[str, ...]
    ) -> None:
        super().__init__(connection, path)
        self.migrations = migrations
        self._lock = lock
        self._writing = threading.RLock()

    @classmethod
    def open_as_writer(
        cls, home: Path, *, holder: str, wait_s: float = 0.0, hint: str | None = None
    ) -> StateStore:
        """Take the writer's lock, open state.db and bring its schema up to date.

        `holder` names the caller to whoever asks next ("k3d station", "k3ctl init"). Raises
        Locked, with `hint`, when another writer has it for longer than `wait_s`.
        """
        make_home(home)
        path = state_path(home)
        lock = FileLock(path.with_name("state.db.lock"), f"{path}", holder, wait_s)
        lock.hint = hint or lock.hint
        lock.acquire()
        try:
            connection = open_for_writing(path, synchronous="FULL")
            try:
                migrations = tuple(bring_up_to_date(connection, path))
            except BaseException:
                connection.close()
                raise
        except BaseException:
            lock.release()
            raise
        return cls(connection, path, lock, migrations)

    def record_pod(self, name: str, digest: str, description: Mapping[str, Any]) -> None:
        """Note the description the pod runs with, if it is not the one noted last."""
        with self.transaction() as connection:
            last = connection.execute("SELECT digest FROM pod ORDER BY id DESC LIMIT 1").fetchone()
            if last is None or last[0] != digest:
                connection.execute(
                    "INSERT INTO pod (ts_ms, name, digest, description) VALUES (?, ?, ?, ?)",
                    (now_ms(), name, digest, _json(description)),
                )

    def record_placement_map(self, epoch: int, digest: str, policy: str, map_json: bytes) -> None:
        """Note the map of an epoch. An epoch is written once; another map for it is refused."""
        with self.transaction() as connection:
            known = connection.execute(
                "SELECT digest FROM placement_map WHERE epoch = ?", (epoch,)
            ).fetchone()
            if known is None:
                connection.execute(
                    "INSERT INTO placement_map (epoch, ts_ms, digest, policy, map) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (epoch, now_ms(), digest, policy, map_json.decode()),
                )
            elif known[0] != digest:
                raise StoreError(
                    f"epoch {epoch} already names another placement map",
                    hint="a new map needs a new epoch",
                )

    def record_event(
        self,
        kind: str,
        message: str,
        *,
        node: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> int:
        """Note that something happened; the event's number."""
        with self.transaction() as connection:
            return connection.execute(
                "INSERT INTO event (ts_ms, node, kind, message, detail) VALUES (?, ?, ?, ?, ?)",
                (now_ms(), node, kind, message, None if detail is None else _json(detail)),
            ).lastrowid

    def record_intent(
        self, kind: str, plan: Mapping[str, Any], *, request_id: str | None = None
    ) -> Intent:
        """Note a change before it is made. The same request_id gives the same intent again."""
        now = now_ms()
        with self.transaction() as connection:
            known = connection.execute(
                f"SELECT {_INTENT} FROM intent WHERE request_id = ?", (request_id,)
            ).fetchone()
            if known is not None:
                return _intent(known)
            intent_id = uuid.uuid4().hex[:12]
            connection.execute(
                f"INSERT INTO intent ({_INTENT}) VALUES (?, ?, 'planned', ?, ?, ?, ?)",
                (intent_id, kind, request_id, _json(plan), now, now),
            )
        return Intent(intent_id, kind, "planned", request_id, dict(plan), now, now)

    def move_intent(self, intent_id: str, state: str) -> Intent:
        """Put an intent in another state. Raises NotFound for an unknown one."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE intent SET state = ?, updated_ms = ? WHERE id = ?",
                (state, now_ms(), intent_id),
            )
            return self.intent(intent_id)

    def record_receipt(
        self,
        kind: str,
        *,
        provenance: str,
        command: str,
        figures: Mapping[str, Any],
        environment: Mapping[str, Any],
    ) -> str:
        """Keep a result; its id. `provenance` is one of k3d.store.schema.PROVENANCE."""
        receipt_id = uuid.uuid4().hex[:12]
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO receipt VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    receipt_id,
                    now_ms(),
                    kind,
                    provenance,
                    command,
                    _json(figures),
                    _json(environment),
                ),
            )
        return receipt_id

    def close(self) -> None:
        with self._writing:
            super().close()
            self._lock.release()

    def transaction(self) -> AbstractContextManager[Connection]:
        """One durable write of several rows, for those who keep their own tables here."""
        return _serialised(self._writing, self._connection, self.path)


@contextmanager
def _serialised(guard: threading.RLock, connection: Connection, path: Path) -> Iterator[Connection]:
    """One transaction at a time on a connection that threads share."""
    with guard, transaction(connection, path) as open_transaction:
        yield open_transaction


_INTENT = "id, kind, state, request_id, plan, created_ms, updated_ms"


def _intent(row: tuple) -> Intent:
    created_ms, updated_ms = row[5:]
    plan = msgspec.json.decode(row[4])
    return Intent(*row[:4], plan=plan, created_ms=created_ms, updated_ms=updated_ms)


def _json(value: Mapping[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
