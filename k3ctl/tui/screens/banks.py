"""The banks pane: which banks lie where, how sure one can be of them, and work on them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher

from k3ctl.cli.bank_work_text import damage_error
from k3ctl.cli.table import count, seconds, size
from k3ctl.client.bank_work import run_bank_work
from k3ctl.tui.chrome import age
from k3ctl.tui.deeds import Deed
from k3ctl.tui.figures import bar
from k3ctl.tui.ink import Ink, Line, Span, heading, line, pad, quiet, strong, width_of
from k3ctl.tui.marks import Marks
from k3ctl.tui.pane import Pane
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.widgets.columns import Column, Row
from k3ctl.tui.widgets.detail import Detail
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.row_table import RowTable
from k3d.errors import K3Error
from k3d.store.frame import BankWorkFrame
from k3d.store.paths import resolve_home

EVERY_FRAMES = 30
"""The listing is made anew as often, and when work begins or ends."""
BAR = 20
STATES: dict[str, str] = {"sound": "healthy", "unverified": "note", "damaged": "down",
                          "writing": "degraded", "interrupted": "warning"}  # fmt: skip
_INKS: dict[str, Ink] = {"sound": "good", "damaged": "bad", "writing": "accent",
                         "interrupted": "warn"}  # fmt: skip
COLUMNS = (
    Column("node", "NODE"),
    Column("model", "MODEL", most=24, drop=1),
    Column("slice", "SLICE"),
    Column("map", "MAP", drop=2),
    Column("records", "RECORDS", right=True),
    Column("bytes", "SIZE", right=True),
    Column("age_s", "AGE", right=True, drop=3),
    Column("verified_s", "VERIFIED", right=True, drop=4),
    Column("state", "STATE"),
)


class BanksPane(Pane):
    """Work under way above, the banks of this home below; Enter shows all of one."""

    DEFAULT_CSS = """
    BanksPane #banks-work { margin-bottom: 1; }
    BanksPane ContentSwitcher { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("u", "list_anew", "list anew")]
    HELP: ClassVar[str] = (
        "A bank is sound once all of it was read and hashed here and it has not changed since; "
        "unverified ones were not. What is under way, here or by another k3ctl, is above: builds, "
        "staging, verification and scrubs, by node. V reads every bank and names what is damaged, "
        "B reads the share that is due and repairs it."
    )

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._listed: Mapping[str, Any] | None = None
        self._reason: str | None = None
        self._asked_number: int | None = None
        self._working: tuple[tuple[str, str], ...] = ()
        self._opened: str | None = None

    def compose(self) -> ComposeResult:
        yield Drawing(self._draw_work, fit=True, id="banks-work")
        with ContentSwitcher(initial="banks-list"):
            yield RowTable(COLUMNS, lambda: self.console.marks, id="banks-list",
                           nothing="no banks in this home")  # fmt: skip
            yield Detail(self._draw_bank, id="banks-detail")
        yield Drawing(self._draw_foot, fit=True, id="banks-foot")

    # What is shown

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        frame = snapshot.frame
        working = () if frame is None else tuple((w.kind, w.node) for w in frame.bank_work)
        asked = self._asked_number
        old = asked is None or snapshot.number - asked >= EVERY_FRAMES
        if frame is not None and (old or working != self._working) and self._list():
            self._working = working
        self._redraw()

    def _list(self) -> bool:
        """Ask for the listing; False while it is being made."""
        frame, home = self.shown.frame, self.console.home
        if frame is None:
            return False
        if home is None:
            self._reason = "these frames have no home, so no banks"
            return False
        arguments = ["--home", str(home), "--pod", frame.pod]

        def call() -> Mapping[str, Any]:
            return run_bank_work("ls", arguments, _ignore)[1]

        if not self.console.ask("banks", call, self._take, self._fail):
            return False
        self._asked_number = self.shown.number
        return True

    def _take(self, document: Mapping[str, Any]) -> None:
        self._listed, self._reason = document, None
        self._redraw()

    def _fail(self, error: K3Error) -> None:
        self._reason = error.message
        self._redraw()

    def _redraw(self) -> None:
        for name in ("#banks-work", "#banks-foot"):
            self.query_one(name, Drawing).redraw()
        self.query_one(Detail).redraw()
        if self._listed is not None:
            self.query_one(RowTable).set_rows(self._row(bank) for bank in self._listed["banks"])

    def _draw_work(self, width: int, _: int) -> Sequence[Line]:
        frame, marks = self.shown.frame, self.console.marks
        works = () if frame is None else frame.bank_work
        head = heading("under way", width, rule=marks.rule)
        if not works:
            return [head, line(quiet("no build, staging, verification or scrub"))]
        return [head, *(work_line(work, marks, width) for work in works)]

    def _draw_foot(self, width: int, _: int) -> Sequence[Line]:
        if self._reason is not None:
            return [line(Span(self._reason, "warn"))]
        if self._listed is None:
            return [line(quiet("listing the banks"))]
        total = sum(bank["bytes"] for bank in self._listed["banks"])
        return [line(quiet(f"{size(total)} in {self._listed['folder']} (measured)"))]

    def _row(self, bank: Mapping[str, Any]) -> Row:
        marks, state = self.console.marks, bank["state"]
        glyph = marks.states.get(STATES.get(state, "unknown"), "?")
        part = "-" if bank["slice"] is None else f"{bank['slice']}/{bank['slices']}"
        at_ms = self.shown.frame.at_ms if self.shown.frame is not None else None
        verified_s = bank["verified_s"]
        ago = None if verified_s is None or at_ms is None else max(0.0, at_ms / 1000 - verified_s)
        return Row(
            f"{bank['node']}/{bank['file']}",
            (
                line(strong(bank["node"])),
                line(bank["model"] or bank["file"]),
                line(part),
                line((bank["map"] or "-")[:8]),
                line(count(bank["records"])),
                line(size(bank["bytes"])),
                line(age(bank["age_s"])),
                line("never" if ago is None else f"{age(ago)} ago"),
                (Span(f"{glyph} {state}", _INKS.get(state, "plain")),),
            ),
            (
                bank["node"], bank["model"], part, bank["map"], bank["records"], bank["bytes"],
                bank["age_s"], verified_s, state,
            ),
        )  # fmt: skip

    def _bank(self) -> Mapping[str, Any] | None:
        banks = [] if self._listed is None else self._listed["banks"]
        return next((b for b in banks if f"{b['node']}/{b['file']}" == self._opened), None)

    def _draw_bank(self, width: int, _: int) -> Sequence[Line]:
        bank = self._bank()
        if bank is None:
            return []
        lines = [heading(f"{bank['node']}/{bank['file']}", width, rule=self.console.marks.rule)]
        for name, value in bank.items():
            if name in ("node", "file"):
                continue
            words = name.removesuffix("_s").replace("_", " ")
            lines.append(line(pad((quiet(words),), 14), _shown(name, value)))
        return lines

    # Keys

    @on(RowTable.Opened)
    def _open(self, event: RowTable.Opened) -> None:
        self._opened = event.row.key
        self.query_one(ContentSwitcher).current = "banks-detail"
        detail = self.query_one(Detail)
        detail.restart()
        detail.focus()

    def back(self) -> bool:
        if self.query_one(ContentSwitcher).current != "banks-detail":
            return False
        self.query_one(ContentSwitcher).current = "banks-list"
        self.query_one(RowTable).focus()
        return True

    def focus_first(self) -> None:
        inside = self.query_one(ContentSwitcher).current == "banks-detail"
        # The first time, what is in front is only settled with the next refresh.
        self.call_after_refresh(self.query_one(Detail if inside else RowTable).focus)

    def action_list_anew(self) -> None:
        self._list()

    def action_verify(self) -> None:
        self._work("verify", "Verify every bank", "Reads and hashes every record; changes none.")

    def action_scrub(self) -> None:
        self._work("scrub", "Scrub", "Reads what is due of a day's share and repairs what is "
                                     "damaged from its source.")  # fmt: skip

    def _work(self, verb: str, title: str, sentence: str) -> None:
        frame, home = self.shown.frame, self.console.home
        if frame is None or home is None:
            self.console.say("there is no home to work in", "warning")
            return
        self.console.carry_out(
            Deed(
                title=title,
                command=_command(home, verb, frame.pod),
                sentence=sentence,
                call=lambda: _carry_out(verb, home, frame.pod),
                confirm=verb.capitalize(),
            ),
            self.action_list_anew,
        )


def work_line(work: BankWorkFrame, marks: Marks, width: int) -> Line:
    """One piece of work: node, kind, how far, how fast, what it found. What there is no room for
    is left out, the bytes first."""
    share = work.done_bytes / work.size_bytes if work.size_bytes else 1.0
    head = line(
        pad((strong(work.node),), 11), pad((Span(work.kind, "accent"),), 7),
        bar(share, max(4, min(BAR, width - 50)), marks), f" {100 * share:3.0f} %",
    )  # fmt: skip
    found = (Span(f"  {count(work.found)} damaged", "bad"),) if work.found else ()
    left = line(quiet("" if work.left_s is None else f"  {seconds(work.left_s)} left"))
    speed = line("" if work.bytes_per_s is None else f"  {size(work.bytes_per_s)}/s")
    amount = line(quiet(f"  {size(work.done_bytes)} of {size(work.size_bytes)}"))
    for pieces in ((amount, speed, left), (speed, left), (left,)):
        whole = line(head, *pieces, found)
        if width_of(whole) <= width:
            return whole
    return line(head, found)


def _carry_out(verb: str, home: Path, pod: str) -> str:
    """Run a verb on the banks of a home; a sentence about it. Raises the damage that it left."""
    _, document = run_bank_work(verb, ["--home", str(home), "--pod", pod], _ignore)
    error = damage_error(document)
    if error is not None:
        raise error
    read = document.get("bytes") or sum(bank["bytes"] for bank in document.get("banks", ()))
    return f"{verb}: {size(read)} read in {seconds(document['time_s'])}, no damage is left"


def _ignore(_line: Mapping[str, Any]) -> None:
    """Progress comes with the frames."""


def _shown(name: str, value: Any) -> str:
    """A figure of a bank's listing in full."""
    if value is None:
        return "-"
    if name == "bytes":
        return f"{count(value)} ({size(value)})"
    if name.endswith("age_s"):
        return age(value)
    if name == "verified_s":
        return f"{datetime.fromtimestamp(value).astimezone():%Y-%m-%d %H:%M:%S %Z}"
    return value if isinstance(value, str) else json.dumps(value)


def _command(home: Path, verb: str, pod: str) -> str:
    flag = () if resolve_home() == home else ("--home", str(home))
    return shlex.join(("k3ctl", "bank", verb, "--pod", pod, *flag))
