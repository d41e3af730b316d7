"""The waves of one swap, from staging to the old copies' end, on a Station that serves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from k3d.errors import K3Error
from k3d.experts.tiers import ExpertTiers, LocalTier
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER
from k3d.placement.slicing import Slicing, plan_cut, slicing_of
from k3d.placement.swap_plan import Wave, plan_swap
from k3d.station.assembly import Station
from k3d.station.map_in_force import tier_table
from k3d.station.scheduler import Scheduler
from k3d.station.swap_pace import Halted, LatencyGuard, Pace, RateLimit
from k3d.station.swap_progress import SwapProgress
from k3d.station.swap_staging import LOST_POLL_S, WaveStaging
from k3d.station.swap_steps import StepLog
from k3d.store.records import Intent
from k3d.store.swaps import SwapStore

log = logging.getLogger(__name__)


class SwapExecution:
    """Carries out what is left of a swap. `halt` stops it; whoever sets that and wants to know
    whether it was in time holds `deciding` meanwhile: no wave turns while it is held."""

    def __init__(
        self,
        station: Station,
        scheduler: Scheduler,
        swaps: SwapStore,
        intent: Intent,
        progress: SwapProgress,
        halt: threading.Event,
        deciding: threading.Condition,
    ) -> None:
        experts = station.engine.experts
        assert isinstance(experts, ExpertTiers)
        self._station = station
        self._scheduler = scheduler
        self._swaps = swaps
        self._intent = intent
        self._progress = progress
        self._deciding = deciding
        self._experts = experts
        self._workers = {t.name: t.worker for t in experts.tiers if isinstance(t, LocalTier)}
        guard = LatencyGuard(station.hops, rows_of_lanes(station))
        self._pace = Pace(RateLimit(progress.rate_bytes_s), guard, halt, progress)

    def run(self, leave: Callable[[], bool]) -> None:
        """All waves from the map in force to the swap's. Raises Halted, K3Error: then the copies
        of the wave under way are dropped, unless `leave` says that the Station ends."""
        plan, station = self._intent.plan, self._station
        goal = PlacementMap.from_json(msgspec.json.encode(plan["map"]))
        slicing = slicing_of(station.pod, plan["sparks"]) if "sparks" in plan else None
        if slicing is None or slicing == station.in_force.slicing:
            slicing = None  # the sparks are cut so already, if they are to be cut anew
            made = plan_swap(station.placement, goal, station.slots, self._swaps.next_epoch())
        else:
            slots = {**station.slots, SPARK_TIER: slicing.slots}
            made = plan_cut(station.placement, goal, slots, self._swaps.next_epoch())
        self._progress.waves = len(made.waves)
        for number, wave in enumerate(made.waves, 1):
            self._progress.wave = number
            self._do_wave(wave, leave, slicing)

    def _do_wave(self, wave: Wave, leave: Callable[[], bool], slicing: Slicing | None) -> None:
        station, progress = self._station, self._progress
        steps = StepLog(
            self._swaps, self._intent.id, progress.wave, wave.placed.epoch,
            station.pod.station.name,
        )  # fmt: skip
        staging = WaveStaging(
            wave, station.bank, self._workers,
            # Sparks that are cut anew are filled after the turn: they cannot hold both.
            station.membership.serving if slicing is None else (),
            station.in_force.held_digest(wave.placed), self._pace, progress, steps,
        )  # fmt: skip
        before = station.placement.epoch
        progress.phase = "staging"
        try:
            if slicing is not None:
                self._wait_for(slicing)
            self._stage(staging)
        except (Halted, K3Error):
            if not leave():
                self._scheduler.between_passes(self._unstage).result()
                staging.drop(before)
            raise
        self._turn(wave, steps, staging, slicing)
        progress.phase = "retiring"
        staging.retire()
        with steps.step("retire", steps.station):
            self._scheduler.between_passes(lambda: self._settle(wave)).result()

    def _stage(self, staging: WaveStaging) -> None:
        """Until every node can serve the wave's epoch and nobody has said stop."""
        while True:
            staging.run()
            with self._deciding:
                self._pace.check()
                if staging.complete():
                    self._progress.phase = "turning"
                    return

    def _wait_for(self, slicing: Slicing) -> None:
        """Until all that are to hold slices are there."""
        while True:
            links = self._station.membership.links
            lost = next((x for x in links if x.node in slicing.sparks and not x.ready), None)
            if lost is None:
                return
            why = lost.snapshot().reason or f"{lost.node} is not ready"
            self._pace.hold(why, LOST_POLL_S)

    def _turn(
        self, wave: Wave, steps: StepLog, staging: WaveStaging, slicing: Slicing | None
    ) -> None:
        """From here on the new map is in force: in state.db first, then for the next pass."""
        station, placed = self._station, wave.placed
        table = tier_table(station.engine.model.config.layers, placed)
        held_digest = station.in_force.held_digest(placed)
        then = slicing or station.in_force.slicing
        sparks = None if then == slicing_of(station.pod) else then.sparks

        def turn() -> None:
            # Before the links: they fill sparks by it.
            station.in_force.turn_to(placed, self._intent.plan["name"], slicing)
            self._experts.turn_to(table)
            if slicing is not None:
                station.cut_anew(slicing)
            for link in station.membership:
                cut = None if slicing is None else station.cut_of(link.node)
                held = staging.holds(link)
                link.turn_to(placed.epoch, held_digest, held=held, cut=cut)

        with steps.step("turn", steps.station):
            self._swaps.record_turn(
                self._intent.id, placed.epoch, placed.digest, self._intent.plan["name"],
                placed.to_json(), station.in_force.planned_digest, sparks,
            )  # fmt: skip
            self._scheduler.between_passes(turn).result()
        log.info("epoch %d is in force", placed.epoch)

    def _settle(self, wave: Wave) -> None:
        for tier, worker in self._workers.items():
            worker.settle(wave.placed.epoch, [m.source_slot for m in wave.out_of(tier)])

    def _unstage(self) -> None:
        for worker in self._workers.values():
            worker.unstage()


def rows_of_lanes(station: Station) -> int:
    """Rows of a pass in which every lane decodes."""
    engine = station.engine
    return engine.limits.lanes * (1 + (engine.drafter.block if engine.drafter else 0))
