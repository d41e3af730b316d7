"""Alerts over time: raised once, cleared once, whatever a reading does in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from k3d.placement.alert_policy import AnyRule
from k3d.placement.alert_readings import Reading


@dataclass(frozen=True)
class Change:
    """An alert that was raised or cleared just now."""

    reading: Reading
    raised: bool


@dataclass
class _Standing:
    """One rule about one subject. `since_s` is when the newest run of bad, or while it is raised
    of good, readings began; None without such a run."""

    reading: Reading
    raised: bool = False
    since_s: float | None = None


class AlertStates:
    """All rules of one policy. One thread steps, any may read `raised`."""

    def __init__(self) -> None:
        self._standings: dict[tuple[AnyRule, str], _Standing] = {}
        self._raised: tuple[Reading, ...] = ()

    @property
    def raised(self) -> tuple[Reading, ...]:
        """Of the alerts that stand, gravest first, in the order in which they were raised."""
        return self._raised

    def step(self, now_s: float, found: Sequence[Reading]) -> list[Change]:
        """Take readings; what they raise or clear. A subject that is not read stays as it is."""
        changes: list[Change] = []
        for reading in found:
            key = (reading.rule, reading.subject)
            standing = self._standings.setdefault(key, _Standing(reading))
            change = _step(standing, reading, now_s)
            if change is not None:
                changes.append(change)
                if change.raised:  # behind those that stand
                    self._standings[key] = self._standings.pop(key)
        order = ("alert", "warning", "note")
        standing = (each.reading for each in self._standings.values() if each.raised)
        self._raised = tuple(sorted(standing, key=lambda each: order.index(each.rule.severity)))
        return changes


def _step(standing: _Standing, reading: Reading, now_s: float) -> Change | None:
    rule, towards = reading.rule, reading.good if standing.raised else reading.bad
    if reading.bad or not standing.raised:
        standing.reading = reading  # the sentence of what is wrong, not of how it ends
    if not towards:
        standing.since_s = None
        return None
    if standing.since_s is None:
        standing.since_s = now_s
    if now_s - standing.since_s < (rule.clear_s if standing.raised else rule.for_s):
        return None
    standing.raised, standing.since_s = not standing.raised, None
    return Change(standing.reading, standing.raised)
