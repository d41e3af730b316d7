"""The placement pane: the map in force beside a candidate; dry run, swap, rollback, abort."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from k3ctl.cli.table import count, duration_us
from k3ctl.client import swaps
from k3ctl.client.candidates import Choice, choices, newest_trace, use_shares, weigh
from k3ctl.client.experts import map_of_epoch
from k3ctl.tui.deeds import Deed
from k3ctl.tui.ink import Line, Span, dimmed, line, quiet, strong
from k3ctl.tui.pane import Pane
from k3ctl.tui.screens import placement_view as view
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.widgets.detail import Detail
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.row_table import Column, Row, RowTable
from k3d.errors import ConfigError, K3Error, NotFound
from k3d.store.paths import resolve_home

RATE_BYTES_S = 64 * 2**20
"""What `k3ctl placement swap` copies a second unless it is told otherwise."""
COLUMNS = (
    Column("name", "CANDIDATE", most=24),
    Column("rule", "RULE", drop=2, most=16),
    Column("token_us", "A TOKEN", right=True),
    Column("gain", "GAIN", right=True),
    Column("moves", "MOVES", right=True, drop=1),
)


class PlacementPane(Pane):
    """Candidates in a table; the one that was opened is compared with the map in force."""

    DEFAULT_CSS = """
    PlacementPane #placement-top { margin-bottom: 1; }
    PlacementPane Horizontal { height: 1fr; }
    PlacementPane RowTable { width: 46; margin-right: 2; }
    PlacementPane #placement-side { width: 1fr; }
    PlacementPane.-one RowTable { width: 1fr; margin-right: 0; }
    PlacementPane.-one #placement-side { display: none; }
    PlacementPane.-one.-side RowTable { display: none; }
    PlacementPane.-one.-side #placement-side { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "dry_run", "dry run"),
        Binding("a", "weigh_all", "compare all"),
    ]
    DEEDS: ClassVar[Sequence[Binding]] = (
        Binding("S", "swap", "swap", key_display="S"),
        Binding("R", "rollback", "roll back", key_display="R"),
        Binding("A", "abort", "abort", key_display="A"),
    )
    HELP: ClassVar[str] = (
        "Enter compares a policy or a map with the map in force: experts, hits and time of each "
        "tier, and what a token's experts would take. The time is modelled: a trace is replayed "
        "with the costs that are named below it. The trace is the one recorded last (k3ctl trace "
        "record live.k3trace), else the newest in the home.\n\n"
        "d shows exactly what a swap would do and does nothing. S swaps to the candidate under the "
        "cursor, R goes back to the map before the last swap, A ends a swap before it is in force; "
        "each shows its k3ctl line first."
    )

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._choices: list[Choice] | None = None
        self._document: Mapping[str, Any] | None = None
        self._compared: dict[str, view.Compared] = {}
        self._refused: dict[str, str] = {}
        self._epoch: int | None = None
        self._open: str | None = None
        self._weighing: list[str] = []
        self._plan: tuple[str, Mapping[str, Any]] | None = None

    def compose(self) -> ComposeResult:
        yield Drawing(self._draw_top, fit=True, id="placement-top")
        with Horizontal():
            yield RowTable(COLUMNS, lambda: self.console.marks, id="placement-choices",
                           nothing="no policies are known")  # fmt: skip
            yield Detail(self._draw_side, id="placement-side")
        yield Drawing(self._draw_deeds, fit=True, id="placement-deeds")

    # What is shown

    def show(self, snapshot: Snapshot) -> None:
        self.shown = snapshot
        self.set_class(not self.wide, "-one")
        frame, live, home = snapshot.frame, self.console.live, self.console.home
        if frame is not None and frame.epoch != self._epoch:
            # What was compared was beside another map.
            self._epoch = frame.epoch
            self._compared, self._refused = {}, {}
        if live is not None:
            self.console.ask("placement", live.placement, self._take, self._no_document)
        if home is not None and self._choices is None:
            self.console.ask("candidates", lambda: choices(home), self._take_choices)
        self._redraw()

    def _take(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._redraw()

    def _no_document(self, _error: K3Error) -> None:
        """The frames say already that nobody answers; what was known last stays."""

    def _take_choices(self, found: list[Choice]) -> None:
        self._choices = found
        self._redraw()

    def _redraw(self) -> None:
        if not self.is_attached:
            return
        for name in ("#placement-top", "#placement-deeds"):
            self.query_one(name, Drawing).redraw()
        self.query_one(RowTable).set_rows(self._row(choice) for choice in self._choices or ())
        self.query_one(Detail).redraw()

    def _row(self, choice: Choice) -> Row:
        compared = self._compared.get(choice.name)
        made = None if compared is None else compared.candidate.prediction
        name = Path(choice.name).name
        moves = None if compared is None else compared.candidate.moves
        if choice.name in self._weighing:
            token = line(quiet("planning"))
        elif choice.name in self._refused or choice.reason is not None:
            token = line(Span("no trace" if choice.traced else "refused", "warn"))
        elif compared is not None and made is None:
            token = line(quiet("unknown"))
        else:
            token = line("-" if made is None else duration_us(made.then.mean_us))
        gain = None if made is None else made.gain
        ink = "good" if gain and gain > 0 else "bad" if gain and gain < 0 else "plain"
        return Row(
            choice.name,
            (
                line(strong(name)),
                line(quiet(choice.rule)),
                token,
                (Span("-" if gain is None else f"{100 * gain:+.1f} %", ink),),
                line(count(moves)),
            ),
            (
                choice.name,
                choice.rule,
                None if made is None else made.then.mean_us,
                gain,
                moves,
            ),
        )

    def _draw_top(self, width: int, _: int) -> Sequence[Line]:
        lines = view.top_lines(self.shown.frame, self._document, self.console.marks, width)
        return lines if self.shown.freshness == "fresh" else [dimmed(each) for each in lines]

    def _draw_deeds(self, width: int, _: int) -> Sequence[Line]:
        """The keys that change something: they are what this pane is for."""
        if not self.console.may_write:
            return []
        name = self._candidate()
        to = "" if name is None else f" to {Path(name).name}"
        keys = (("S", f"swap{to}"), ("R", "roll back"), ("A", "abort"))
        return [line(*(each for key, does in keys for each in
                       (Span(key, "accent"), quiet(f" {does}   "))))]  # fmt: skip

    @on(RowTable.Moved)
    def _moved(self) -> None:
        self.query_one("#placement-deeds", Drawing).redraw()

    def _draw_side(self, width: int, _: int) -> Sequence[Line]:
        marks, name = self.console.marks, self._open
        if self._plan is not None:
            title, made = self._plan
            return view.dry_run_lines(made, title, marks, width)
        if name is None:
            last = view.last_lines(self._document, marks, width)
            return [*last, line(quiet("Enter compares a candidate with the map in force"))]
        if name in self._compared:
            return view.comparison_lines(self._compared[name], marks, width, maps=self.tall)
        words = self._refused.get(name, f"planning {Path(name).name}")
        return view.wrap(words, width, "warn" if name in self._refused else "quiet", indent=2)

    # Comparing

    @on(RowTable.Opened)
    def _opened(self, event: RowTable.Opened) -> None:
        self._show_side(event.row.key)
        self._weigh([event.row.key])

    def _show_side(self, name: str | None) -> None:
        self._open, self._plan = name, None
        self.add_class("-side")
        detail = self.query_one(Detail)
        detail.restart()
        if not self.wide:
            detail.focus()
        self._redraw()

    def action_weigh_all(self) -> None:
        self._weigh([choice.name for choice in self._choices or () if choice.reason is None])

    def _weigh(self, names: Sequence[str]) -> None:
        """Compare those that are not yet, one after the other."""
        waiting = [name for name in names if name not in (*self._compared, *self._weighing)]
        begins = not self._weighing
        self._weighing += waiting
        for name in waiting:
            self._refused.pop(name, None)
        if begins and self._weighing:
            self._weigh_next()
        self._redraw()

    def _weigh_next(self) -> None:
        home = self.console.home
        if not self._weighing or home is None:
            self._weighing = []
            return
        name, live, keep = self._weighing[0], self.console.live, self.console.may_write

        def call() -> view.Compared:
            return _compare(home, name, live, keep=keep)

        def then(found: view.Compared) -> None:
            self._compared[name] = found
            self._weighed(name)

        def failed(error: K3Error) -> None:
            self._refused[name] = f"{error.message}{f'; {error.hint}' if error.hint else ''}"
            self._weighed(name)

        if not self.console.ask("weigh", call, then, failed):
            self.call_later(self._weigh_next)

    def _weighed(self, name: str) -> None:
        self._weighing.remove(name)
        self._redraw()
        self._weigh_next()

    # Changing

    def _candidate(self) -> str | None:
        """The one that is meant: what is opened below 100 columns, else under the cursor."""
        row = self.query_one(RowTable).row
        if not self.wide and self.has_class("-side") and self._open is not None:
            return self._open
        return None if row is None else row.key

    def action_dry_run(self) -> None:
        self._plan_swap(None)

    def action_swap(self) -> None:
        home = self.console.home

        def confirm(made: Mapping[str, Any], argument: str) -> None:
            if home is not None:
                self._carry_out(home, made, argument)

        self._plan_swap(confirm)

    def _plan_swap(self, then: Callable[[Mapping[str, Any], str], None] | None) -> None:
        """Ask the Station what a swap to the candidate would do, show that, and go on."""
        name, home = self._candidate(), self.console.home
        if name is None or home is None or self.console.live is None:
            self.console.say("there is no running Station to ask", "warning")
            return
        traced = any(choice.name == name and choice.traced for choice in self._choices or ())
        compared, keep = self._compared.get(name), self.console.may_write
        kept = name if not traced else None if compared is None else compared.candidate.argument

        def call() -> tuple[Mapping[str, Any], str]:
            argument = kept if kept is not None else _kept_map(home, name, keep=keep)
            body = {"placement": swaps.placement_argument(argument), "dry_run": True,
                    "rate_bytes_s": RATE_BYTES_S}  # fmt: skip
            return swaps.ask_for_swap(home, body), argument

        def show(answer: tuple[Mapping[str, Any], str]) -> None:
            self._show_side(name)
            self._plan = (Path(name).name, answer[0])
            self._redraw()
            if then is not None:
                then(*answer)

        if not self.console.ask("swap-plan", call, show):
            self.console.say("the Station is still planning", "note")

    def _carry_out(self, home: Path, made: Mapping[str, Any], argument: str) -> None:
        if not made["copies"]:
            self.console.say("the map in force places experts so already")
            return
        body = {"placement": swaps.placement_argument(argument), "if_token": made["token"],
                "rate_bytes_s": RATE_BYTES_S}  # fmt: skip

        def call() -> str:
            begun = swaps.ask_for_swap(home, body)
            return f"swap {begun['intent']} to {begun['name']} begins"

        self.console.carry_out(
            Deed(
                title=f"Swap to {Path(argument).name}",
                command=_command(home, "swap", argument, "--if-token", made["token"], "--detach"),
                sentence=view.plan_sentence(made),
                call=call,
                confirm="Swap",
            ),
            self._show_last,
        )

    def action_rollback(self) -> None:
        home = self.console.home
        if home is None or self.console.live is None:
            self.console.say("there is no running Station to ask", "warning")
            return
        body = {"rate_bytes_s": RATE_BYTES_S}

        def confirm(made: Mapping[str, Any]) -> None:
            self._show_side(None)
            self._plan = (f"back to {made['name']}", made)
            self._redraw()
            if not made["copies"]:
                self.console.say("the map in force places experts so already")
                return

            def call() -> str:
                begun = swaps.ask_for_rollback(home, {**body, "if_token": made["token"]})
                return f"swap {begun['intent']} back to {begun['name']} begins"

            self.console.carry_out(
                Deed(
                    title=f"Roll back to the map of {made['name']}",
                    command=_command(home, "rollback", "--if-token", made["token"], "--detach"),
                    sentence=view.plan_sentence(made),
                    call=call,
                    confirm="Roll back",
                ),
                self._show_last,
            )

        self.console.ask(
            "swap-plan", lambda: swaps.ask_for_rollback(home, {**body, "dry_run": True}), confirm
        )

    def action_abort(self) -> None:
        frame, home = self.shown.frame, self.console.home
        swap = None if frame is None else frame.swap
        if swap is None or home is None:
            self.console.say("no swap is under way", "warning")
            return

        def call() -> str:
            done = swaps.ask_for_abort(home)
            return f"swap {done['intent']} {done['state']}"

        self.console.carry_out(
            Deed(
                title=f"Abort the swap to {Path(swap.to).name}",
                command=_command(home, "abort"),
                sentence="The map in force stays; what was copied is dropped.",
                call=call,
                confirm="Abort",
            )
        )

    def _show_last(self) -> None:
        """After a change: the swap above, and how the last one went."""
        self._open, self._plan = None, None
        self._redraw()

    # Keys

    def focus_first(self) -> None:
        inside = self.has_class("-one", "-side")
        self.query_one(Detail if inside else RowTable).focus()

    def back(self) -> bool:
        if self._plan is not None:
            self._plan = None
            self._redraw()
            if self._open in self._compared:
                return True
        if self.has_class("-side"):
            self.remove_class("-side")
            self._open = None
            self.query_one(RowTable).focus()
            self._redraw()
            return True
        return False


def _compare(home: Path, name: str, live: Any, *, keep: bool) -> view.Compared:
    """Weigh a candidate, and its shares of what was used."""
    candidate = weigh(home, name, newest_trace(home, _recorded(live)), keep=keep)
    try:
        placed = map_of_epoch(home, candidate.epoch)
    except NotFound:
        placed = None
    now = then = None
    try:
        document = None if live is None else live.expert_use()
    except K3Error:
        document = None  # then shares are of the trace
    if document is not None:
        uses, tiers = document["uses"], tuple(document["tier_names"])
        now = use_shares(uses, b"".join(map(bytes, document["tiers"])), tiers)
        then = use_shares(uses, candidate.tier_of, candidate.tiers)
    return view.Compared(candidate, placed, now, then if now is not None else None)


def _recorded(live: Any) -> str | None:
    """The trace that the Station recorded last, if it did."""
    try:
        document = None if live is None else live.trace()
    except K3Error:
        return None
    return None if document is None else str(document.get("path"))


def _kept_map(home: Path, name: str, *, keep: bool) -> str:
    """The file of a map that has to be planned first. Raises ConfigError where it is not kept."""
    found = weigh(home, name, newest_trace(home), keep=keep).argument
    if found is None:
        raise ConfigError(
            f"{name} is planned from a trace, and a read-only console keeps no map",
            hint=f"plan it: k3ctl placement plan --policy {name} --trace FILE --out MAP.json",
        )
    return found


def _command(home: Path, *words: str) -> str:
    """The k3ctl line that does the same."""
    flag = () if resolve_home() == home else ("--home", str(home))
    return shlex.join(("k3ctl", "placement", *words, *flag))
