"""Lines by time, newest at the end: follows what comes, stays where it is scrolled to otherwise."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from k3ctl.client.journal import Entry, severity_of
from k3ctl.tui.ink import Ink, Line, Span, clean, pad
from k3ctl.tui.themes import cursor_style
from k3ctl.tui.widgets.drawing import strip_of

if TYPE_CHECKING:
    from textual import events

    from k3ctl.tui.filter import Filter
    from k3ctl.tui.marks import Marks

MOST = 5_000
NARROW = 72
WORDS = {"debug": "debug", "info": "info", "warning": "warn", "error": "error", "critical": "crit"}
_INKS: dict[str, Ink] = {"debug": "quiet", "info": "quiet", "warning": "warn"}
_STATES = {"debug": "note", "info": "note", "warning": "warning"}


class LogView(ScrollView, can_focus=True, inherit_bindings=False):
    """Entries of a journal, the newest MOST of them."""

    DEFAULT_CSS = "LogView { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "page down", show=False),
        Binding("home,g", "edge(-1)", "oldest", show=False),
        Binding("end,G", "edge(1)", "newest", show=False),
        Binding("enter", "open", "whole line"),
    ]

    class Opened(Message):
        """Enter, or a click, on an entry."""

        def __init__(self, entry: Entry) -> None:
            super().__init__()
            self.entry = entry

    class Moved(Message):
        """The cursor or what is followed has changed."""

    def __init__(
        self,
        marks: Callable[[], Marks],
        *,
        id: str | None = None,  # noqa: A002 Textual's own name
    ) -> None:
        super().__init__(id=id)
        self.following = True
        self._marks = marks
        self._all: list[Entry] = []
        self._shown: list[Entry] = []
        self._at = 0
        self._filter: Filter | None = None
        self._least = 0
        self._source: str | None = None
        self._until_s: float | None = None
        self._fitted_to = 0

    @property
    def entries(self) -> Sequence[Entry]:
        """What is shown, oldest first."""
        return self._shown

    @property
    def entry(self) -> Entry | None:
        """The one under the cursor."""
        return self._shown[self._at] if self._shown else None

    @property
    def filter(self) -> Filter | None:
        return self._filter

    @property
    def newer(self) -> int:
        """Entries after the one under the cursor."""
        return max(0, len(self._shown) - 1 - self._at)

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add what came. Entries may come a little out of order; they are put in their place."""
        came = False
        for entry in entries:
            came = True
            insort(self._all, entry, key=_when)
        if not came:
            return
        del self._all[: max(0, len(self._all) - MOST)]
        self._choose()

    def narrow(self, kept: Filter | None) -> None:
        """Show only entries with a text that the filter keeps."""
        self._filter = kept
        self._choose()

    def keep(self, *, least: int, source: str | None, until_s: float | None) -> None:
        """Show entries of a severity or worse, of one source or both, up to a moment."""
        if (least, source, until_s) != (self._least, self._source, self._until_s):
            self._least, self._source, self._until_s = least, source, until_s
            self._choose()

    def follow(self, wanted: bool) -> None:
        """Go with what comes, or stay."""
        self.following = wanted
        if wanted:
            self._put(len(self._shown) - 1)
        self.post_message(self.Moved())

    def _choose(self) -> None:
        under = self.entry
        stop = len(self._all)
        if self._until_s is not None:
            stop = bisect_right(self._all, self._until_s, key=_when)
        keeps = None if self._filter is None else self._filter.keeps
        had = bool(self._shown)
        self._shown = [
            entry
            for entry in self._all[:stop]
            if severity_of(entry.level) >= self._least
            and (self._source is None or entry.source == self._source)
            and (keeps is None or keeps(entry.text))
        ]
        if had != bool(self._shown):
            self.refresh_bindings()
        self._lay_out()
        if self.following or under is None:
            self._at = max(0, len(self._shown) - 1)
        else:
            at = bisect_right(self._shown, under.at_s, key=_when) - 1
            same = next((i for i in range(at, -1, -1) if self._shown[i] is under), at)
            self._at = max(0, same)
        self._keep_in_view()
        self.refresh()
        self.post_message(self.Moved())

    def _lay_out(self) -> None:
        size = Size(self.size.width, len(self._shown))
        if size != self.virtual_size:
            self.virtual_size = size

    def on_resize(self, _: events.Resize) -> None:
        self._lay_out()
        self._keep_in_view()
        self.refresh()

    # Moving

    def _put(self, at: int) -> None:
        if not self._shown:
            return
        before, self._at = self._at, max(0, min(at, len(self._shown) - 1))
        top = round(self.scroll_offset.y)
        for number in (before, self._at):
            if 0 <= number - top < self.size.height:
                self.refresh(Region(0, number - top, self.size.width, 1))
        self._keep_in_view()
        self.post_message(self.Moved())

    def _keep_in_view(self) -> None:
        top, height = round(self.scroll_offset.y), self.size.height
        if height <= 0:
            return
        if self._at < top:
            self.scroll_to(y=self._at, animate=False)
        elif self._at >= top + height:
            self.scroll_to(y=self._at - height + 1, animate=False)

    def action_move(self, by: int) -> None:
        self.following = self.following and by > 0 and self.newer <= 1
        self._put(self._at + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def action_edge(self, side: int) -> None:
        self.following = side > 0
        self._put(0 if side < 0 else len(self._shown) - 1)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter is there while there is something to open."""
        return action != "open" or bool(self._shown)

    def action_open(self) -> None:
        if self.entry is not None:
            self.post_message(self.Opened(self.entry))

    def on_click(self, event: events.Click) -> None:
        at = event.y + round(self.scroll_offset.y)
        if at >= len(self._shown):
            return
        if at == self._at:
            self.action_open()
        self.following = False
        self._put(at)

    # Painting

    def render_lines(self, crop: Region) -> list[Strip]:
        if self.size.height != self._fitted_to:
            # A first size may come without an event.
            self._fitted_to = self.size.height
            self.call_later(self._keep_in_view)
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        at = y + round(self.scroll_offset.y)
        if at >= len(self._shown):
            said = y == 1 and not self._shown
            spans = (Span(f"  {self._nothing()}", "quiet"),) if said else ()
            return strip_of(spans, width, base, self.app.theme)
        under = at == self._at
        style = base + cursor_style(self.app.theme, focused=self.has_focus) if under else base
        return strip_of(self._line(self._shown[at], under, width), width, style, self.app.theme)

    def _nothing(self) -> str:
        if self._filter is not None and self._all:
            return f"nothing matches {self._filter.text!r}; Esc clears the filter"
        return "nothing of this kind yet" if self._all else "no events and no logs yet"

    def _line(self, entry: Entry, under: bool, width: int) -> Line:
        marks = self._marks()
        ink = _INKS.get(entry.level, "bad")
        glyph = marks.states[_STATES.get(entry.level, "alert")]
        time = datetime.fromtimestamp(entry.at_s).astimezone()
        clock = f"{time:%H:%M:%S}" if width < NARROW else f"{time:%H:%M:%S.%f}"[:-3]
        extra = "".join(f" {key}={value}" for key, value in entry.fields.items())
        return (
            Span(f"{marks.cursor} " if under else "  ", "accent"),
            Span(f"{clock} ", "quiet"),
            *pad((Span(f"{glyph} {WORDS.get(entry.level, entry.level)}", ink),), 7),
            Span(" "),
            *pad((Span(clean(entry.node)),), 9 if width >= NARROW else 7, mark=marks.more),
            Span(" "),
            *((Span(f"{clean(entry.kind)} ", "accent"),) if entry.kind else ()),
            Span(clean(entry.message), "plain" if entry.level in _INKS else ink),
            Span(clean(extra), "quiet"),
        )


def _when(entry: Entry) -> float:
    return entry.at_s
