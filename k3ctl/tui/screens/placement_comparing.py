"""Comparing candidates with the map in force, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from k3ctl.client.candidates import newest_trace, use_shares, weigh
from k3ctl.client.experts import map_of_epoch
from k3ctl.tui.pane import Pane
from k3ctl.tui.screens.placement_view import Compared
from k3d.errors import K3Error, NotFound


class Comparing:
    """What was compared or refused, by the candidate's name, and what waits to be."""

    def __init__(self, pane: Pane, changed: Callable[[], None]) -> None:
        self.compared: dict[str, Compared] = {}
        self.refused: dict[str, str] = {}
        self.waiting: list[str] = []
        self.epoch: int | None = None
        self._pane = pane
        self._changed = changed

    def beside(self, epoch: int) -> None:
        """The epoch in force: what was compared with another map is forgotten."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.compared, self.refused = {}, {}

    def begin(self, names: Sequence[str]) -> None:
        """Compare those that are not yet."""
        wanted = [name for name in names if name not in (*self.compared, *self.waiting)]
        begins = not self.waiting
        self.waiting += wanted
        for name in wanted:
            self.refused.pop(name, None)
        if begins and self.waiting:
            self._next()
        self._changed()

    def _next(self) -> None:
        console = self._pane.console
        home, live, keep = console.home, console.live, console.may_write
        if not self.waiting or home is None:
            self.waiting = []
            return
        name = self.waiting[0]

        def call() -> Compared:
            return compare(home, name, live, keep=keep)

        def then(found: Compared) -> None:
            self.compared[name] = found
            self._ended(name)

        def failed(error: K3Error) -> None:
            self.refused[name] = f"{error.message}{f'; {error.hint}' if error.hint else ''}"
            self._ended(name)

        if not console.ask("weigh", call, then, failed):
            self._pane.call_later(self._next)

    def _ended(self, name: str) -> None:
        self.waiting.remove(name)
        self._changed()
        self._next()


def compare(home: Path, name: str, live: Any, *, keep: bool) -> Compared:
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
    return Compared(candidate, placed, now, then if now is not None else None)


def _recorded(live: Any) -> str | None:
    """The trace that the Station recorded last, if it did."""
    try:
        document = None if live is None else live.trace()
    except K3Error:
        return None
    return None if document is None else str(document.get("path"))
