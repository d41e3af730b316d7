"""What the command palette (ctrl+p) offers: actions, panes and what they change, themes, places."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from k3ctl.tui.goto import places
from k3ctl.tui.panes_list import PANES
from k3ctl.tui.themes import THEMES

if TYPE_CHECKING:
    from k3ctl.tui.app import ConsoleApp


class Offer(NamedTuple):
    """One entry."""

    title: str
    help: str
    run: Callable[[], object]


class ConsoleCommands(Provider):
    """Everything the console can do by name."""

    @property
    def _console(self) -> ConsoleApp:
        return cast("ConsoleApp", self.app)

    async def discover(self) -> Hits:
        for offer in [*self._actions(), *self._panes(), *self._deeds(), *self._themes()]:
            yield DiscoveryHit(offer.title, offer.run, help=offer.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        offers = [*self._actions(), *self._panes(), *self._deeds(), *self._themes()]
        for offer in [*offers, *self._places()]:
            score = matcher.match(offer.title)
            if score > 0:
                title = matcher.highlight(offer.title)
                yield Hit(score, title, offer.run, text=offer.title, help=offer.help)

    def _panes(self) -> Iterable[Offer]:
        for pane in PANES:
            run = partial(self._console.action_pane, pane.name)
            yield Offer(f"Open {pane.title}", f"{pane.summary} Key {pane.key}.", run)

    def _deeds(self) -> Iterable[Offer]:
        """What changes the pod; where that is not allowed, it says why."""
        for pane in PANES:
            for deed in pane.deeds:
                run = partial(self._console.do_deed, pane.name, deed.action)
                yield Offer(deed.tooltip, f"In {pane.title}. Key {deed.key}.", run)

    def _actions(self) -> Iterable[Offer]:
        for words, action in self._console.commands():
            yield Offer(words, "", partial(self._console.run_action, action))

    def _themes(self) -> Iterable[Offer]:
        for theme in THEMES:
            yield Offer(f"Theme {theme}", "", partial(self._console.action_theme, theme))

    def _places(self) -> Iterable[Offer]:
        for place in places(self._console.snapshot, ()):
            run = partial(self._console.go_to, place.kind, place.name)
            yield Offer(f"Go to {place.words}", "", run)
