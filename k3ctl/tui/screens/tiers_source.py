"""What the tiers pane asks for: the experts with their uses, of now or of a recorded moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from k3ctl.client.experts import experts_of, map_of_epoch
from k3ctl.client.recorded_use import RecordedUse, recorded_use
from k3ctl.tui.figures import counted
from k3ctl.tui.widgets.expert_map import HeatData
from k3d.errors import K3Error, NotFound
from k3d.placement.placement_map import PlacementMap
from k3d.store.frame import Frame

SINCE_START = "since the Station started (measured)"


@dataclass(frozen=True)
class Told:
    """The experts at the moment `at_ms` of a frame, with the map that they are placed by.

    `reason` is why there are no uses; `counted` says when those that there are were counted. Those
    of a recording hold until `until_ms`.
    """

    data: HeatData
    placed: PlacementMap | None
    at_ms: int
    reason: str | None
    counted: str
    until_ms: int | None = None

    def holds(self, at_ms: int) -> bool:
        return self.until_ms is not None and self.at_ms <= at_ms <= self.until_ms


def question(frame: Frame, live: Any, home: Path | None, before: Told | None) -> Callable[[], Told]:
    """What to run in a thread. `live` is None in a replay; of `before` is kept what still holds."""

    def ask() -> Told:
        placed = None if before is None else before.placed
        if home is not None and (placed is None or placed.epoch != frame.epoch):
            placed = _map_or_none(home, frame.epoch)
        if live is None:
            same = before is not None and before.placed is placed and before.holds(frame.at_ms)
            return before if same and before else _recorded(frame, home, placed, before)
        document, reason = None, None
        try:
            document = live.expert_use()
        except K3Error as error:
            reason = error.message
        data = HeatData.of(experts_of(placed, document, reason), before and before.data)
        return Told(data, placed, frame.at_ms, reason, SINCE_START)

    return ask


def _recorded(
    frame: Frame, home: Path | None, placed: PlacementMap | None, before: Told | None
) -> Told:
    if home is None or placed is None:
        raise NotFound(f"the placement map of epoch {frame.epoch} is not in this home")
    found = recorded_use(home, placed, frame.at_ms)
    data = HeatData.of(found.experts, before and before.data)
    words = _counted(found, frame.at_ms)
    return Told(data, placed, frame.at_ms, found.experts.uses_reason, words, found.until_ms)


def _counted(found: RecordedUse, at_ms: int) -> str:
    if found.rows is None or found.until_ms is None:
        return ""
    until = datetime.fromtimestamp(found.until_ms / 1000).astimezone()
    moment = datetime.fromtimestamp(at_ms / 1000).astimezone()
    day = f"{until:%Y-%m-%d} " if until.date() != moment.date() else ""
    last = "" if found.until_ms >= at_ms else ", the last recorded before"
    return f"by {counted(found.rows, 'token')} up to {day}{until:%H:%M:%S}{last} (measured)"


def _map_or_none(home: Path, epoch: int) -> PlacementMap | None:
    """The map of an epoch, or None where this home has none: then there are no slots to show."""
    try:
        return map_of_epoch(home, epoch)
    except NotFound:
        return None
