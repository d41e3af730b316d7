"""`k3d check`: requests answered in pods of its own that are cut and placed in other ways.

It says what came, a JSON line each, and compares nothing: whoever asked knows what should come.

| line | fields |
| --- | --- |
| pod     | name: what follows is its; long: it gets the long cases |
| answer  | case (number of the request), ids, logprobs, margins |
| end     | name, preempted: lanes that had to give way and started over |
| skipped | name, reason |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from k3d.engine.engine import Engine
from k3d.engine.request import ErrorEvent, Request, TokenEvent
from k3d.errors import ConfigError, K3Error
from k3d.model.row_pages import RowPages, pages_for
from k3d.placement.pod import PodDescription, load_pod, model_directory
from k3d.placement.policy_files import find_policy
from k3d.station.assembly import Station
from k3d.station.bench_home import assembled, bench_home, spark_processes
from k3d.station.chat import ChatRequest, engine_request
from k3d.station.options import StationOptions

LANES = 8
STAGGER_PASSES = 2
"""Passes between two arrivals."""
PROCESSES = ("shm", "tcp")

Emit = Callable[[dict[str, Any]], None]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file of --cases holds: /chat bodies; `long` ones are for the pod that is short of
    memory. The pods serve the model of this digest or none."""

    model_digest: str
    cases: list[ChatRequest]
    long: list[ChatRequest]


@dataclass(frozen=True)
class Cut:
    """A pod of its own. sparks None: as many as described."""

    transport: str
    placement: str
    chunk: int
    sparks: int | None = None
    short_of_memory: bool = False

    @property
    def name(self) -> str:
        sparks = "" if self.sparks is None else f", sparks: {self.sparks}"
        short = ", short of memory" if self.short_of_memory else ""
        return f"{self.transport}{sparks}, {self.placement}, chunk {self.chunk}{short}"


def read_cases(path: Path) -> Asked:
    """Raises ConfigError when it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Asked)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"cases {path} cannot be read: {error}") from None


def check_pods(
    home: Path, pod_name: str, options: StationOptions, asked: Asked, full: bool, emit: Emit
) -> None:
    """Run the cases in every pod; one that cannot be is skipped with the reason."""
    pod = load_pod(pod_name, home)
    folder = model_directory(pod, home)
    if any(not node.loopback for node in pod.nodes):
        emit({"type": "skipped", "name": pod.name, "reason": "its nodes are other machines"})
        return
    pod = msgspec.structs.replace(pod, model=None if folder is None else str(folder))
    description = find_policy("pods", pod_name, home)
    with bench_home(home) as own:
        for cut in cuts(pod, options, full):
            emit({"type": "pod", "name": cut.name, "long": cut.short_of_memory})
            try:
                preempted = _run(cut, pod, own, description, options, asked, emit)
            except ConfigError as error:
                emit({"type": "skipped", "name": cut.name, "reason": error.message})
            else:
                emit({"type": "end", "name": cut.name, "preempted": preempted})


def cuts(pod: PodDescription, options: StationOptions, full: bool) -> list[Cut]:
    """The pods to make: a few that differ in everything, or many."""
    placement, chunk = options.placement, options.chunk
    small = min(chunk, 64)
    short = Cut("inproc", placement, small, short_of_memory=True)
    if not pod.sparks:
        return [Cut("inproc", placement, 37), short]
    if not full:
        return [
            Cut("inproc", "all-hbm", small),
            Cut("inproc", "all-spark", 37, sparks=1),
            Cut("shm", placement, chunk),
            short,
        ]
    placements = ("layer-balanced", "contiguous", "all-spark", "all-hbm")
    return [
        *(Cut("inproc", name, small, sparks=n) for n in (1, 2, 4, 8) for name in placements),
        *(Cut("inproc", placement, n) for n in (LANES * 8, 37, 13)),
        *(Cut(transport, name, chunk) for transport in PROCESSES for name in placements[:3]),
        short,
    ]


def _run(
    cut: Cut,
    pod: PodDescription,
    home: Path,
    description: Path,
    options: StationOptions,
    asked: Asked,
    emit: Emit,
) -> int:
    """Lanes that had to give way."""
    pod = _with_sparks(pod, cut.sparks)
    options = replace(
        options, transport=cut.transport, placement=cut.placement, chunk=cut.chunk,
        synthetic_acceptance=None,
    )  # fmt: skip
    with ExitStack() as stack:
        if cut.transport in PROCESSES:
            stack.enter_context(spark_processes(home, description, pod, options))
        station = stack.enter_context(assembled(pod, home, options))
        if station.model_digest != asked.model_digest:
            raise K3Error(
                f"{pod.model} holds another model than the pod that runs serves",
                hint="start the pod again: k3ctl pod down; k3ctl pod up",
            )
        bodies = asked.long if cut.short_of_memory else asked.cases
        room = station.engine.most_positions
        requests = [engine_request(body, station.chat, room) for body in bodies]
        engine = _short_engine(station, requests) if cut.short_of_memory else station.engine
        for line in _answers(engine, requests):
            emit(line)
        return engine.counts().preempted


def _with_sparks(pod: PodDescription, count: int | None) -> PodDescription:
    """The pod with so many sparks, each like its first."""
    if count is None:
        return pod
    first = pod.sparks[0]
    sparks = [msgspec.structs.replace(first, name=f"spark-{i + 1}") for i in range(count)]
    return msgspec.structs.replace(pod, nodes=(pod.station, *sparks))


def _short_engine(station: Station, requests: list[Request]) -> Engine:
    """The Station's model and experts with room for one of the requests and a page."""
    given = station.engine
    longest = max(len(request.prompt) + request.max_tokens for request in requests)
    width = given.drafter.row_width if given.drafter is not None else 0
    each = RowPages.bytes_each(given.model.config, given.model.dtype, width)
    limits = replace(
        given.limits,
        lanes=LANES,
        row_bytes=each * (pages_for(longest) + 1),
        snapshot_bytes=given.limits.snapshot_bytes,
    )
    return replace(given, limits=limits, synthetic=None, watchers=[])


def _answers(engine: Engine, requests: list[Request]) -> Iterator[dict[str, Any]]:
    """Answers as they end; a request arrives every few passes. Raises what ends one early."""
    waiting = list(enumerate(requests))
    numbers = {request.id: index for index, request in waiting}
    found: dict[int, list[TokenEvent]] = {index: [] for index, _ in waiting}
    passes = 0
    while waiting or not engine.idle:
        busy = len(engine.lanes.running) + len(engine.lanes.waiting)
        if waiting and busy < LANES and (not busy or passes % STAGGER_PASSES == 0):
            engine.submit(waiting.pop(0)[1])
        passes += 1
        for event in engine.step():
            index = numbers[event.request_id]
            if isinstance(event, TokenEvent):
                found[index].append(event)
            elif isinstance(event, ErrorEvent):
                raise event.error
            else:
                yield _answer_line(index, found.pop(index))


def _answer_line(index: int, events: list[TokenEvent]) -> dict[str, Any]:
    margins, logprobs = [], []
    for event in events:
        top = event.logprob.top if event.logprob is not None else ()
        margins.append(top[0][1] - top[1][1] if len(top) > 1 else None)
        logprobs.append(event.logprob.logprob if event.logprob is not None else None)
    ids = [event.token for event in events]
    return {"type": "answer", "case": index, "ids": ids, "logprobs": logprobs, "margins": margins}
