"""`bench pod`: decoding over spark processes beside the same engine with sparks in this process.

Both sides run the same prompts in turns, in one run, with the same map; what differs is the hop.
Their tokens must be the same: a benchmark of wrong answers is refused.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
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
from k3d.placement.pod import PodDescription, find_policy, load_pod, model_directory
from k3d.station.assembly import Station, StationOptions, assemble
from k3d.store.home import banks_directory, create_secret, make_home, read_secret

_PLAIN = ChatOptions(thinking=False)
QUESTIONS = (
    "What does ls do?",
    "What does grep do?",
    "What does the cp command do?",
    "What does os.path.join do?",
)
READY_S = 60.0


@dataclass(frozen=True)
class Side:
    """One way of reaching the sparks, and what its rounds gave."""

    transport: str
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
        bench_home = stack.enter_context(_temporary_home(home))
        stack.enter_context(
            _spark_processes(bench_home, find_policy("pods", pod_name, home), pod, options)
        )
        sides = [
            stack.enter_context(_side(pod, bench_home, replace(options, transport=transport)))
            for transport in (options.transport, "inproc")
        ]
        for _ in range(rounds):
            for side in sides:
                _run_round(side, tokens)
        if sides[0].ids != sides[1].ids:
            raise K3Error("the pod and the in-process engine gave different tokens")
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
    over, inside = (statistics.median(side.tokens_per_s) for side in sides)
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
        "tokens_per_s": {options.transport: round(over, 2), "inproc": round(inside, 2)},
        "ratio": round(over / inside, 3),
        "same_tokens": True,
        "hop_us": {side.transport: _hops(side.station) for side in sides},
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
def _temporary_home(home: Path) -> Iterator[Path]:
    """A home of the benchmark's own, sharing the staged banks."""
    with tempfile.TemporaryDirectory(prefix="k3-bench-") as folder:
        bench_home = Path(folder)
        make_home(bench_home)
        create_secret(bench_home)
        banks = banks_directory(home)
        banks.mkdir(parents=True, exist_ok=True)
        shared = banks_directory(bench_home)
        if shared.exists():
            shared.rmdir()
        shared.symlink_to(banks)
        yield bench_home


@contextmanager
def _spark_processes(
    home: Path, description: Path, pod: PodDescription, options: StationOptions
) -> Iterator[None]:
    command = [sys.executable, "-m", "k3d.main", "spark", "--home", str(home), "--pod",
               str(description), "--transport", options.transport]  # fmt: skip
    with ExitStack() as stack:
        for spark in pod.sparks:
            process = subprocess.Popen(
                [*command, "--name", spark.name],
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(_end, process)
        yield


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _side(pod: PodDescription, home: Path, options: StationOptions) -> Iterator[Side]:
    station = assemble(pod, home, read_secret(home), options, lambda _placement: 1)
    try:
        station.membership.wait_all_ready(READY_S)
        yield Side(options.transport, station, [], [])
    finally:
        station.membership.close()
        station.bank.close()
