"""telemetry.db: what the pod measured, in buckets that grow coarser with age and end.

Hops and tokens are here; frames (k3d.store.frame_log) and the use of experts (k3d.store.use_log)
keep their tables in the same file. Schema 1 had hops and tokens alone; a Station that opens it adds
the rest.

One writer, the Station. NORMAL durability: a power cut may lose the last seconds, never the file.
Nothing here is on the token path; the Station hands over one rollup a bucket, tier and node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from k3d.errors import StoreError
from k3d.store.database import (
    APPLICATION_ID,
    Connection,
    disk_is_full,
    open_for_reading,
    open_for_writing,
    sentences,
    write_transaction,
)
from k3d.store.paths import telemetry_path
from k3d.store.schema import check_version, schema_version

VERSION = 2
LARGEST_BYTES = 64 * 1024 * 1024
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Retention:
    """Buckets of `span_s` seconds are kept for `keep_s`, then merged into the next or deleted."""

    span_s: int
    keep_s: int


RETENTION = (
    Retention(span_s=10, keep_s=3_600),
    Retention(span_s=60, keep_s=86_400),
    Retention(span_s=600, keep_s=30 * 86_400),
)


@dataclass(frozen=True)
class HopRollup:
    """The hops of one tier to one node within one bucket. Times in microseconds.

    `bucket_s` is the bucket's start in Unix seconds. The percentiles are of hops of one row, None
    when the bucket has none. After buckets are merged p50_us is the mean of theirs weighted by
    count, and p99_us the largest of theirs: an upper bound.
    """

    bucket_s: int
    tier: str
    node: str
    count: int
    sum_us: int
    p50_us: int | None
    p99_us: int | None
    rows: int
    compute_us: int


@dataclass(frozen=True)
class TokenRollup:
    """Tokens of one kind ("decode" or "prompt") within one bucket and the time they took."""

    bucket_s: int
    kind: str
    tokens: int
    busy_us: int
    requests: int


_TABLES = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
CREATE TABLE IF NOT EXISTS hop (
    span_s INTEGER NOT NULL, bucket_s INTEGER NOT NULL, tier TEXT NOT NULL, node TEXT NOT NULL,
    count INTEGER NOT NULL, sum_us INTEGER NOT NULL, p50_us INTEGER,
    p99_us INTEGER, rows INTEGER NOT NULL, compute_us INTEGER NOT NULL,
    PRIMARY KEY (span_s, bucket_s, tier, node)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS token (
    span_s INTEGER NOT NULL, bucket_s INTEGER NOT NULL, kind TEXT NOT NULL,
    tokens INTEGER NOT NULL, busy_us INTEGER NOT NULL, requests INTEGER NOT NULL,
    PRIMARY KEY (span_s, bucket_s, kind)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS frame_base (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS frame (
    id INTEGER PRIMARY KEY, span_s INTEGER NOT NULL, bucket INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, base INTEGER NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS frame_by_bucket ON frame (span_s, bucket);
CREATE INDEX IF NOT EXISTS frame_by_base ON frame (base);
CREATE TABLE IF NOT EXISTS expert_use (
    at_ms INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, rows INTEGER NOT NULL,
    layers INTEGER NOT NULL, experts INTEGER NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL
) STRICT
"""

# Schema 1 had 0 for percentiles that are not known.
_FROM_FIRST = """
ALTER TABLE hop RENAME TO hop_of_first;
{tables};
INSERT INTO hop SELECT span_s, bucket_s, tier, node, count, sum_us, nullif(p50_us, 0),
    nullif(p99_us, 0), rows, compute_us FROM hop_of_first;
DROP TABLE hop_of_first
"""

_HOP = ", ".join(field.name for field in fields(HopRollup))
_TOKEN = ", ".join(field.name for field in fields(TokenRollup))

# The same hop or token bucket may be written again (a restart within it): the two are merged.
_MERGE_HOP = """
ON CONFLICT DO UPDATE SET
    p50_us = CASE WHEN p50_us IS NULL THEN excluded.p50_us WHEN excluded.p50_us IS NULL THEN p50_us
             ELSE (p50_us * count + excluded.p50_us * excluded.count)
                  / max(1, count + excluded.count) END,
    p99_us = coalesce(max(p99_us, excluded.p99_us), p99_us, excluded.p99_us),
    count = count + excluded.count,
    sum_us = sum_us + excluded.sum_us, rows = rows + excluded.rows,
    compute_us = compute_us + excluded.compute_us
"""
_MERGE_TOKEN = """
ON CONFLICT DO UPDATE SET
    tokens = tokens + excluded.tokens, busy_us = busy_us + excluded.busy_us,
    requests = requests + excluded.requests
"""


class TelemetryStore:
    """telemetry.db for its one writer. The caller holds the pod's lock (StateStore)."""

    def __init__(self, connection: Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._writing = threading.Lock()

    @classmethod
    def open_as_writer(cls, home: Path) -> TelemetryStore:
        path = telemetry_path(home)
        connection = open_for_writing(path, synchronous="NORMAL")
        try:
            with sentences(path):
                connection.execute(f"PRAGMA max_page_count = {LARGEST_BYTES // PAGE_BYTES}")
                found = schema_version(connection)
                check_version(found, path, newest=VERSION)
            statements = _FROM_FIRST.format(tables=_TABLES) if found == 1 else _TABLES
            with write_transaction(connection, path):
                for statement in statements.split(";\n"):
                    connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return cls(connection, path)

    def transaction(self) -> AbstractContextManager[Connection]:
        """One write of several rows, for those who keep their own tables here."""
        return _one_at_a_time(self._writing, self._connection, self.path)

    def rows(self, sql: str, values: tuple = ()) -> list[tuple]:
        with sentences(self.path):
            return self._connection.execute(sql, values).fetchall()

    def record(self, *, hops: Iterable[HopRollup] = (), tokens: Iterable[TokenRollup] = ()) -> None:
        """Write the rollups of one finest bucket.

        A file at its size limit loses its oldest buckets; a full disk raises StoreError, loses
        only these rollups and leaves the rest readable.
        """
        hops, tokens = list(hops), list(tokens)
        with self._writing:
            try:
                self._insert(hops, tokens)
            except StoreError as error:
                if not disk_is_full(error):
                    raise
                self._drop_oldest()
                self._insert(hops, tokens)

    def _insert(self, hops: list[HopRollup], tokens: list[TokenRollup]) -> None:
        span = RETENTION[0].span_s
        with write_transaction(self._connection, self.path) as connection:
            connection.executemany(
                f"INSERT INTO hop (span_s, {_HOP}) VALUES (?,?,?,?,?,?,?,?,?,?) {_MERGE_HOP}",
                [(span, *astuple(hop)) for hop in hops],
            )
            connection.executemany(
                f"INSERT INTO token (span_s, {_TOKEN}) VALUES (?,?,?,?,?,?) {_MERGE_TOKEN}",
                [(span, *astuple(token)) for token in tokens],
            )

    def _drop_oldest(self) -> None:
        """Delete the older half of the time covered, which frees pages inside the file."""
        with write_transaction(self._connection, self.path) as connection:
            for table in ("hop", "token"):
                connection.execute(
                    f"DELETE FROM {table} WHERE bucket_s <= "
                    f"(SELECT (min(bucket_s) + max(bucket_s)) / 2 FROM {table})"
                )

    def roll_up(self, now_s: float | None = None) -> None:
        """Merge buckets past their age into coarser ones and delete those past the last."""
        now = time.time() if now_s is None else now_s
        with self._writing, write_transaction(self._connection, self.path) as connection:
            for step, coarser in zip(RETENTION, (*RETENTION[1:], None), strict=True):
                span = step.span_s if coarser is None else coarser.span_s
                before = int(now - step.keep_s) // span * span
                if coarser is not None:
                    self._merge(connection, step.span_s, span, before)
                for table in ("hop", "token"):
                    connection.execute(
                        f"DELETE FROM {table} WHERE span_s = ? AND bucket_s < ?",
                        (step.span_s, before),
                    )

    def _merge(self, connection: Connection, span: int, coarser: int, before: int) -> None:
        connection.execute(
            f"INSERT INTO hop (span_s, {_HOP}) "
            "SELECT ?2, bucket_s / ?2 * ?2, tier, node, sum(count), sum(sum_us), "
            "sum(p50_us * count) / max(1, sum(iif(p50_us IS NULL, 0, count))), max(p99_us), "
            "sum(rows), sum(compute_us) "
            f"FROM hop WHERE span_s = ?1 AND bucket_s < ?3 GROUP BY 2, 3, 4 {_MERGE_HOP}",
            (span, coarser, before),
        )
        connection.execute(
            f"INSERT INTO token (span_s, {_TOKEN}) "
            "SELECT ?2, bucket_s / ?2 * ?2, kind, sum(tokens), sum(busy_us), sum(requests) "
            f"FROM token WHERE span_s = ?1 AND bucket_s < ?3 GROUP BY 2, 3 {_MERGE_TOKEN}",
            (span, coarser, before),
        )

    def close(self) -> None:
        with self._writing:
            self._connection.close()


@contextmanager
def _one_at_a_time(
    guard: threading.Lock, connection: Connection, path: Path
) -> Iterator[Connection]:
    with guard, write_transaction(connection, path) as open_transaction:
        yield open_transaction


def read_hops(home: Path, since_s: int = 0) -> list[HopRollup]:
    """Hop rollups since a Unix second, oldest first. Raises NotFound without telemetry.db."""
    return [HopRollup(*row) for row in _read(home, f"SELECT {_HOP} FROM hop", since_s)]


def read_tokens(home: Path, since_s: int = 0) -> list[TokenRollup]:
    """Token rollups since a Unix second, oldest first. Raises NotFound without telemetry.db."""
    return [TokenRollup(*row) for row in _read(home, f"SELECT {_TOKEN} FROM token", since_s)]


def _read(home: Path, select: str, since_s: int) -> list[tuple]:
    path = telemetry_path(home)
    connection = open_for_reading(path)
    try:
        with sentences(path):
            query = f"{select} WHERE bucket_s >= ? ORDER BY bucket_s, span_s"
            return connection.execute(query, (since_s,)).fetchall()
    finally:
        connection.close()
