"""`bench pod`: decoding over spark processes beside the same engine without them.

Three sides run the same prompts in turns, in one run:

| side | sparks | map |
| --- | --- | --- |
| the transport | processes | the pod's |
| inproc | in this process, the same slices one after the other | the pod's |
| local | none: every expert whole, in one tier of this process | all in hbm |

Their tokens must be the same: a benchmark of wrong answers is refused.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from k3d import __version__
from k3d.engine.request import ErrorEvent, Request, TokenEvent
from k3d.errors import ConfigError, K3Error
from k3d.experts.tiers import ExpertTiers
from k3d.model.chat_format import ChatOptions
from k3d.placement.pod import PodDescription, load_pod, model_directory
from k3d.placement.policy_files import find_policy
from k3d.station.assembly import Station
from k3d.station.bench_home import assembled, bench_home, spark_processes
from k3d.station.options import StationOptions

_PLAIN = ChatOptions(thinking=False)
QUESTIONS = (
    "What does ls do?",
    "What does grep do?",
    "What does the cp command do?",
    "What does os.path.join do?",
)


@dataclass(frozen=True)
class Side:
    """One way of reaching the sparks, and what its rounds gave."""

    name: str
    station: Station
    tokens_per_s: list[float]
    ids: list[list[int]]


def bench_pod(
    home: Path, pod_name: str, options: StationOptions, tokens: int, rounds: int
) -> dict[str, Any]:
    """Figures of both sides. `options.transport` is that of the spark processes."""
    pod = load_pod(pod_name, home)
    if not pod.sparks:
        raise ConfigError(f"pod {pod.name} has no sparks to bench")
    if any(not node.loopback for node in pod.nodes):
        raise ConfigError(
            f"pod {pod.name} spans machines; bench pod starts its own processes",
            hint="use an embedded description",
        )
    folder = model_directory(pod, home)
    pod = msgspec.structs.replace(pod, model=str(folder))
    with ExitStack() as stack:
        folder = stack.enter_context(bench_home(home))
        stack.enter_context(
            spark_processes(folder, find_policy("pods", pod_name, home), pod, options)
        )
        inproc = replace(options, transport="inproc")
        sides = [
            stack.enter_context(_side(name, pod, folder, chosen))
            for name, chosen in (
                (options.transport, options),
                ("inproc", inproc),
                ("local", replace(inproc, placement="all-hbm")),
            )
        ]
        for _ in range(rounds):
            for side in sides:
                _run_round(side, tokens)
        if any(side.ids != sides[0].ids for side in sides):
            raise K3Error("the pod and the in-process engines gave different tokens")
        return _figures(pod, options, sides, tokens, rounds)


def _run_round(side: Side, tokens: int) -> None:
    """Decode every question once; tokens a second are of decoding alone."""
    engine = side.station.engine
    before = engine.counts()
    ids = []
    for question in QUESTIONS:
        prompt = side.station.chat.encode([{"role": "user", "content": question}], _PLAIN)
        engine.submit(Request("bench", tuple(prompt), tokens))
        answer = []
        while not engine.idle:
            for event in engine.step():
                if isinstance(event, TokenEvent):
                    answer.append(event.token)
                elif isinstance(event, ErrorEvent):
                    raise event.error
        ids.append(answer)
    after = engine.counts()
    seconds = after.decode_s - before.decode_s
    side.tokens_per_s.append((after.decode_tokens - before.decode_tokens) / seconds)
    side.ids[:] = ids


def _figures(
    pod: PodDescription, options: StationOptions, sides: list[Side], tokens: int, rounds: int
) -> dict[str, Any]:
    rates = {side.name: statistics.median(side.tokens_per_s) for side in sides}
    over = rates[options.transport]
    return {
        "schema": "k3d.bench-pod/1",
        "provenance": "measured",
        "simulated": any(node.simulated for node in pod.nodes),
        "pod": pod.name,
        "placement": options.placement,
        "sparks": len(pod.sparks),
        "tokens": tokens,
        "prompts": len(QUESTIONS),
        "rounds": rounds,
        "tokens_per_s": {name: round(rate, 2) for name, rate in rates.items()},
        "ratio": {name: round(over / rates[name], 3) for name in ("inproc", "local")},
        "same_tokens": True,
        "hop_us": {side.name: _hops(side.station) for side in sides},
        "environment": {
            "version": __version__,
            "machine": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "load_1m": round(os.getloadavg()[0], 2),
        },
    }


def _hops(station: Station) -> dict[str, dict[str, float] | None]:
    experts = station.engine.experts
    assert isinstance(experts, ExpertTiers)
    hops: dict[str, dict[str, float] | None] = {}
    for index, tier in enumerate(experts.log.tiers):
        figures = experts.log.figures(index)
        if figures.p50_us is None or figures.p99_us is None:
            hops[tier] = None
        else:
            hops[tier] = {"p50": round(figures.p50_us, 1), "p99": round(figures.p99_us, 1)}
    return hops


@contextmanager
def _side(name: str, pod: PodDescription, home: Path, options: StationOptions) -> Iterator[Side]:
    with assembled(pod, home, options) as station:
        yield Side(name, station, [], [])
