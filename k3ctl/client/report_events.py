"""What a report tells of: changes and troubles, from state.db, the requests and the logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from k3ctl.client.daemon_log import LogReader, log_files
from k3ctl.client.map_name import map_name
from k3ctl.client.moments import Span
from k3ctl.client.report_swaps import says_more, told_swaps
from k3d.errors import NotFound
from k3d.store.frame import Frame
from k3d.store.paths import run_directory
from k3d.store.records import Receipt
from k3d.store.requests import RequestRecord
from k3d.store.state import StateReader

ALERT = "alert"
POD = "pod"
SWAP_EVENT = "swap"
# Kinds of events that tell of what was done. All others tell of what began to need attention.
DONE = ("swap", "replacement", "bank", "build", "stage", "verify", "scrub", "gc", "placement")
OVER = ("over: ", " is healthy again")
MOST_EVENTS = 500
MOST_LOG_LINES = 10
MOST_FIGURES = 4
FIGURES_DEEP = 3


@dataclass(frozen=True)
class Change:
    """Something that somebody, or the pod itself, changed. `who` is a request id or a user."""

    at_ms: int
    what: str
    who: str | None = None
    outcome: str | None = None


@dataclass(frozen=True)
class Trouble:
    """Something that went wrong. `count` times, from `at_ms` to `until_ms`."""

    at_ms: int
    until_ms: int
    severity: str
    subject: str
    sentence: str
    count: int = 1
    command: str | None = None
    source: str = "event"


@dataclass(frozen=True)
class Measured:
    """A receipt and the first of its figures, by their path in it."""

    at_ms: int
    kind: str
    provenance: str
    command: str
    id: str
    figures: dict[str, float]


@dataclass(frozen=True)
class Told:
    """All that state.db, requests and logs tell of a span."""

    pod: str | None
    changes: tuple[Change, ...]
    troubles: tuple[Trouble, ...]
    receipts: tuple[Measured, ...]
    starts: int
    ends: int


def told(home: Path, span: Span) -> Told:
    """Raises StoreError when state.db is damaged; a home without one has nothing to tell."""
    first_ms, last_ms = round(span.since_s * 1000), round(span.until_s * 1000)
    requests = {record.id: record for record in _requests(home, first_ms, last_ms)}
    troubles = list(_log_lines(home, span))
    receipts: list[Measured] = []
    name, starts, ends = None, 0, 0
    try:
        reader = StateReader.open(home)
    except NotFound:
        return Told(None, _in_order(map(_request, requests.values())), tuple(troubles), (), 0, 0)
    with reader:
        stored = reader.pod()
        name = stored.name if stored is not None else None
        changes = _maps(reader, first_ms, last_ms)
        for swap in told_swaps(reader, first_ms, last_ms):
            who = f"request {swap.request}" if swap.request else None
            asked = requests.pop(swap.request or "", None)
            who = who if asked is None else _who(asked)
            changes.append(Change(swap.at_ms, swap.what, who, swap.outcome))
        changes += map(_request, requests.values())
        changes += _descriptions(reader, first_ms, last_ms)
        for at_ms, node, kind, message, detail in _events(reader, first_ms, last_ms):
            if kind == POD:
                starts += message.endswith("started")
                ends += message.endswith("ended")
                changes.append(Change(at_ms, message))
            elif kind == ALERT:
                if detail.get("raised", True):
                    troubles.append(_alert(at_ms, node, message, detail))
            elif kind.partition("-")[0] in DONE:
                if kind != SWAP_EVENT or says_more(message):
                    intent = detail.get("intent")
                    changes.append(Change(at_ms, message, f"swap {intent}" if intent else None))
            elif not (message.startswith(OVER[0]) or message.endswith(OVER[1])):
                troubles.append(_alert(at_ms, node, message, detail))
        receipts = [
            _measured(receipt)
            for receipt in reader.receipts(limit=MOST_EVENTS)
            if first_ms <= receipt.ts_ms <= last_ms
        ]
    return Told(
        name,
        _in_order(changes),
        tuple(sorted(troubles, key=lambda trouble: trouble.at_ms)),
        tuple(receipts),
        starts,
        ends,
    )


def _in_order(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: change.at_ms))


def attention(frames: Sequence[Frame]) -> list[Trouble]:
    """What the frames said needs attention: each matter once, with how long it lasted."""
    found: dict[tuple[str, str], list[Any]] = {}
    for frame in frames:
        for each in frame.attention:
            if each.severity == "note":
                continue
            matter = (each.subject, getattr(each, "kind", None) or each.sentence)
            entry = found.setdefault(matter, [frame.at_ms, frame.at_ms, each, 0])
            entry[1], entry[2] = frame.at_ms, each
            entry[3] += 1
    return [
        Trouble(
            first, last, each.severity, each.subject, each.sentence, count, each.command, "frames"
        )
        for first, last, each, count in found.values()
    ]


def _events(
    reader: StateReader, first_ms: int, last_ms: int
) -> Iterable[tuple[int, str | None, str, str, dict[str, Any]]]:
    rows = reader.rows(
        "SELECT ts_ms, node, kind, message, detail FROM event WHERE ts_ms BETWEEN ? AND ? "
        "ORDER BY id DESC LIMIT ?",
        (first_ms, last_ms, MOST_EVENTS),
    )
    for at_ms, node, kind, message, detail in reversed(rows):
        read = msgspec.json.decode(detail) if detail else {}
        yield at_ms, node, kind, message, read if isinstance(read, dict) else {}


def _alert(at_ms: int, node: str | None, message: str, detail: Mapping[str, Any]) -> Trouble:
    return Trouble(
        at_ms,
        at_ms,
        str(detail.get("severity", "warning")),
        str(detail.get("subject") or node or "pod"),
        message,
        command=detail.get("command"),
    )


def _maps(reader: StateReader, first_ms: int, last_ms: int) -> list[Change]:
    rows = reader.rows(
        "SELECT ts_ms, epoch, policy FROM placement_map "
        "WHERE intent IS NULL AND ts_ms BETWEEN ? AND ?",
        (first_ms, last_ms),
    )
    return [
        Change(at_ms, f"epoch {epoch} in force: {map_name(name)}") for at_ms, epoch, name in rows
    ]


def _descriptions(reader: StateReader, first_ms: int, last_ms: int) -> list[Change]:
    rows = reader.rows(
        "SELECT ts_ms, name, digest FROM pod WHERE ts_ms BETWEEN ? AND ?", (first_ms, last_ms)
    )
    return [
        Change(at_ms, f"pod description {name}, digest {digest[:12]}")
        for at_ms, name, digest in rows
    ]


def _requests(home: Path, first_ms: int, last_ms: int) -> Iterable[RequestRecord]:
    """Commands that were carried out under a request id."""
    for path in sorted((run_directory(home) / "requests").glob("*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=RequestRecord)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue  # the verb that needs it says so
        if first_ms <= record.claimed_ms <= last_ms:
            yield record


def _request(record: RequestRecord) -> Change:
    took = None if record.done_ms is None else (record.done_ms - record.claimed_ms) / 1000
    outcome = "not finished" if took is None else f"done after {took:.1f} s"
    return Change(record.claimed_ms, f"k3ctl {record.verb}", _who(record), outcome)


def _who(record: RequestRecord) -> str:
    return f"request {record.id} of {record.user}@{record.host}"


def _log_lines(home: Path, span: Span) -> Iterable[Trouble]:
    """Errors in the daemons' logs: each sentence of a node once, with how often it came."""
    found: dict[tuple[str, str], list[Any]] = {}
    for path in log_files(home):
        for entry in LogReader(path).read():
            if entry.level not in ("error", "critical"):
                continue
            if span.since_s <= entry.ts_s <= span.until_s:
                at_ms = round(entry.ts_s * 1000)
                known = found.setdefault((entry.node, entry.message), [at_ms, at_ms, 0])
                known[1] = at_ms
                known[2] += 1
    newest = sorted(found.items(), key=lambda item: item[1][1])[-MOST_LOG_LINES:]
    for (node, message), (first, last, count) in newest:
        command = f"k3ctl logs {node} --level error"
        yield Trouble(first, last, "error", node, message, count, command, "log")


def _measured(receipt: Receipt) -> Measured:
    return Measured(
        receipt.ts_ms,
        receipt.kind,
        receipt.provenance,
        receipt.command,
        receipt.id,
        dict(list(_numbers(receipt.figures))[:MOST_FIGURES]),
    )


def _numbers(figures: Mapping[str, Any], path: str = "", deep: int = 1) -> Iterable[Any]:
    """(path, number) of the figures, those nearest to the top first."""
    for key, value in figures.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{path}{key}", float(value)
    for key, value in figures.items():
        if isinstance(value, dict) and deep < FIGURES_DEEP and key != "definitions":
            yield from _numbers(value, f"{path}{key}.", deep + 1)
