"""Recorded frames, read from telemetry.db whether or not a Station writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from k3d.errors import NotFound
from k3d.store.database import Connection, open_for_reading, sentences
from k3d.store.frame import Frame
from k3d.store.frame_log import RESOLUTIONS, bucket_of
from k3d.store.frame_merge import merge
from k3d.store.frame_pack import Columns, frame_of, unpack
from k3d.store.paths import telemetry_path
from k3d.store.schema import check_version, schema_version
from k3d.store.telemetry import VERSION

FIRST_WITH_FRAMES = 2
MOST_BASES = 64
_ROW = "SELECT at_ms, base, body FROM frame WHERE span_s = ?1"


class FrameHistory:
    """Use as a context manager or close() it; one thread."""

    def __init__(self, connection: Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._bases: dict[int, Columns] = {}

    @classmethod
    def open(cls, home: Path) -> FrameHistory:
        """Raises NotFound where nothing was recorded, ConfigError for a newer k3pod's file,
        StoreError for a damaged one."""
        path = telemetry_path(home)
        connection = open_for_reading(path)
        try:
            with sentences(path):
                found = schema_version(connection)
            check_version(found, path, newest=VERSION)
            if found < FIRST_WITH_FRAMES:
                raise NotFound(
                    f"{path} was written before frames were recorded",
                    hint="start the pod once with this k3pod: k3ctl pod up",
                )
        except BaseException:
            connection.close()
            raise
        return cls(connection, path)

    def span(self) -> tuple[int, int] | None:
        """Unix milliseconds of the first and the last frame; None of none."""
        first, last = self._rows("SELECT min(at_ms), max(at_ms) FROM frame")[0]
        return None if first is None else (first, last)

    def at(self, at_ms: int) -> Frame | None:
        """The newest frame that is not after `at_ms`; of equals the finest."""
        found: list[tuple[int, int, bytes]] = []
        for each in RESOLUTIONS:
            found += self._rows(
                f"{_ROW} AND bucket <= ?2 AND at_ms <= ?3 ORDER BY bucket DESC LIMIT 1",
                (each.span_s, bucket_of(each.span_s, at_ms), at_ms),
            )
        if not found:
            return None
        return self._frame(max(found, key=lambda row: row[0]))

    def after(self, at_ms: int) -> Frame | None:
        """The first frame after `at_ms`; of equals the finest."""
        found: list[tuple[int, int, bytes]] = []
        for each in RESOLUTIONS:
            found += self._rows(
                f"{_ROW} AND bucket >= ?2 AND at_ms > ?3 ORDER BY bucket LIMIT 1",
                (each.span_s, bucket_of(each.span_s, at_ms), at_ms),
            )
        return self._frame(min(found, key=lambda row: row[0])) if found else None

    def between(self, first_ms: int, last_ms: int, most: int = 400) -> list[Frame]:
        """Frames from `first_ms` to `last_ms`, oldest first: the finest resolution that reaches
        back so far and has at most `most` of them. The seconds that are in no coarser frame yet
        make the last one."""
        span_s = self._span_for(first_ms, last_ms, most)
        frames = self._of(span_s, first_ms, last_ms)
        if span_s > 1:
            tail = self._of(1, frames[-1].at_ms + 1 if frames else first_ms, last_ms)
            frames += [merge(tail)] if tail else []
        return list(_at_most(frames, most))

    def _of(self, span_s: int, first_ms: int, last_ms: int) -> list[Frame]:
        """Frames of one resolution, oldest first."""
        first, last = bucket_of(span_s, first_ms), bucket_of(span_s, last_ms)
        where = "AND bucket BETWEEN ?2 AND ?3 AND at_ms BETWEEN ?4 AND ?5 ORDER BY bucket"
        rows = self._rows(f"{_ROW} {where}", (span_s, first, last, first_ms, last_ms))
        return [self._frame(row) for row in rows]

    def close(self) -> None:
        self._connection.close()

    def _span_for(self, first_ms: int, last_ms: int, most: int) -> int:
        oldest = dict(self._rows("SELECT span_s, min(at_ms) FROM frame GROUP BY span_s"))
        there = self.span()
        if there is None:
            return RESOLUTIONS[0].span_s
        earliest = there[0]
        length_s = max(0, min(last_ms, there[1]) - max(first_ms, earliest)) / 1000
        chosen = RESOLUTIONS[0].span_s
        for each in RESOLUTIONS:
            start = oldest.get(each.span_s)
            if start is None:
                continue
            chosen = each.span_s
            # The first frame of a coarser resolution stands for a time before it.
            reaches = start <= max(first_ms, earliest) + each.span_s * 1000
            if reaches and length_s / each.span_s < most:
                break
        return chosen

    def _frame(self, row: tuple[int, int, bytes]) -> Frame:
        _, base_id, body = row
        base = self._bases.get(base_id)
        if base is None:
            if len(self._bases) >= MOST_BASES:
                self._bases.clear()
            found = self._rows("SELECT body FROM frame_base WHERE id = ?", (base_id,))
            base = self._bases[base_id] = unpack(found[0][0]) if found else {}
        return frame_of(unpack(body, base))

    def _rows(self, sql: str, values: tuple = ()) -> list[tuple]:
        with sentences(self.path):
            return self._connection.execute(sql, values).fetchall()

    def __enter__(self) -> FrameHistory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _at_most(frames: list[Frame], most: int) -> Iterator[Frame]:
    """Neighbours merged until there are no more than `most`."""
    together = max(1, -(-len(frames) // max(1, most)))
    for first in range(0, len(frames), together):
        yield merge(frames[first : first + together])
