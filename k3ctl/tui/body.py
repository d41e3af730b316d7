"""The middle of the console: panes that were opened, one of them in front, each with its filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.containers import Container
from textual.css.query import NoMatches
from textual.widget import Widget

from k3ctl.tui.around import Banner, Foot, Tabs
from k3ctl.tui.filter import parse_filter
from k3ctl.tui.pane import Console, Pane, PaneSpec
from k3ctl.tui.widgets.prompt import Prompt
from k3d.errors import K3Error


class Body(Container):
    """Opens panes when they are first wanted, and keeps them; `opened` are those that may draw."""

    DEFAULT_CSS = """
    Body { height: 1fr; padding: 1 0 0 0; }
    Screen.-low Body { padding: 0; }
    """
    SCOPED_CSS: ClassVar[bool] = False

    def __init__(
        self,
        console: Console,
        panes: Sequence[PaneSpec],
        *,
        prompt: Prompt,
        tabs: Tabs,
        banner: Banner,
        foot: Foot,
    ) -> None:
        super().__init__(id="body")
        self.front_name = tabs.current
        self.opened: set[str] = set()
        self._of = console
        self._panes = panes
        self._prompt = prompt
        self._tabs = tabs
        self._banner = banner
        self._foot = foot
        self._mounting: set[str] = set()
        self._then: Callable[[Pane], bool] | None = None
        self._from: str | None = None
        self._kept: dict[str, str] = {}

    # Panes

    @property
    def front(self) -> Pane | None:
        """The pane in front; None until it is there."""
        try:
            return self.query_one(f"#pane-{self.front_name}", Pane)
        except NoMatches:
            return None

    @property
    def front_spec(self) -> PaneSpec:
        return next(pane for pane in self._panes if pane.name == self.front_name)

    def show(self) -> None:
        """Let the pane in front draw the snapshot, once all of it is there."""
        pane = self.front
        if pane is not None and self.front_name in self.opened:
            pane.show(self._of.snapshot)

    def bring(self, name: str) -> None:
        """Bring a pane to the front; the first time, make it. Esc does not lead back from it."""
        self._from = self._then = None
        spec = next(pane for pane in self._panes if pane.name == name)
        before = self.front
        self.front_name = self._tabs.current = name
        pane = self.front
        with self.app.batch_update():
            if before is not None and before is not pane:
                before.display = False
            if pane is not None:
                pane.display = True
                if name in self.opened:
                    self._came(pane)
            elif name not in self._mounting:
                self._mounting.add(name)
                # In the console's own queue, so that keys typed meanwhile wait for the pane.
                self.app.call_next(self._mount_pane, spec)
            self._tabs.redraw()
            self._banner.redraw()

    async def _mount_pane(self, spec: PaneSpec) -> None:
        """Make a pane; it is opened when all that is in it is there."""
        pane = spec.make()
        if self._of.may_write:
            pane.arm(spec.deeds)
        await self.mount(pane)
        self.opened.add(spec.name)
        pane.display = spec.name == self.front_name
        self._came(pane)

    def _came(self, pane: Pane) -> None:
        if pane is not self.front:
            return
        pane.show(self._of.snapshot)
        self.narrow(self.filter_text)
        self._foot.redraw()
        if not self._prompt.is_open:
            pane.focus_first()
        then, self._then = self._then, None
        if then is not None:
            then(pane)

    def focus_again(self, widget: Widget | None) -> None:
        """Give the focus back to what had it; where that is not in front any more, to the pane."""
        front = self.front
        if front is None:
            return
        inside = widget is not None and widget.is_attached and front in widget.ancestors_with_self
        if widget is not None and inside and widget.is_on_screen:
            widget.focus()
        else:
            front.focus_first()

    def go_to(self, kind: str, name: str) -> bool:
        """Open the pane that shows a place; one that is not there yet goes when it is. False when
        there is no such place, which is said."""
        if kind == "pane":
            self.bring(name)
            return True
        spec = next((pane for pane in self._panes if kind in pane.places), None)
        if spec is None:
            self._of.say(f"no pane shows a {kind}", "warning")
            return False
        return self._visit(spec.name, lambda pane: self._go(pane, kind, name))

    def do(self, name: str, action: str) -> None:
        """What a key of a pane does, in that pane, from wherever one is."""

        def act(pane: Pane) -> bool:
            getattr(pane, f"action_{action}")()
            return True

        self._visit(name, act)

    def _visit(self, name: str, then: Callable[[Pane], bool]) -> bool:
        """Bring a pane to the front and do something there once it is; Esc leads back. What came of
        it, True while that is not known."""
        came_from = self.front_name
        if name != came_from:
            self.bring(name)
            self._from = came_from
        if self.front is not None and name in self.opened:
            return then(self.front)
        self._then = then
        return True

    def _go(self, pane: Pane, kind: str, name: str) -> bool:
        found = pane.go(kind, name)
        if not found:
            self._of.say(pane.lacks(kind, name), "warning")
        return found

    # Filters

    @property
    def filter_text(self) -> str:
        """What the pane in front is filtered by; empty for all."""
        return self._kept.get(self.front_name, "")

    def narrow(self, text: str, *, quiet: bool = False) -> None:
        """Let the pane in front show what a filter keeps. What is no filter is said, unless
        `quiet`: while it is typed."""
        try:
            found = parse_filter(text)
        except K3Error as error:
            if not quiet:
                self._of.say(str(error), "alert")
            return
        self._kept[self.front_name] = text.strip()
        if self.front is not None:
            self.front.narrow(found)
        self._banner.redraw()

    def filter_words(self) -> str | None:
        """The filter of the pane in front, and how many rows it leaves."""
        if not self.filter_text:
            return None
        table = None if self.front is None else self.front.table()
        count = "" if table is None else f" ({len(table.rows)} shown, {table.hidden_count} not)"
        return f"filter {self.filter_text}{count}"

    def leave(self) -> None:
        """What Esc does: out of a detail, else the filter goes, else back to the pane that led
        here."""
        if self.front is not None and self.front.back():
            return
        if self.filter_text:
            self.narrow("")
        elif self._from is not None:
            self.bring(self._from)
