"""What GET /status and /health say: the pod as its Station sees it, every figure measured."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any, Literal

import psutil

from k3d import __version__
from k3d.experts.tiers import ExpertTiers
from k3d.placement.pod import SPARK_TIER
from k3d.station.assembly import Station
from k3d.station.decoding_status import decoding
from k3d.station.membership import LinkSnapshot
from k3d.station.replacement import Replacement
from k3d.station.scheduler import Scheduler
from k3d.station.swap_document import swap_line
from k3d.station.swap_execution import rows_of_lanes
from k3d.station.swap_reconciler import SwapReconciler

STALLED_S = 5.0


@dataclass(frozen=True)
class StationView:
    """The documents of one running Station."""

    station: Station
    scheduler: Scheduler
    started_s: float
    api_url: str | None = None
    """Where clients of the OpenAI API point to."""
    swaps: SwapReconciler | None = None
    replacement: Replacement | None = None

    def health(self) -> dict[str, Any]:
        """The Station's own health: the pod's, since without its sparks it cannot decode."""
        state, reason = self.state()
        return {
            "schema": "k3d.health/1",
            "node": self.station.pod.station.name,
            "role": "station",
            "state": state,
            "reason": reason,
            "version": __version__,
            "uptime_s": round(monotonic() - self.started_s, 3),
            "progress_age_s": round(self.scheduler.progress_age_s, 3),
            "pid": os.getpid(),
            "rss_bytes": psutil.Process().memory_info().rss,
            "simulated": self.station.pod.station.simulated,
        }

    def status(self) -> dict[str, Any]:
        station, counts = self.station, self.scheduler.counts()
        state, reason = self.state()
        config = station.engine.model.config
        return {
            "schema": "k3d.status/1",
            "pod": station.pod.name,
            "state": state,
            "reason": reason,
            "version": __version__,
            "provenance": "measured",
            "model": {
                "name": station.model_name,
                "digest": station.model_digest,
                "layers": config.layers,
                "experts": len(station.shape.layers) * station.shape.experts,
                "dtype": station.options.dtype,
            },
            "epoch": station.placement.epoch,
            "api": {"url": self.api_url},
            "transport": station.options.transport,
            "placement": station.in_force.name,
            "policy": station.options.placement,
            "swapped": station.swapped,
            "swap": swap_line(self.swaps.progress) if self.swaps else None,
            "replacement": self._replacement(),
            "nodes": [self._station_node(state, reason), *map(self._spark_node, self._links())],
            "tiers": self._tiers(),
            "tokens_per_s": {
                "decode": _rate(counts.decode_tokens, counts.decode_s),
                "prompt": _rate(counts.prompt_tokens, counts.prompt_s),
            },
            **decoding(station.engine, counts),
            "requests": {
                "running": counts.running,
                "waiting": counts.waiting,
                "finished": counts.finished,
                "failed": counts.failed,
            },
        }

    def state(self) -> tuple[Literal["healthy", "degraded", "down"], str | None]:
        """The pod's state, and why it is not healthy."""
        if not self.scheduler.alive:
            return "down", "the engine has ended"
        for link in self._links():
            if link.state != "ready" or link.reason is not None:
                return "degraded", link.reason or f"{link.node} is {link.state}"
        age = self.scheduler.progress_age_s
        if age > STALLED_S:
            return "degraded", f"the engine has finished no pass for {age:.1f} s"
        return "healthy", None

    def _replacement(self) -> dict[str, Any] | None:
        standing = self.replacement.standing if self.replacement else None
        return None if standing is None else standing.document()

    def _links(self) -> tuple[LinkSnapshot, ...]:
        return self.station.membership.states()

    def _station_node(self, state: str, reason: str | None) -> dict[str, Any]:
        local = {t: n for t, n in self.station.placement.counts.items() if t != SPARK_TIER}
        waiting = any(link.state != "ready" for link in self._links())
        return {
            "name": self.station.pod.station.name,
            "role": "station",
            # The Station itself is as healthy as its engine; the pod's state is in "state".
            "state": "healthy" if waiting else state,
            "reason": None if waiting else reason,
            "pid": os.getpid(),
            "slice": None,
            "slots_used": sum(local.values()),
            "slots": sum(n for tier, n in self.station.slots.items() if tier != SPARK_TIER),
            "rss_bytes": psutil.Process().memory_info().rss,
            "progress_age_s": round(self.scheduler.progress_age_s, 3),
            "simulated": self.station.pod.station.simulated,
        }

    def _spark_node(self, link: LinkSnapshot) -> dict[str, Any]:
        ready = link.state == "ready" and link.reason is None
        late = link.state == "ready"
        age = link.progress_age_s
        return {
            "name": link.node,
            "role": "spark",
            "state": "healthy" if ready else "degraded" if late else "down",
            "reason": None if ready else link.reason or f"{link.node} is {link.state}",
            "link": link.state,
            "pid": link.pid,
            "slice": f"{(link.slice_index or 0) + 1}/{link.slice_count}",
            "slots_used": link.loaded,
            "slots": link.slots,
            "rss_bytes": link.rss_bytes,
            "progress_age_s": None if age is None else round(age, 3),
            "rtt_us": link.rtt_us,
            "hop_us": link.hop_us,
            "compute_us": link.compute_us,
            "bank": _bank(link),
            "simulated": self.station.pod.node(link.node).simulated,
        }

    def _tiers(self) -> list[dict[str, Any]]:
        experts = self.station.engine.experts
        assert isinstance(experts, ExpertTiers)
        figures = [experts.log.figures(index) for index in range(len(experts.log.tiers))]
        most_rows = rows_of_lanes(self.station)  # hops of prompts are counted and not timed
        windows = [experts.log.window(index, 0, most_rows) for index in range(len(figures))]
        served = sum(figure.experts for figure in figures)
        counts = self.station.placement.counts
        pod = self.station.pod
        simulated = {t.name: n.simulated for n in pod.nodes for t in n.tiers}
        return [
            {
                "name": figure.tier,
                "experts": counts[figure.tier],
                "slots": self.station.slots[figure.tier],
                "hit_share": round(figure.experts / served, 4) if served else None,
                "hop_us": None
                if window.p50_us is None or window.p99_us is None
                else {
                    "p50": round(window.p50_us, 1),
                    "p99": round(window.p99_us, 1),
                    "count": figure.hops,
                },
                "simulated": simulated[figure.tier],
            }
            for figure, window in zip(figures, windows, strict=True)
        ]


def _bank(link: LinkSnapshot) -> dict[str, Any]:
    """What a spark has on its disk, and how it came by its slices; None where it held them."""
    staged, filling = link.staged, link.filling
    return {
        "file": None if staged is None else staged.file,
        "records": 0 if staged is None else staged.records,
        "ignored": [] if staged is None else list(staged.ignored),
        "filling": None if filling is None else asdict(filling),
    }


def _rate(tokens: int, seconds: float) -> float | None:
    return round(tokens / seconds, 2) if tokens and seconds else None
