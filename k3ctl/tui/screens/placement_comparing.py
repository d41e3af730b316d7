"""Comparing candidates with the map in force, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3ctl.client.candidates import TRACE_SUFFIXES, newest_trace, use_shares, weigh
from k3ctl.client.experts import map_of_epoch
from k3ctl.tui.pane import Pane
from k3ctl.tui.screens.placement_view import Compared
from k3d.errors import K3Error, NotFound

RECORD = "record one: k3ctl trace record live.k3trace"


@dataclass(frozen=True)
class Outcome:
    """What came of comparing one: it, or why not. `no_trace` says what was looked for where a trace
    is what was lacking."""

    compared: Compared | None
    refused: str | None = None
    no_trace: str | None = None


class Comparing:
    """What was compared or refused, by the candidate's name, and what waits to be. `no_trace` says
    of the last one why it lacks a figure."""

    def __init__(self, pane: Pane, changed: Callable[[], None]) -> None:
        self.compared: dict[str, Compared] = {}
        self.refused: dict[str, str] = {}
        self.waiting: list[str] = []
        self.no_trace: str | None = None
        self.epoch: int | None = None
        self._pane = pane
        self._changed = changed

    def beside(self, epoch: int) -> None:
        """The epoch in force: what was compared with another map is forgotten."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.compared, self.refused, self.no_trace = {}, {}, None

    def begin(self, names: Sequence[str]) -> None:
        """Compare those that were not yet, or without a trace: there may be one now."""
        wanted = [name for name in names if name not in self.waiting and not self._predicted(name)]
        begins = not self.waiting
        if begins:
            self.no_trace = None
        self.waiting += wanted
        for name in wanted:
            self.refused.pop(name, None)
        if begins and self.waiting:
            self._next()
        self._changed()

    def _predicted(self, name: str) -> bool:
        compared = self.compared.get(name)
        return compared is not None and compared.candidate.prediction is not None

    def _next(self) -> None:
        console = self._pane.console
        home, live, keep = console.home, console.live, console.may_write
        if not self.waiting or home is None:
            self.waiting = []
            return
        name = self.waiting[0]

        def failed(error: K3Error) -> None:
            self._take(name, Outcome(None, _words(error)))

        if not console.ask(
            "weigh",
            lambda: outcome(home, name, live, keep=keep),
            lambda found: self._take(name, found),
            failed,
        ):
            self._pane.call_later(self._next)

    def _take(self, name: str, found: Outcome) -> None:
        if found.compared is not None:
            self.compared[name] = found.compared
        if found.refused is not None:
            self.refused[name] = found.refused
        self.no_trace = found.no_trace or self.no_trace
        self.waiting.remove(name)
        self._changed()
        self._next()


def outcome(home: Path, name: str, live: Any, *, keep: bool) -> Outcome:
    """Compare one; a refusal is an outcome too."""
    recorded = _recorded(live)
    trace = newest_trace(home, recorded)
    missing = _no_trace(home, recorded) if trace is None else None
    try:
        found = compare(home, name, trace, live, keep=keep)
    except K3Error as error:
        return Outcome(None, _words(error), missing)
    return Outcome(found, None, missing if found.candidate.prediction is None else None)


def _no_trace(home: Path, recorded: str | None) -> str:
    """Which files were looked for in vain."""
    names = " or ".join(f"*{suffix}" for suffix in TRACE_SUFFIXES)
    own = "the Station recorded none" if recorded is None else f"its last one, {recorded}, is gone"
    return f"no trace: no {names} in {home}, and {own}; {RECORD}"


def _words(error: K3Error) -> str:
    return f"{error.message}{f'; {error.hint}' if error.hint else ''}"


def compare(home: Path, name: str, trace: Path | None, live: Any, *, keep: bool) -> Compared:
    """Weigh a candidate, and its shares of what was used."""
    candidate = weigh(home, name, trace, keep=keep)
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
    path = None if document is None else document.get("path")
    return None if path is None else str(path)
