"""Alerts: the alert policy held against the newest frame and against drift, in a thread of its own.

An alert that is raised or cleared is an event in state.db. What stands is the attention list that
the next frame carries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from k3d.errors import K3Error
from k3d.placement.alert_policy import AlertPolicy
from k3d.placement.alert_readings import readings
from k3d.placement.alert_states import AlertStates, Change
from k3d.placement.drift import Drift, find_drift
from k3d.placement.placement_map import PlacementMap
from k3d.placement.population import Population, planned_from
from k3d.station.beat import Beat
from k3d.station.drift_marks import UseMarks
from k3d.store.frame import Attention, Frame
from k3d.store.state import StateStore

KIND = "alert"
DRAWS = 4
"""Pairs of samples that say what is noise: few, since they share this process with the engine."""

log = logging.getLogger(__name__)


class Alerts:
    """`frame` gives the newest one, None before any; `in_force` the map served by; `more` what
    others want an operator to see beside the policy's own alerts."""

    def __init__(
        self,
        policy: AlertPolicy,
        store: StateStore,
        marks: UseMarks,
        in_force: Callable[[], PlacementMap],
        frame: Callable[[], Frame | None],
        more: Callable[[], tuple[Attention, ...]] = tuple,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.policy = policy
        self.marks = marks
        self._store = store
        self._in_force = in_force
        self._frame = frame
        self._more = more
        self._clock = clock
        self._states = AlertStates()
        self._drift: Drift | None = None
        self._drift_s = clock()
        self._expected: tuple[PlacementMap, Population | None] | None = None
        self._beat = Beat("alerts", policy.every_s, self.step)

    def start(self) -> None:
        self._beat.start()

    def close(self) -> None:
        self._beat.close()

    def current(self) -> tuple[Attention, ...]:
        """What an operator should look at now, gravest first. Any thread, and cheap."""
        own = tuple(
            Attention(
                severity=reading.rule.severity,
                subject=reading.subject,
                sentence=reading.sentence,
                command=reading.command,
            )
            for reading in self._states.raised
            if reading.watch != "node-down"  # a frame lists the nodes that are down itself
        )
        order = ("alert", "warning", "note")
        return tuple(sorted((*self._more(), *own), key=lambda each: order.index(each.severity)))

    @property
    def drift(self) -> Drift | None:
        """What the last look for drift found."""
        return self._drift

    def seen(self, time_s: float | None) -> tuple[float, Population]:
        """Seconds looked back, and what was chosen in them under the map in force now, however
        lately it came."""
        self.marks.tick(self._in_force().epoch)
        return self.marks.since(time_s)

    def step(self) -> None:
        """Hold every rule against what is known now."""
        now_s, placed = self._clock(), self._in_force()
        self.marks.tick(placed.epoch)
        if now_s - self._drift_s >= self.policy.drift.every_s:
            self._drift_s = now_s
            self._drift = self._look_for_drift(placed)
        for change in self._states.step(now_s, readings(self.policy, self._frame(), self._drift)):
            self._record(change)

    def _look_for_drift(self, placed: PlacementMap) -> Drift | None:
        if self._expected is None or self._expected[0] is not placed:
            self._expected = (placed, planned_from(placed))
        expected = self._expected[1]
        if expected is None:
            return None
        table = self.policy.drift
        _, seen = self.marks.since(table.window_s)
        try:
            return find_drift(placed, expected, seen, limits=table.limits, draws=DRAWS)
        except K3Error as error:
            log.error("drift cannot be looked for: %s", error)
            return None

    def _record(self, change: Change) -> None:
        reading = change.reading
        over = "" if change.raised else "over: "
        self._store.record_event(
            KIND,
            over + reading.sentence,
            node=reading.subject if reading.watch in ("node-down", "temperature", "disk") else None,
            detail={
                "watch": reading.watch,
                "subject": reading.subject,
                "severity": reading.rule.severity,
                "raised": change.raised,
                "command": reading.command,
            },
        )
