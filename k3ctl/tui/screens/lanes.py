"""Lanes: every request, waiting, reading its prompt or decoding; and taking one back."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult

from k3ctl.tui.chrome import age
from k3ctl.tui.deeds import Deed
from k3ctl.tui.figures import amount, bar, counted, share
from k3ctl.tui.ink import Line, Span, flowed, heading, line, pad, quiet, strong
from k3ctl.tui.lane_sums import lane_sums
from k3ctl.tui.marks import Marks
from k3ctl.tui.row_pane import RowPane
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.widgets.columns import Column, Row
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.master_detail import MasterDetail
from k3ctl.tui.widgets.row_table import RowTable
from k3d.store.frame import Frame, LaneFrame

COLUMNS = (
    Column("id", "REQUEST", most=26),
    Column("phase", "PHASE"),
    Column("progress_share", "", drop=6),
    Column("written_tokens", "WRITTEN", right=True),
    Column("tokens_per_s", "TOKENS/S", right=True, drop=1),
    Column("rows", "R", right=True, drop=3),
    Column("acceptance_length", "ACCEPTED", right=True, drop=2),
    Column("prompt_tokens", "PROMPT", right=True, drop=5),
    Column("cached_tokens", "CACHED", right=True, drop=7),
    Column("age_s", "AGE", right=True, drop=1),
    Column("preempted", "PREEMPTED", right=True, drop=8),
    Column("source", "SOURCE", drop=4, most=24),
)
PHASE_MARKS = {"waiting": "·", "prompt": "▸", "decode": "●"}
ASCII_PHASE_MARKS = {"waiting": ".", "prompt": ">", "decode": "+"}
BAR_COLUMNS = 10
ROOMY = 28
"""Lines from which on the sums may take two of them."""


class LanesPane(RowPane):
    """A table of requests under a line of their sums."""

    DEFAULT_CSS = """
    LanesPane #lane-sums { height: auto; padding: 0 0 1 0; }
    Screen.-low LanesPane #lane-sums { padding: 0; }
    """
    KIND = "lane"
    HELP = """
    Every request in the Station. R is the rows of its last pass: one, or the drafts that were
    checked beside it.

    Lanes and waiting are counted from the rows. Tokens/s of a row are its own in the last interval,
    from its second frame on; above them are those of the whole pod in it, and what the rows have of
    them where requests have ended since. A row's accepted tokens a round are of its life; those
    above, and the prefix hits, are of the last interval.
    """

    def compose(self) -> ComposeResult:
        yield Drawing(self._draw_sums, fit=True, id="lane-sums")
        table = RowTable(
            COLUMNS, lambda: self.console.marks, nothing="no request is in the Station", id="lanes"
        )
        yield MasterDetail(table, self._draw_lane)

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        frame, marks = snapshot.frame, self.console.marks
        lanes = () if frame is None else frame.lanes
        old = snapshot.freshness != "fresh"
        self.both.table.set_rows(lane_row(each, marks, old) for each in lanes)
        self.both.redraw()
        self.query_one("#lane-sums", Drawing).redraw()

    @property
    def lane(self) -> LaneFrame | None:
        """The request under the cursor."""
        lanes = () if self.shown.frame is None else self.shown.frame.lanes
        return next((lane for lane in lanes if lane.id == self.key), None)

    def action_cancel(self) -> None:
        """Take the request under the cursor back, after asking."""
        key, live = self.key, self.console.live
        if live is None:
            self.console.say(f"no request can be cancelled: {self.console.not_live}", "warning")
            return
        if key is None:
            self.console.say("there is no request to cancel", "warning")
            return
        self.console.carry_out(
            Deed(
                title="End a request",
                command=f"k3ctl lanes cancel {key}",
                sentence=f"Request {key} ends now. What it has written is sent; its lane and "
                "pages are free for others. The client sees an error.",
                call=lambda: _cancel(live, key),
                confirm="End it",
            )
        )

    def _draw_lane(self, width: int, _height: int) -> list[Line]:
        lane = self.lane
        if lane is None:
            return [line(quiet("no request"))]
        return lane_lines(lane, self.console.marks, width)

    def _draw_sums(self, width: int, _height: int) -> list[Line]:
        frame = self.shown.frame
        most = 2 if self.app.size.height >= ROOMY else 1
        return [] if frame is None else sums_lines(frame, width)[:most]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "cancel" or self.lane is not None


def _cancel(live: Any, request: str) -> str:
    live.cancel(request)
    return f"request {request} ends before its next pass"


def lane_lines(lane: LaneFrame, marks: Marks, width: int) -> list[Line]:
    """All that is known of one request."""
    reused = f"{lane.cached_tokens:,} reused, {lane.prefilled_tokens:,} read"
    most = "" if lane.most_tokens is None else f" of {lane.most_tokens:,} at most"
    rows = "-" if lane.rows is None else f"{lane.rows} in its last pass"
    fields: tuple[tuple[str, Line], ...] = (
        ("phase", phase_cell(lane, marks)),
        ("came by", line(lane.source)),
        ("age", line(age(lane.age_s))),
        ("prompt", line(counted(lane.prompt_tokens, "token"), quiet(f"  {reused}"))),
        ("written", line(counted(lane.written_tokens, "token"), quiet(most))),
        ("progress", bar(progress_share(lane), min(40, width - 14), marks)),
        ("rate", line(f"{amount(lane.tokens_per_s)} tokens/s")),
        ("rows", line(rows)),
        ("accepted", line(f"{amount(lane.acceptance_length, 2)} tokens a round")),
        ("preempted", line(counted(lane.preempted, "time"))),
    )
    title = heading(f"Request {lane.id}", width, rule=marks.rule)
    return [title, *(line(pad((quiet(name),), 14), value) for name, value in fields)]


def sums_lines(frame: Frame, width: int) -> list[Line]:
    """Requests, rates and pages of the pod, in as many lines as they take; the first ones first."""
    sums, used = lane_sums(frame), frame.pages - frame.free_pages
    unlisted = f", {sums.unlisted:,} not listed" if sums.unlisted else ""
    rated = "none" if not sums.rows_tokens_per_s else amount(sums.rows_tokens_per_s)
    rows = f", {rated} in the rows" if sums.ended_too else ""
    return flowed(
        (
            line(strong(f"{sums.running}"), quiet(f" of {counted(frame.most_lanes, 'lane')}")),
            line(strong(f"{sums.waiting:,}"), quiet(f" waiting{unlisted}")),
            line(strong(amount(sums.tokens_per_s)), quiet(f" tokens/s{rows}")),
            line(strong(amount(frame.acceptance_length, 2)), quiet(" accepted")),
            line(quiet("pages "), strong(f"{used:,}"), quiet(f" of {frame.pages:,}")),
            line(quiet("prefix hits "), strong(share(frame.prefix_hit_share))),
        ),
        width,
    )


def lane_row(lane: LaneFrame, marks: Marks, old: bool) -> Row:
    """One request as the table shows it."""
    done = progress_share(lane)
    most = "" if lane.most_tokens is None else f"/{lane.most_tokens:,}"
    cells: tuple[Line, ...] = (
        line(lane.id),
        phase_cell(lane, marks),
        bar(done, BAR_COLUMNS, marks),
        line(f"{lane.written_tokens:,}", quiet(most)),
        line(amount(lane.tokens_per_s)),
        line("-" if lane.rows is None else f"{lane.rows}"),
        line(amount(lane.acceptance_length, 2)),
        line(f"{lane.prompt_tokens:,}"),
        line(f"{lane.cached_tokens:,}"),
        line(age(lane.age_s)),
        line(f"{lane.preempted}"),
        line(quiet(lane.source)),
    )
    values = (
        lane.id, lane.phase, done, lane.written_tokens, lane.tokens_per_s, lane.rows,
        lane.acceptance_length, lane.prompt_tokens, lane.cached_tokens, lane.age_s, lane.preempted,
        lane.source,
    )  # fmt: skip
    return Row(lane.id, cells, values, old=old)


def progress_share(lane: LaneFrame) -> float | None:
    """Of its prompt while that is read, of its longest answer after; None where that is not set."""
    if lane.phase == "waiting":
        return 0.0
    if lane.phase == "prompt":
        return lane.prefilled_tokens / lane.prompt_tokens if lane.prompt_tokens else None
    return lane.written_tokens / lane.most_tokens if lane.most_tokens else None


def phase_cell(lane: LaneFrame, marks: Marks) -> Line:
    glyphs = ASCII_PHASE_MARKS if marks.ascii else PHASE_MARKS
    text = f"{glyphs[lane.phase]} {lane.phase}"
    return line(Span(text, "good" if lane.phase == "decode" else "quiet"))
