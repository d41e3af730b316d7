"""The events pane: what happened and what the daemons say, in one order of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher

from k3ctl.cli.table import count
from k3ctl.client.daemon_log import LEVELS
from k3ctl.client.journal import Entry, Journal
from k3ctl.tui.figures import counted
from k3ctl.tui.filter import Filter
from k3ctl.tui.ink import Line, Span, line, quiet, spread, strong, wrap
from k3ctl.tui.pane import Chosen, Pane, Sheet
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.widgets.detail import Detail
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.log_view import LogView
from k3d.errors import K3Error

SOURCES = (None, "event", "log")
_SOURCE_WORDS = {None: "events and logs", "event": "events only", "log": "logs only"}


class EventsPane(Pane):
    """A journal that is followed, narrowed by level, source and filter; Enter shows all of one."""

    DEFAULT_CSS = "EventsPane ContentSwitcher { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "follow"),
        Binding("v", "level", "level"),
        Binding("e", "source", "events, logs"),
    ]
    HELP: ClassVar[str] = (
        "Events are rows of state.db, by kind; the rest are lines of the daemons' logs in run/. "
        "f follows what comes or stays, as does moving up; v keeps warnings or errors only, e "
        "events or logs only, / what matches. Enter shows a line with all its fields. In a replay "
        "it ends at the moment that is shown."
    )

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._journal: Journal | None = None
        self._failed: str | None = None
        self._level = 0
        self._source: str | None = None
        self._opened: Entry | None = None

    def compose(self) -> ComposeResult:
        yield Drawing(self._draw_head, fit=True, id="events-head")
        with ContentSwitcher(initial="events-log"):
            yield LogView(lambda: self.console.marks, id="events-log")
            yield Detail(self._draw_detail, id="events-detail")

    @property
    def _view(self) -> LogView:
        return self.query_one(LogView)

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        home = self.console.home
        if home is None:
            self._failed = "these frames have no home, so no logs"
        else:
            journal = self._journal = self._journal or Journal(home)
            self.console.ask("journal", journal.read, self._take, self._fail)
        self._keep()
        self.query_one("#events-head", Drawing).redraw()

    def _take(self, entries: Sequence[Entry]) -> None:
        self._failed = None
        self._view.extend(entries)

    def _fail(self, error: K3Error) -> None:
        self._failed = error.message
        self.query_one("#events-head", Drawing).redraw()

    def _keep(self) -> None:
        frame = self.shown.frame
        replayed = self.shown.source == "replay" and frame is not None
        until_s = frame.at_ms / 1000 if replayed and frame is not None else None
        self._view.keep(least=self._level, source=self._source, until_s=until_s)

    @on(LogView.Moved)
    def _moved(self) -> None:
        self.query_one("#events-head", Drawing).redraw()

    def _draw_head(self, width: int, _: int) -> Sequence[Line]:
        view = self._view
        kept = _SOURCE_WORDS[self._source]
        if self._level:
            kept += f", {LEVELS[self._level]} or worse"
        left = line(strong(counted(len(view.entries), "line")), quiet(f"  {kept}"))
        if self._failed is not None:
            left = line(left, Span(f"  {self._failed}", "bad"))
        if view.following:
            right = line(Span("following", "good"))
        else:
            right = line(Span("staying", "warn"), quiet(f", {count(view.newer)} newer"))
        return [spread(left, right, width, self.console.marks.more)]

    # One entry

    @on(LogView.Opened)
    def _open(self, event: LogView.Opened) -> None:
        self._opened = event.entry
        self.query_one(ContentSwitcher).current = "events-detail"
        detail = self.query_one(Detail)
        detail.restart()
        detail.focus()

    def _draw_detail(self, width: int, _: int) -> Sequence[Line]:
        if self._opened is None:
            return []
        first, *rest = self._opened.lines()
        lines = wrap(first, width, "strong")
        for text in rest:
            indent = len(text) - len(text.lstrip())
            lines += wrap(text, width, indent=indent + 2) or [()]
        return lines

    # Keys

    def action_follow(self) -> None:
        self._view.follow(not self._view.following)

    def action_level(self) -> None:
        """The next of: everything, info, warnings, errors."""
        self._level = (self._level + 1) % LEVELS.index("critical")
        self._keep()

    def action_source(self) -> None:
        self._source = SOURCES[(SOURCES.index(self._source) + 1) % len(SOURCES)]
        self._keep()

    def back(self) -> bool:
        if self.query_one(ContentSwitcher).current == "events-detail":
            self.query_one(ContentSwitcher).current = "events-log"
            self._opened = None
            self._view.focus()
            return True
        return False

    def narrow(self, kept: Filter | None) -> None:
        self._view.narrow(kept)

    def chosen(self) -> Chosen | None:
        entry = self._view.entry
        return None if entry is None else Chosen(entry.message, entry.record())

    def sheet(self) -> Sheet | None:
        entries = self._view.entries
        columns = ("at", "source", "level", "node", "kind", "message", "fields")
        rows = tuple(tuple(entry.record()[name] for name in columns) for entry in entries)
        return Sheet("events", columns, rows)

    def focus_first(self) -> None:
        # The first time, what is in front is only settled with the next refresh.
        view = self._view if self._opened is None else self.query_one(Detail)
        self.call_after_refresh(view.focus)
