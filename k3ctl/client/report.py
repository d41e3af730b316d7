"""A report: what ran in a span of time, how fast, what was changed, what went wrong, what next."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from k3ctl.client.histories import latency, tokens
from k3ctl.client.moments import Span, local
from k3ctl.client.next_command import at_home
from k3ctl.client.records import MOST_FRAMES, Recording, Records, read_records
from k3ctl.client.report_events import Change, Measured, Trouble, attention, told
from k3ctl.client.report_figures import (
    Ran,
    Spread,
    TierSpeed,
    Unwell,
    ran,
    spreads,
    tier_speeds,
    unwell,
)
from k3ctl.client.report_matters import badness, merged
from k3ctl.client.series import History
from k3d.counted import counted

SHOWING = ("k3ctl logs", "k3ctl replay", "k3ctl plot", "k3ctl health", "k3ctl status")
MANY_NODES, MOST_OF_FEW_NODES = 40, 3_000
MOST_COMMANDS = 6
MOST_TROUBLES = 30


@dataclass(frozen=True)
class Next:
    """A command to run next, and why."""

    why: str
    command: str


@dataclass(frozen=True)
class Report:
    """`state` is the pod's in the newest frame of the span, None without one."""

    home: Path
    span: Span
    made_s: float
    state: str | None
    ran: Ran
    starts: int
    ends: int
    spreads: tuple[Spread, ...]
    tiers: tuple[TierSpeed, ...]
    receipts: tuple[Measured, ...]
    changes: tuple[Change, ...]
    troubles: tuple[Trouble, ...]
    unwell: tuple[Unwell, ...]
    next: tuple[Next, ...]
    throughput: History
    latency: History

    def as_json(self) -> dict[str, Any]:
        return {
            "home": str(self.home),
            "pod": self.ran.pod,
            "since_ms": round(self.span.since_s * 1000),
            "until_ms": round(self.span.until_s * 1000),
            "made_ms": round(self.made_s * 1000),
            "state": self.state,
            "ran": {**self.ran.as_json(), "starts": self.starts, "ends": self.ends},
            "fast": {
                "figures": [asdict(each) for each in self.spreads],
                "tiers": [asdict(each) for each in self.tiers],
                "receipts": [asdict(each) for each in self.receipts],
            },
            "changed": [asdict(each) for each in self.changes],
            "wrong": {
                "failed": self.ran.requests["failed"],
                "refused": self.ran.requests["refused"],
                "troubles": [asdict(each) for each in self.troubles],
                "unwell": [asdict(each) for each in self.unwell],
            },
            "next": [asdict(each) for each in self.next],
        }


def build_report(home: Path, span: Span, recording: Recording, now_s: float) -> Report:
    """Raises NotFound when neither telemetry nor state.db knows of the span."""
    records = read_records(home, span, recording, now_s, _most_frames(span, recording))
    story = told(home, span)
    if not (story.changes or story.troubles or story.receipts):
        records.require("history")
    ran_ = ran(records, story.pod or "pod")
    troubles = sorted(
        merged([*story.troubles, *attention(records.frames)]),
        key=lambda trouble: (badness(trouble.severity), trouble.at_ms),
    )
    unwell_ = unwell(records.frames)
    return Report(
        home=home,
        span=span,
        made_s=now_s,
        state=records.frames[-1].state if records.frames else None,
        ran=ran_,
        starts=story.starts,
        ends=story.ends,
        spreads=tuple(spreads(records)),
        tiers=tuple(tier_speeds(records)),
        receipts=story.receipts,
        changes=story.changes,
        troubles=tuple(troubles[:MOST_TROUBLES]),
        unwell=tuple(unwell_),
        next=tuple(_next(records, ran_, troubles, unwell_)),
        throughput=tokens(records, None, None),
        latency=latency(records, None, None),
    )


def _most_frames(span: Span, recording: Recording) -> int:
    """How finely to look: a degraded minute is told from five where that does not take long."""
    last = recording.at(round(span.until_s * 1000))
    nodes = len(last.nodes) if last is not None else 0
    return MOST_FRAMES if nodes > MANY_NODES else MOST_OF_FEW_NODES


def _stands(trouble: Trouble, records: Records) -> bool:
    """Whether it was still so in the newest frame."""
    if not records.frames:
        return True
    last = records.frames[-1]
    return trouble.until_ms >= last.at_ms - 1000 * last.interval_s


def _next(
    records: Records, ran_: Ran, troubles: list[Trouble], unwell_: list[Unwell]
) -> list[Next]:
    """Commands that show or mend what was found, the most pressing first. What is over needs no
    mending."""
    found: dict[str, str] = {}
    for trouble in troubles:
        if trouble.command and (trouble.command.startswith(SHOWING) or _stands(trouble, records)):
            found.setdefault(trouble.command, trouble.sentence)
    if ran_.requests["failed"]:
        found.setdefault(
            "k3ctl logs station --level error",
            f"{counted(ran_.requests['failed'], 'request')} failed",
        )
    for each in unwell_[:1]:
        who = each.node or "the pod"
        found.setdefault(
            f"k3ctl replay --at '{local(each.since_ms / 1000)}'",
            f"{who} was {each.state} from then",
        )
    since = local(records.shown.since_s)
    if not records.empty:
        found.setdefault(f"k3ctl plot latency --since '{since}'", "hops and tokens over the span")
    if not found:
        found["k3ctl health"] = "nothing was found that needs a look"
    home = records.home
    return [Next(why, at_home(line, home)) for line, why in list(found.items())[:MOST_COMMANDS]]
