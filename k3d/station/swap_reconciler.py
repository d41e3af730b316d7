"""Swaps of the placement map under traffic, one at a time, in a thread of their own.

A swap is an intent in state.db before anything is done. Each of its waves is staged beside what is
served, committed on every spark, turned to between two passes, and only then are the old copies
given up. The turn is written to state.db first: a Station that starts serves the newest map, and
goes on with a swap that was not finished. So whatever dies at whatever moment, the pod ends in one
of the two maps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from k3d.errors import ConfigError, K3Error, Locked, NotFound, PlanStale, Refused
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER
from k3d.placement.policy import load_policy, plan
from k3d.placement.slicing import plan_cut, slicing_of
from k3d.placement.swap_plan import SwapPlan, plan_swap
from k3d.station.assembly import Station
from k3d.station.scheduler import Scheduler
from k3d.station.swap_effect import EffectMeter
from k3d.station.swap_execution import SwapExecution, rows_of_lanes
from k3d.station.swap_pace import Halted
from k3d.station.swap_progress import SwapProgress
from k3d.store.records import Intent
from k3d.store.state import StateStore
from k3d.store.swaps import UNFINISHED, SwapStore

DEFAULT_RATE_BYTES_S = 64 * 2**20
JOIN_S = 5.0
END_S = 2.0
GIVE_WAY_S = 10.0

log = logging.getLogger(__name__)


class SwapReconciler:
    """Plans swaps, carries them out, and says how far it is. Any thread may ask."""

    def __init__(
        self, station: Station, scheduler: Scheduler, store: StateStore, home: Path
    ) -> None:
        self.station = station
        self.swaps = SwapStore(store)
        self._scheduler = scheduler
        self._home = home
        self._changed = threading.Condition()  # guards what follows
        self._intent: Intent | None = None  # to be carried out, or under way
        self._back: Intent | None = None  # to be carried out after it: the way back
        self._progress: SwapProgress | None = None
        self._closing = False
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, name="swap", daemon=True)

    def start(self) -> None:
        """Go on with a swap that an earlier Station began, and wait for others."""
        left = self.swaps.unfinished()
        for intent in left:
            known = intent.plan["planned_digest"] == self.station.in_force.planned_digest
            if intent is left[-1] and known:
                self.swaps.note("a swap goes on after a restart", intent=intent.id)
                self._intent = self.swaps.swap(intent.id)
                self._progress = self._new_progress(intent)
            else:
                self.swaps.move(intent.id, "cancelled")
                self.swaps.note("a swap was given up for another placement", intent=intent.id)
        self._thread.start()

    def halt(self) -> None:
        """Stop where it is; the next Station goes on."""
        with self._changed:
            self._closing = True
            self._halt.set()
            self._changed.notify_all()

    def close(self) -> None:
        self.halt()
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)

    # Asked for by operators

    @property
    def progress(self) -> SwapProgress | None:
        """The swap under way; None when there is none."""
        return self._progress

    def wanted(self, name: str) -> PlacementMap:
        """The map of a policy's name, its file, or a map's file. Raises NotFound, ConfigError."""
        now, slots = self.station.placement, self.station.slots
        return plan(now.layers, now.experts, slots, load_policy(name, self._home))

    def before_last(self) -> tuple[str, PlacementMap]:
        """The map that was in force before the last swap, and its name. Raises NotFound."""
        done = self.swaps.last_done()
        if done is None:
            raise NotFound("no swap was carried out yet", hint="see: k3ctl placement status")
        epoch = self.station.placement.epoch
        if self.swaps.planned_digest(epoch) is None:  # a start put it in force
            raise NotFound(
                f"the pod was started with the map in force, {self.station.in_force.name}: there "
                "is no swap to take back",
                hint="choose a map: k3ctl placement swap NAME",
            )
        return self.map_of(done.plan["from_epoch"])

    def map_of(self, epoch: int) -> tuple[str, PlacementMap]:
        """The name of an epoch's map and the map. Raises NotFound for an epoch that is not in
        state.db any more."""
        stored = self.swaps.map_of(epoch)
        if stored is None:
            raise NotFound(f"the map of epoch {epoch} is not kept")
        return stored.policy, PlacementMap.from_json(stored.map_json)

    def cut_back(self, epoch: int) -> dict[str, list[str]]:
        """What an intent that goes back to an epoch says of the sparks, if they are to be cut anew
        for it."""
        then = slicing_of(self.station.pod, self.swaps.sparks_of(epoch))
        return {} if then == self.station.in_force.slicing else {"sparks": list(then.sparks)}

    def plan(
        self,
        wanted: PlacementMap,
        if_token: str | None = None,
        sparks: Sequence[str] | None = None,
    ) -> SwapPlan:
        """The way to a map, with its experts on the sparks cut over `sparks`, if they are to be cut
        anew. Raises PlanStale when the state is not the one that `if_token` names, ConfigError when
        there is no way."""
        with self._changed:
            self._let_go()
        now, slots, epoch = self.station.placement, self.station.slots, self.swaps.next_epoch()
        if sparks is None:
            made = plan_swap(now, wanted, slots, epoch)
        else:
            cut = slicing_of(self.station.pod, sparks)
            made = plan_cut(now, wanted, {**slots, SPARK_TIER: cut.slots}, epoch)
        if if_token is not None and (if_token != made.token or self._intent is not None):
            raise PlanStale(
                f"the plan {if_token} is not of the state the pod is in now",
                hint="look again with --dry-run, and use the token it shows",
            )
        return made

    def begin(
        self,
        made: SwapPlan,
        name: str,
        figures: Mapping[str, Any],
        rate_bytes_s: int,
        *,
        request_id: str | None = None,
    ) -> Intent:
        """Carry a plan out. Raises Locked while another swap is under way."""
        with self._changed:
            self._let_go()
            if self._closing:
                raise Refused("the Station is shutting down")
            known = self.swaps.requested(request_id)
            if known is not None:
                return known
            under_way = self._intent
            if under_way is not None:
                raise Locked(
                    f"a swap to {under_way.plan['name']} is under way",
                    hint="wait for it, or end it: k3ctl placement abort",
                )
            if made.now is not self.station.placement:
                raise PlanStale("the map in force has changed", hint="look again with --dry-run")
            intent = self.swaps.record_swap(
                self._intent_plan(made, name, made.final, figures, rate_bytes_s),
                request_id=request_id,
            )
            self._intent, self._progress = intent, self._new_progress(intent)
            self._changed.notify_all()
            return intent

    def abort(self) -> Intent:
        """Drop the copies of the swap under way; waves that are in force are swapped back.

        Raises NotFound when nothing is under way, Refused when the last wave has turned.
        """
        with self._changed:
            intent, progress = self._intent, self._progress
            if intent is None or progress is None:
                last = self.swaps.last_ended()
                if last is not None and last.state == "cancelled":
                    return last
                raise NotFound("no swap is under way", hint="see: k3ctl placement status")
            current = self.swaps.swap(intent.id)
            turning = progress.phase in ("turning", "retiring")
            if current.state == "cancelled":
                return current
            if current.state == "done" or (turning and progress.wave >= progress.waves):
                raise Refused(
                    f"the swap to {intent.plan['name']} is in force already",
                    hint="go back: k3ctl placement rollback",
                )
            if intent.plan["returns"]:
                raise Refused(
                    "the way back to the map before is under way",
                    hint="wait for it: k3ctl placement status",
                )
            self._cancel(intent, "cancelled", turning)
            self._halt.set()
            return self.swaps.swap(intent.id)

    def give_way(self, reason: str) -> None:
        """Cancel whatever is under way, with no way back: what comes next starts from the map in
        force, whatever part that is. Raises Locked when it is not out of the way soon."""
        with self._changed:
            intent, progress = self._intent, self._progress
            if intent is None or progress is None:
                return
            turned = progress.phase in ("turning", "retiring") and progress.wave >= progress.waves
            for each in (intent, self._back):
                if each is None or (each is intent and turned):
                    continue
                if self.swaps.swap(each.id).state in UNFINISHED:
                    self.swaps.move(each.id, "cancelled")
                    self.swaps.note(reason, intent=each.id)
            self._back = None
            if not turned:
                self._halt.set()
            if not self._changed.wait_for(lambda: self._intent is not intent, GIVE_WAY_S):
                raise Locked(
                    f"the swap to {intent.plan['name']} does not end",
                    hint="see: k3ctl placement status",
                )

    @property
    def under_way(self) -> Intent | None:
        """The swap to be carried out or under way."""
        return self._intent

    def _let_go(self) -> None:
        """A swap that is shown as ended is out of the way in a moment; wait for it. Called with
        the lock, which it gives up meanwhile."""

        def gone() -> bool:
            intent = self._intent
            return intent is None or self.swaps.swap(intent.id).state in ("planned", "running")

        self._changed.wait_for(gone, END_S)

    def _cancel(self, intent: Intent, state: str, turning: bool = False) -> None:
        """Durably: this swap will not go on, and if part of it is in force, there is a way back.
        A way back that fails has none: it would go to and fro."""
        in_part = turning or self.station.placement.digest != intent.plan["from_digest"]
        if in_part and not intent.plan["returns"]:
            self._back = self.swaps.record_swap(self._way_back(intent))
        self.swaps.move(intent.id, state)

    def _intent_plan(
        self,
        made: SwapPlan,
        name: str,
        goal: PlacementMap,
        figures: Mapping[str, Any],
        rate_bytes_s: int,
    ) -> dict[str, Any]:
        return {
            "name": name,
            "from_epoch": made.now.epoch,
            "from_digest": made.now.digest,
            "digest": goal.digest,
            "planned_digest": self.station.in_force.planned_digest,
            "returns": False,
            "token": made.token,
            "waves": len(made.waves),
            "copies": made.moves,
            "rate_bytes_s": rate_bytes_s,
            **figures,
            "map": msgspec.json.decode(goal.to_json()),
        }

    def _way_back(self, intent: Intent) -> dict[str, Any]:
        stored = self.swaps.map_of(intent.plan["from_epoch"])
        assert stored is not None
        return {
            **intent.plan,
            "name": stored.policy,
            "from_epoch": self.station.placement.epoch,
            "from_digest": self.station.placement.digest,
            "digest": None,  # its slots are known once it is planned again
            "returns": True,
            "map": msgspec.json.decode(stored.map_json),
        }

    def _new_progress(self, intent: Intent) -> SwapProgress:
        plan = intent.plan
        return SwapProgress(
            intent.id, plan["waves"], plan["copies"], plan["size_bytes"], plan["rate_bytes_s"]
        )

    # The thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._intent is not None or self._closing)
                intent, progress = self._intent, self._progress
            if self._closing or intent is None or progress is None:
                return
            try:
                self._carry_out(intent, progress)
            except Exception:
                log.exception("a swap ended for a reason that is a bug; the map stays")
                self.swaps.move(intent.id, "failed")
            self._finish(intent)

    def _finish(self, intent: Intent) -> None:
        """Make way for the way back, or for whatever is asked next."""
        with self._changed:
            if self._closing or self._intent is not intent:
                return
            self._halt.clear()
            self._intent, self._back = self._back, None
            self._progress = self._new_progress(self._intent) if self._intent else None
            self._changed.notify_all()

    def _carry_out(self, intent: Intent, progress: SwapProgress) -> None:
        station = self.station
        meter = EffectMeter(station.hops, rows_of_lanes(station))
        try:
            with self._changed:
                if self._halt.is_set():
                    raise Halted
                self.swaps.move(intent.id, "running")
            self.swaps.note(f"a swap to {intent.plan['name']} begins", intent=intent.id)
            SwapExecution(
                station, self._scheduler, self.swaps, intent, progress, self._halt, self._changed
            ).run(lambda: self._closing)
            self.swaps.record_effects(intent.id, meter.until_now())
            self.swaps.move(intent.id, "done")
            self.swaps.note(
                f"the swap to {intent.plan['name']} is done",
                intent=intent.id,
                epoch=station.placement.epoch,
                seconds=round(monotonic() - progress.started_s, 3),
                pauses=progress.pauses,
            )
        except Halted:
            if not self._closing:
                self.swaps.note(f"the swap to {intent.plan['name']} was aborted", intent=intent.id)
            return
        except K3Error as error:
            if self._closing:
                return
            log.error("the swap to %s failed: %s", intent.plan["name"], error)
            with self._changed:
                self._cancel(intent, "failed")
            self.swaps.note(
                f"the swap to {intent.plan['name']} failed: {error.message}", intent=intent.id
            )
            return
        finally:
            progress.phase, progress.paused = "ended", None
        self._finish(intent)  # others may begin while its effect is measured
        meter.wait_for_more(self._elsewhere)
        self.swaps.record_effects(intent.id, meter.after())

    def _elsewhere(self, time_s: float) -> bool:
        """Wait; whether there is something better to do than to measure."""
        with self._changed:
            return self._changed.wait_for(lambda: self._intent is not None or self._closing, time_s)


def check_rate(rate_bytes_s: int | None) -> int:
    """The rate asked for, or the default. Raises ConfigError."""
    if rate_bytes_s is None:
        return DEFAULT_RATE_BYTES_S
    if rate_bytes_s < 1:
        raise ConfigError(f"rate {rate_bytes_s} B/s is below 1", hint="leave it out for 64 MiB/s")
    return rate_bytes_s
