"""Frames in telemetry.db: every second for hours, then coarser, then not at all; bounded in bytes.

A frame is written as it comes. The merge of each stretch of time is kept up to date beside it, so
that growing coarser is nothing but giving the finer ones up, and whoever is killed loses at most
the seconds since the last finest stretch. A resolution keeps its frames for its time or within its
bytes, whichever is less: a pod of 200 nodes is remembered as long by the minute, and less long by
the second, than one of nine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from k3d.errors import StoreError
from k3d.store.database import Connection, disk_is_full
from k3d.store.frame import Frame
from k3d.store.frame_merge import merge
from k3d.store.frame_pack import Columns, columns_of, frame_of, pack, unpack
from k3d.store.telemetry import PAGE_BYTES, TelemetryStore

MEBI = 2**20
ROW_BYTES = 64
"""What a row takes beside its body."""
REBASE = 1.3
REBASE_BYTES = 256
"""A frame becomes the next base when it takes so many times what the first one after the base took,
and some bytes: something else than what always moves has changed."""
AT_ONCE = 16
"""A resolution that has filled its bytes gives up this fraction of its frames."""


@dataclass(frozen=True)
class Resolution:
    """Frames of `span_s` seconds are kept for `keep_s`, in at most `most_bytes`."""

    span_s: int
    keep_s: int
    most_bytes: int


RESOLUTIONS = (
    Resolution(1, 6 * 3_600, 22 * MEBI),
    Resolution(10, 24 * 3_600, 11 * MEBI),
    Resolution(60, 3 * 86_400, 8 * MEBI),
    Resolution(300, 7 * 86_400, 7 * MEBI),
    Resolution(1_800, 30 * 86_400, 6 * MEBI),
)


@dataclass
class _Stretch:
    """The stretch under way of one resolution: frames of the finer one, oldest first."""

    bucket: int
    frames: list[Frame]


class FrameLog:
    """Writes frames; one thread. The store's own bound on the file holds for all its tables."""

    def __init__(self, store: TelemetryStore) -> None:
        self._store = store
        self._base: _Base | None = None
        self._stretches: dict[int, _Stretch] = {}
        self._sizes: dict[int, int] = {}
        self._look_at_what_is_there()

    def append(self, frame: Frame) -> None:
        """Write a frame of one second, and the stretches that it is part of. Raises StoreError;
        then this frame alone is lost."""
        self._try(lambda connection: self._take_in(connection, frame))

    def prune(self, now_ms: int | None = None) -> None:
        """Give up frames past their time, and bases that no frame needs."""
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        kept = self._base.id if self._base is not None else -1
        with self._store.transaction() as connection:
            for each in RESOLUTIONS:
                connection.execute(
                    "DELETE FROM frame WHERE span_s = ? AND bucket < ?",
                    (each.span_s, bucket_of(each.span_s, now - each.keep_s * 1000)),
                )
            connection.execute(
                "DELETE FROM frame_base WHERE id <> ? "
                "AND NOT EXISTS (SELECT 1 FROM frame WHERE base = frame_base.id)",
                (kept,),
            )
        self._count_bytes()

    def flush(self) -> None:
        """Write the finest stretch under way; before the store is closed."""
        finest = RESOLUTIONS[1].span_s
        stretch = self._stretches.pop(finest, None)
        if stretch is not None:
            self._try(lambda connection: self._end(connection, 1, stretch))

    def _try(self, write: Callable[[Connection], None]) -> None:
        """Once; and again where the file is as large as it may be, with its older half given up."""
        before = dict(self._stretches), self._base
        try:
            with self._store.transaction() as connection:
                write(connection)
        except StoreError as error:
            self._stretches, self._base = before
            if not disk_is_full(error):
                raise
            self._make_room()
            with self._store.transaction() as connection:
                write(connection)

    def _take_in(self, connection: Connection, frame: Frame) -> None:
        self._write(connection, 0, frame.at_ms, frame)
        self._feed(connection, 1, frame)

    def _feed(self, connection: Connection, place: int, frame: Frame) -> None:
        """Add a frame of the finer resolution to the stretch of RESOLUTIONS[place]."""
        span = RESOLUTIONS[place].span_s
        bucket, stretch = bucket_of(span, frame.at_ms), self._stretches.get(span)
        if stretch is not None and stretch.bucket != bucket:
            self._end(connection, place, stretch)
            stretch = None
        frames = [frame] if stretch is None else [*stretch.frames, frame]
        self._stretches[span] = _Stretch(bucket, frames)
        if place > 1:
            self._write(connection, place, bucket, merge(frames))

    def _end(self, connection: Connection, place: int, stretch: _Stretch) -> None:
        whole = merge(stretch.frames)
        if place == 1:
            self._write(connection, place, stretch.bucket, whole)
        if place + 1 < len(RESOLUTIONS):
            self._feed(connection, place + 1, whole)

    def _write(self, connection: Connection, place: int, bucket: int, frame: Frame) -> None:
        span, columns = RESOLUTIONS[place].span_s, columns_of(frame)
        base = self._base
        body = b"" if base is None else pack(columns, base.columns)
        if base is None or (place == 0 and base.outgrown_by(len(body))):
            base = self._base = _Base(_insert_base(connection, pack(columns)), columns)
            body = pack(columns, columns)
        elif place == 0 and base.usual is None:
            base = self._base = replace(base, usual=len(body))
        size = row_bytes(len(body))
        connection.execute(
            "INSERT INTO frame (span_s, bucket, at_ms, base, size, body) VALUES (?,?,?,?,?,?) "
            "ON CONFLICT (span_s, bucket) DO UPDATE SET at_ms = excluded.at_ms, "
            "base = excluded.base, size = excluded.size, body = excluded.body",
            (span, bucket, frame.at_ms, base.id, size, body),
        )
        self._sizes[span] += size
        if self._sizes[span] > RESOLUTIONS[place].most_bytes:
            self._sizes[span] = _give_up_oldest(connection, span, AT_ONCE)

    def _make_room(self) -> None:
        """Give the older half of every resolution up, which frees pages inside the file."""
        with self._store.transaction() as connection:
            for each in RESOLUTIONS:
                self._sizes[each.span_s] = _give_up_oldest(connection, each.span_s, 2)

    def _look_at_what_is_there(self) -> None:
        """The newest row of a coarse resolution is its stretch under way, not yet part of the next
        coarser one: everything that one frame ends is written at once."""
        self._count_bytes()
        for each in RESOLUTIONS[2:]:
            found = self._store.rows(
                "SELECT f.bucket, f.body, b.body FROM frame f JOIN frame_base b ON b.id = f.base "
                "WHERE f.span_s = ? ORDER BY f.bucket DESC LIMIT 1",
                (each.span_s,),
            )
            for bucket, body, base in found:
                frame = frame_of(unpack(body, unpack(base)))
                self._stretches[each.span_s] = _Stretch(bucket, [frame])

    def _count_bytes(self) -> None:
        rows = self._store.rows("SELECT span_s, sum(size) FROM frame GROUP BY span_s")
        self._sizes = {each.span_s: 0 for each in RESOLUTIONS} | dict(rows)


@dataclass(frozen=True)
class _Base:
    """What the frames that follow are packed against; `usual` bytes took the first of them."""

    id: int
    columns: Columns
    usual: int | None = None

    def outgrown_by(self, body: int) -> bool:
        return self.usual is not None and body > REBASE * self.usual + REBASE_BYTES


def row_bytes(body: int) -> int:
    """About what a row with so many bytes takes of the file."""
    if body > PAGE_BYTES - ROW_BYTES:
        return (body // PAGE_BYTES + 1) * PAGE_BYTES
    return PAGE_BYTES // (PAGE_BYTES // (body + ROW_BYTES))


def bucket_of(span_s: int, at_ms: int) -> int:
    """Seconds are kept one by one, whenever they were taken."""
    return at_ms if span_s == 1 else at_ms // (span_s * 1000)


def _insert_base(connection: Connection, body: bytes) -> int:
    return connection.execute("INSERT INTO frame_base (body) VALUES (?)", (body,)).lastrowid


def _give_up_oldest(connection: Connection, span_s: int, share: int) -> int:
    """Delete the oldest 1/share of the rows; the bytes that are left."""
    connection.execute(
        "DELETE FROM frame WHERE span_s = ?1 AND bucket <= (SELECT bucket FROM frame "
        "WHERE span_s = ?1 ORDER BY bucket LIMIT 1 "
        "OFFSET (SELECT count(*) / ?2 FROM frame WHERE span_s = ?1))",
        (span_s, share),
    )
    row = connection.execute("SELECT sum(size) FROM frame WHERE span_s = ?", (span_s,)).fetchone()
    return row[0] or 0
