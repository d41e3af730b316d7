"""The tables of the bank verbs, for -H, -p and -o."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k3ctl.cli.table import Column, Columns, count, cut, size

Row = Mapping[str, Any]


def slice_text(row: Row) -> str | None:
    return None if row["slice"] is None else f"{row['slice']}/{row['slices']}"


def age_text(age_s: float | None) -> str:
    """A time in the past, as coarse as it is long ago; a dash for never."""
    if age_s is None:
        return "-"
    for unit, length_s in (("days", 86_400), ("h", 3600), ("min", 60)):
        if age_s >= 2 * length_s:
            return f"{age_s / length_s:.0f} {unit}"
    return f"{age_s:.0f} s"


def _rate(row: Row) -> float | None:
    return row["payload_bytes"] / row["send_s"] if row["send_s"] and row["payload_bytes"] else None


def _speed(rate: float | None) -> str:
    return "-" if rate is None else f"{size(rate)}/s"


def _error(row: Row) -> str | None:
    return None if row["error"] is None else row["error"]["message"]


def built_state(row: Row) -> str:
    return "ready before" if row["ready_before"] else "built"


def staged_state(row: Row) -> str:
    if row["error"] is not None:
        return "failed"
    return "whole" if not row["lacking"] or row["sent"] else "would be sent"


PLANNED = Columns(
    "planned banks",
    (
        Column("node", "node"),
        Column("slice", slice_text, right=True),
        Column("format", "format"),
        Column("records", "records", count, right=True),
        Column("size", "size_bytes", size, right=True),
        Column("state", "state"),
        Column("file", "file"),
        Column("record_bytes", "record_bytes", count, right=True),
        Column("recast_from", "recast_from"),
    ),
)
BUILT = Columns(
    "banks",
    (
        Column("node", "node"),
        Column("records", "records", count, right=True),
        Column("kept", "kept", count, right=True),
        Column("written", "written", count, right=True),
        Column("size", "size_bytes", size, right=True),
        Column("state", built_state, header=""),
        Column("file", "file"),
        Column("written_bytes", "written_bytes", size, right=True),
        Column("hash_s", "hash_s", right=True),
        Column("discarded", "discarded"),
    ),
)
STAGED = Columns(
    "nodes",
    (
        Column("node", "node"),
        Column("had", "kept", count, right=True),
        Column("lacked", "lacking", count, right=True),
        Column("sent", "payload_bytes", size, right=True),
        Column("wire", "wire_bytes", size, right=True),
        Column("rate", _rate, _speed, right=True),
        Column("state", staged_state, header=""),
        Column("file", "file"),
        Column("repaired", "repaired", count, right=True),
        Column("time_s", "send_s", right=True),
        Column("hash_s", "hash_s", right=True),
        Column("error", _error),
    ),
)
VERIFIED = Columns(
    "banks",
    (
        Column("node", "node"),
        Column("file", "file", lambda name: cut(name, 46)),
        Column("records", "records", count, right=True),
        Column("state", "state"),
        Column("size", "bytes", size, right=True),
        Column("damages", "damages", count, right=True),
    ),
)
DAMAGES = Columns(
    "damages",
    (
        Column("node", "node"),
        Column("path", "file"),
        Column("part", "part"),
        Column("layer", "layer", right=True),
        Column("expert", "expert", right=True),
        Column("repaired", "repaired"),
        Column("reason", "reason"),
        Column("unrepaired_because", "unrepaired_because"),
    ),
)
LISTED = Columns(
    "banks",
    (
        Column("node", "node"),
        Column("model", lambda row: row["model"] or cut(row["file"], 24)),
        Column("slice", slice_text, right=True),
        Column("map", "map", lambda digest: (digest or "-")[:8]),
        Column("records", "records", count, right=True),
        Column("size", "bytes", size, right=True),
        Column("verified", "verified_age_s", age_text, right=True),
        Column("state", "state"),
        Column("file", "file"),
        Column("age", "age_s", age_text, right=True),
        Column("format", "format"),
        Column("rounds", "scrub_rounds", count, right=True),
        Column("reason", "reason"),
        Column("model_digest", "model_digest"),
        Column("content", "content"),
    ),
)
CLEARED = Columns(
    "files",
    (
        Column("verdict", lambda row: "remove" if row["remove"] else "keep"),
        Column("node", "node"),
        Column("file", "file"),
        Column("size", "bytes", size, right=True),
        Column("removed", "removed"),
        Column("reason", "reason"),
    ),
)
