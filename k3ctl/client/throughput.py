"""Tokens a second over time: of the frames, of the roll-ups where there are none.

A point is all tokens of a stretch over its recorded length. A second without tokens counts as 0
where a frame shows that the Station was there; a stretch without any frame is a gap.
"""

from __future__ import annotations

from k3ctl.client.records import Records
from k3ctl.client.series import Series, from_buckets

KINDS = ("decode", "prompt")
MOST_POINTS = 90
# Single seconds of decoding are all or nothing, so a point is a longer stretch where it can be.
WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)


def throughput(records: Records) -> tuple[int, tuple[Series, ...]]:
    """The length of a point in seconds, and a series of each kind of tokens."""
    if not records.frames:
        width_s = records.width_s(MOST_POINTS)
        return width_s, tuple(_of_rollups(records, width_s, kind) for kind in KINDS)
    least = max(records.shown.length_s / MOST_POINTS, *(f.interval_s for f in records.frames))
    width_s = next((width for width in WIDTHS_S if width >= least), WIDTHS_S[-1])
    return width_s, tuple(_of_frames(records, width_s, kind) for kind in KINDS)


def _of_frames(records: Records, width_s: int, kind: str) -> Series:
    tokens: dict[int, float] = {}
    seconds: dict[int, float] = {}
    for frame in records.frames:
        # A frame stands for the time before it.
        number = int((frame.at_ms / 1000 - frame.interval_s / 2) // width_s)
        rate = getattr(frame, f"{kind}_tokens_per_s") or 0.0
        tokens[number] = tokens.get(number, 0.0) + rate * frame.interval_s
        seconds[number] = seconds.get(number, 0.0) + frame.interval_s
    rates = {number: tokens[number] / seconds[number] for number in tokens if seconds[number] > 0}
    return from_buckets(kind, records.shown, width_s, rates, records.frames[-1].provenance)


def _of_rollups(records: Records, width_s: int, kind: str) -> Series:
    summed: dict[int, float] = {}
    for rollup in records.tokens:
        if rollup.kind == kind:
            number = rollup.bucket_s // width_s
            summed[number] = summed.get(number, 0.0) + rollup.tokens / width_s
    return from_buckets(kind, records.shown, width_s, summed)
