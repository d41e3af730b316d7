"""How often each expert was chosen, in stretches of half an hour, in telemetry.db."""

from __future__ import annotations

import sys
import zlib
from array import array
from dataclasses import dataclass
from pathlib import Path

from k3d.errors import NotFound, StoreError
from k3d.store.database import open_for_reading, sentences
from k3d.store.paths import telemetry_path
from k3d.store.schema import check_version, schema_version
from k3d.store.telemetry import VERSION, TelemetryStore

EVERY_S = 1_800
LATE_S = 60
"""A stretch may be longer than EVERY_S by as much: it ends with a frame."""
KEEP_S = 30 * 86_400
MOST_BYTES = 5 * 2**20
"""The oldest stretches end where these are filled."""
COUNT_BYTES = 4


@dataclass(frozen=True)
class ExpertUses:
    """A stretch that ended at `at_ms` under the map of `epoch`: `rows` tokens went through the
    experts. `counts` has one entry an expert, at layer position x experts + expert."""

    at_ms: int
    epoch: int
    rows: int
    layers: int
    experts: int
    counts: tuple[int, ...]


def record_uses(store: TelemetryStore, uses: ExpertUses) -> None:
    """Raises StoreError; then this stretch alone is lost."""
    body = _packed(uses.counts)
    with store.transaction() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO expert_use VALUES (?, ?, ?, ?, ?, ?, ?)",
            (uses.at_ms, uses.epoch, uses.rows, uses.layers, uses.experts, len(body), body),
        )
        connection.execute(
            "DELETE FROM expert_use WHERE at_ms < ?1 OR at_ms IN (SELECT at_ms FROM "
            "(SELECT at_ms, sum(size) OVER (ORDER BY at_ms DESC) AS taken FROM expert_use) "
            "WHERE taken > ?2)",
            (uses.at_ms - KEEP_S * 1000, MOST_BYTES),
        )


def read_uses(home: Path, since_ms: int = 0) -> list[ExpertUses]:
    """Stretches that ended after `since_ms`, oldest first. Raises NotFound without telemetry.db or
    with one that holds none, StoreError for a damaged one."""
    return _read(home, "WHERE at_ms > ? ORDER BY at_ms", (since_ms,))


def uses_at(home: Path, at_ms: int) -> ExpertUses | None:
    """The stretch that a moment lies in; where that was never written, the last before it; None of
    neither. Raises as `read_uses` does."""
    latest_ms = at_ms + (EVERY_S + LATE_S) * 1000
    within = "WHERE at_ms BETWEEN ? AND ? ORDER BY at_ms LIMIT 1"
    before = "WHERE at_ms < ? ORDER BY at_ms DESC LIMIT 1"
    found = _read(home, within, (at_ms, latest_ms)) or _read(home, before, (at_ms,))
    return found[0] if found else None


def _read(home: Path, which: str, values: tuple[int, ...]) -> list[ExpertUses]:
    path = telemetry_path(home)
    connection = open_for_reading(path)
    try:
        with sentences(path):
            found = schema_version(connection)
            check_version(found, path, newest=VERSION)
            if found < VERSION:
                raise NotFound(f"{path} was written before the use of experts was recorded")
            rows = connection.execute(
                f"SELECT at_ms, epoch, rows, layers, experts, body FROM expert_use {which}",
                values,
            ).fetchall()
    finally:
        connection.close()
    return [ExpertUses(*row[:5], counts=_unpacked(row[5], row[3] * row[4])) for row in rows]


def _packed(counts: tuple[int, ...]) -> bytes:
    """Deflated u32, the low bytes of all first: most of the others are 0."""
    words = array("I", counts)
    if sys.byteorder == "big":
        words.byteswap()
    plain = words.tobytes()
    planes = b"".join(plain[byte::COUNT_BYTES] for byte in range(COUNT_BYTES))
    return zlib.compress(planes, 6)


def _unpacked(body: bytes, expected: int) -> tuple[int, ...]:
    try:
        planes = zlib.decompress(body)
    except zlib.error as error:
        raise StoreError(f"a recorded use of experts cannot be read: {error}") from None
    if len(planes) != COUNT_BYTES * expected:
        raise StoreError(
            f"a recorded use of experts has {len(planes)} bytes for {expected} experts"
        )
    low = (planes[byte * expected : (byte + 1) * expected] for byte in range(COUNT_BYTES))
    return tuple(int.from_bytes(each, "little") for each in zip(*low, strict=True))
