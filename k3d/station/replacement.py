"""Re-placement: what a pod does when a spark is lost, and when it is back.

A pass needs every spark that holds slices, so one that is lost stops them all. The pod waits for
it, or, as its description says or an operator asks, places the experts on the sparks in spare slots
of the Station's tiers: a swap like any other, which reads them from the Station's bank. Where those
do not suffice, fewer of the sparks that are left are filled with larger slices. A re-placement
gives way to no other swap. When all sparks are back the experts return.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

from k3d.errors import K3Error, Locked, NotFound, PlanStale, Refused
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER
from k3d.placement.pod import Replacement as Policy
from k3d.placement.replacement import SlotsShort, shortage, without_sparks
from k3d.placement.slicing import Slicing, over_fewer, slicing_of
from k3d.station.assembly import Station
from k3d.station.beat import Beat
from k3d.station.replacement_standing import Standing, State, places, sentence_of
from k3d.station.swap_document import plan_traffic
from k3d.station.swap_reconciler import SwapReconciler
from k3d.store.frame import Attention
from k3d.store.records import Intent
from k3d.store.state import StateStore

GONE = ("lost", "refused")
DOWN = (*GONE, "connecting")
START_S = 5.0
"""A spark that has not been there yet since the Station started is missed after this."""
LOOK_S = 0.2
RETRY_S = 5.0
RATE_BYTES_S = 2**33
"""Nothing else can be served meanwhile."""
KIND = "replacement"

log = logging.getLogger(__name__)


class Replacement:
    """Watches the links in a thread of its own. Any thread may ask."""

    def __init__(
        self,
        station: Station,
        reconciler: SwapReconciler,
        store: StateStore,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._station = station
        self._reconciler = reconciler
        self._store = store
        self._clock = clock
        self._policy: Policy = station.pod.replacement
        self._began_s = clock()
        self._down_s: float | None = None  # since when a spark is down
        self._up_s: float | None = None  # since when all are ready
        self._retry_s = 0.0
        self._known: tuple[int, str | None] | None = None
        self._placed: Intent | None = None  # the re-placement that is in force
        self._told: set[str] = set()
        self._standing: Standing | None = None
        self._beat = Beat("re-placement", LOOK_S, self.step)

    def start(self) -> None:
        self._beat.start()

    def close(self) -> None:
        self._beat.close()

    @property
    def standing(self) -> Standing | None:
        """None while no spark is missed."""
        return self._standing

    def attention(self) -> tuple[Attention, ...]:
        standing = self._standing
        return () if standing is None else (standing.attention(self._station.pod.name),)

    def wanted(self) -> tuple[str, PlacementMap, dict[str, Any]]:
        """For an operator: the re-placement's name, its map and what its intent is to say.

        Raises NotFound while no spark is missed, SlotsShort with what is missing.
        """
        serving = self._station.in_force.slicing.sparks
        lost = tuple(name for name in self._lost() if name in serving)
        if not (lost and self._on_sparks):
            raise NotFound(
                "no spark that holds experts is lost: nothing is to be placed anew",
                hint="see: k3ctl pod status",
            )
        wanted, extra = self._without(lost)
        return _name(lost, extra), wanted, extra

    def step(self) -> None:
        """Look at the links, and do what the policy says."""
        now_s, ready = self._clock(), self._station.membership.ready()
        lost = self._lost(DOWN if now_s - self._began_s >= START_S else GONE)
        missed = tuple(name for name in lost if name in self._station.in_force.slicing.sparks)
        self._down_s = (self._down_s or now_s) if missed else None
        self._up_s = (self._up_s or now_s) if ready else None
        under_way = self._reconciler.under_way
        self._know_the_map(under_way)
        if under_way is not None and "without" in under_way.plan:
            if ready:
                self._abandon(under_way)
            else:
                self._stand("placing", tuple(under_way.plan["without"]), intent=under_way.id)
        elif missed and self._on_sparks:
            self._wait_or_place(now_s, missed)
        elif under_way is not None and "back" in under_way.plan and not lost:
            self._stand("returning", tuple(under_way.plan["back"]), intent=under_way.id)
        elif self._placed is not None:
            self._stay_or_return(now_s, lost)
        else:
            self._standing = None
            self._told.clear()

    @property
    def _on_sparks(self) -> int:
        return self._station.placement.counts.get(SPARK_TIER, 0)

    def _lost(self, states: tuple[str, ...] = DOWN) -> tuple[str, ...]:
        links = self._station.membership.states()
        return tuple(link.node for link in links if link.state in states)

    def _fewer(self, lost: tuple[str, ...]) -> Slicing | None:
        """The slicing over sparks that are left, if it takes them. Raises SlotsShort when neither
        they nor the Station's tiers suffice."""
        station = self._station
        now, slots = station.placement, station.slots
        if shortage(now, slots, lost) is None:
            return None
        links = station.membership.states()
        fewer = over_fewer(station.pod, [link.node for link in links if link.state == "ready"])
        short = shortage(now, slots, lost, fewer)
        if short is not None:
            raise short
        return fewer

    def _without(self, lost: tuple[str, ...]) -> tuple[PlacementMap, dict[str, Any]]:
        """The map, and what its intent is to say."""
        station, fewer = self._station, self._fewer(lost)
        chosen = station.use.snapshot().ravel().tolist()
        wanted = without_sparks(station.placement, station.slots, lost, chosen, fewer)
        placed = self._placed
        before = station.placement.epoch if placed is None else placed.plan["before"]
        extra: dict[str, Any] = {"without": list(lost), "before": before}
        if fewer is not None:
            extra["sparks"] = list(fewer.sparks)
        return wanted, extra

    def _know_the_map(self, under_way: Intent | None) -> None:
        """Whether the map in force is that of a re-placement; asked of state.db when an epoch or a
        swap has come to an end."""
        now = (self._station.placement.epoch, under_way.id if under_way is not None else None)
        if now != self._known:
            done = self._reconciler.swaps.last_done()
            station = self._station
            without = not self._on_sparks or station.in_force.slicing != slicing_of(station.pod)
            ours = done is not None and "without" in done.plan and without
            self._placed, self._known = (done if ours else None), now

    def _wait_or_place(self, now_s: float, lost: tuple[str, ...]) -> None:
        after_s, down_s = self._policy.after_s, self._down_s
        assert down_s is not None
        try:
            self._fewer(lost)
        except SlotsShort as short:
            self._stand("short", lost, short.message, "k3ctl pod up")
            return
        if after_s is None or now_s < max(down_s + after_s, self._retry_s):
            self._stand("waiting", lost, None, "k3ctl placement replace")
            return
        self._retry_s = now_s + RETRY_S
        self._reconciler.give_way(f"a swap was given up: {' and '.join(lost)} is lost")
        wanted, extra = self._without(lost)
        intent = self._begin(_name(lost, extra), wanted, extra)
        if intent is not None:
            self._stand("placing", lost, intent=intent.id)

    def _stay_or_return(self, now_s: float, lost: tuple[str, ...]) -> None:
        placed, after_s, up_s = self._placed, self._policy.return_after_s, self._up_s
        assert placed is not None
        gone = tuple(placed.plan["without"])
        if up_s is None:
            self._stand("placed", lost or gone, intent=placed.id)
            return
        if after_s is None or now_s < max(up_s + after_s, self._retry_s):
            self._stand("back", gone, None, "k3ctl placement rollback", placed.id)
            return
        self._retry_s = now_s + RETRY_S
        before: int = placed.plan["before"]
        extra = {"back": list(gone), **self._reconciler.cut_back(before)}
        intent = self._begin(*self._reconciler.map_of(before), extra)
        if intent is not None:
            self._stand("returning", gone, intent=intent.id)  # it may be over at the next look

    def _begin(self, name: str, wanted: PlacementMap, extra: dict[str, Any]) -> Intent | None:
        try:
            made = self._reconciler.plan(wanted, sparks=extra.get("sparks"))
            size_bytes = plan_traffic(self._station, made).total_bytes
            figures = {"size_bytes": size_bytes, "parked": made.parked, **extra}
            return self._reconciler.begin(made, name, figures, RATE_BYTES_S)
        except (Locked, PlanStale):
            return None  # somebody else was quicker; the next look sees what is there
        except K3Error as error:
            self._say(f"{name} cannot be placed: {error.message}")
            return None

    def _abandon(self, under_way: Intent) -> None:
        try:
            self._reconciler.abort()
        except (Refused, NotFound):
            return  # it has turned: the experts return as after any re-placement
        names = " and ".join(under_way.plan["without"])
        self._say(f"{names} is back before its experts were placed anew")

    def _stand(
        self, state: State, lost: tuple[str, ...], sentence: str | None = None,
        command: str | None = None, intent: str | None = None,
    ) -> None:  # fmt: skip
        placing = self._reconciler.under_way or self._placed
        sparks = None if placing is None else placing.plan.get("sparks")
        after_s = self._policy.after_s
        words = sentence or sentence_of(state, lost, self._on_sparks, after_s, sparks)
        self._standing = Standing(state, lost, words, command, intent)
        self._say(words)

    def _say(self, sentence: str) -> None:
        """Once, until no spark is missed: an event, and a line of the log."""
        if sentence in self._told:
            return
        self._told.add(sentence)
        log.warning("%s", sentence)
        standing = self._standing
        node = standing.lost[0] if standing is not None and standing.lost else None
        self._store.record_event(KIND, sentence, node=node)


def _name(lost: tuple[str, ...], extra: dict[str, Any]) -> str:
    return f"{places(extra.get('sparks'))}, without {' and '.join(lost)}"
