"""What planning at Kimi-K3's size takes: python kernels/bench/plan_k3.py [--tokens 100000].

Makes a skewed trace of 92 layers of 896 experts, 16 a token, plans it for the Station and eight
Sparks with every policy, and shows the seconds of each, what its map costs by the simulator, and
the process's largest memory. Costs are those of the pod description; nothing of the pod is here.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np

from k3d.placement.costs import costs_of
from k3d.placement.planners import PlanRequest, make_plan
from k3d.placement.pod import load_pod
from k3d.placement.policy import load_policy
from k3d.placement.simulator import simulate
from k3d.placement.trace import Trace, TraceHeader, read_trace
from k3d.placement.trace_writer import TraceWriter

POLICIES = (
    "contiguous",
    "hot-cold",
    "layer-balanced",
    "cost-ranked",
    "frequency-sliced",
    "optimised",
)
LAYERS, EXPERTS, TOP_K = tuple(range(1, 93)), 896, 16
SEQUENCE_TOKENS = 256
DRAWS = 40


def skewed_trace(tokens: int, seed: int, skew: float, topics: int) -> Trace:
    """Every layer ranks its experts anew by rank^-s, s within half of `skew`; each sequence is of a
    topic, whose own experts come up more often."""
    rng = np.random.default_rng(seed)
    sequence = (np.arange(tokens) // SEQUENCE_TOKENS).astype(np.uint32)
    topic = rng.integers(topics, size=int(sequence[-1]) + 1)[sequence]
    ids = np.empty((len(LAYERS), tokens, TOP_K), np.uint16)
    ranks = np.arange(1.0, EXPERTS + 1)
    for layer in range(len(LAYERS)):
        base = rng.permutation(ranks ** -(skew * rng.uniform(0.5, 1.5)))
        for number in range(topics):
            rows = np.flatnonzero(topic == number)
            ids[layer, rows] = _draw(rng, base * rng.lognormal(0.0, 0.7, EXPERTS), len(rows))
    header = TraceHeader(
        layers=LAYERS, experts=EXPERTS, top_k=TOP_K, weights=False,
        source=f"skew {skew}, {topics} topics, seed {seed}", provenance="simulated",
    )  # fmt: skip
    return Trace(header, ids, None, sequence)


def _draw(rng: np.random.Generator, weight: np.ndarray, rows: int) -> np.ndarray:
    """TOP_K different experts a row, about in proportion to their weights; ascending."""
    bounds = np.cumsum(weight) / weight.sum()
    drawn = np.searchsorted(bounds[:-1], rng.random((rows, DRAWS), np.float32)).astype(np.int64)
    drawn[:, -TOP_K:] = np.argsort(-weight)[:TOP_K]  # enough different ones in any case
    order = np.argsort(drawn, axis=1, kind="stable")
    ordered = np.take_along_axis(drawn, order, 1)
    key = order.astype(np.float32)
    key[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = np.inf
    kept = np.argpartition(key, TOP_K, axis=1)[:, :TOP_K]
    return np.sort(np.take_along_axis(ordered, kept, 1), axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--skew", type=float, default=0.8)
    parser.add_argument("--topics", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pod", default="station-8-sparks")
    parser.add_argument("--file", type=Path, help="write the trace there and read it back, timed")
    parser.add_argument("policies", nargs="*", default=POLICIES)
    options = parser.parse_args()
    trace = skewed_trace(options.tokens, options.seed, options.skew, options.topics)
    put = sys.stdout.write
    if options.file is not None:
        with TraceWriter(options.file, trace.header) as writer:
            for start in range(0, trace.tokens, 1024):
                rows = slice(start, start + 1024)
                writer.append(trace.ids[:, rows].transpose(1, 0, 2), None, trace.sequence[rows])
        del trace
        begun = time.perf_counter()
        trace = read_trace(options.file)
        put(f"read {options.file.stat().st_size} B in {time.perf_counter() - begun:.1f} s\n")
    pod = load_pod(options.pod)
    costs = costs_of(pod)
    put(f"{trace.tokens} tokens, {trace.header.source}\n")
    put("policy             plan s  sim s  token us (modelled)  whole experts\n")
    for name in options.policies:
        request = PlanRequest(load_policy(name), trace, pod.slots, costs)
        if name in ("hot-cold", "layer-balanced", "cost-ranked"):
            request = PlanRequest(load_policy(name), trace, pod.slots, costs.with_cut("whole"))
        begun = time.perf_counter()
        plan = make_plan(request)
        planned = time.perf_counter()
        sliced = simulate(plan.placed, trace, costs, by_rows=False)
        done = time.perf_counter()
        sample = trace.sampled(8192)
        whole = simulate(plan.placed, sample, costs.with_cut("whole"), by_rows=False)
        put(
            f"{name:18} {planned - begun:6.1f} {done - planned:6.1f} {sliced.token.mean_us:20.0f} "
            f"{whole.token.mean_us:14.0f}  {'; '.join(plan.notes)}\n"
        )
        sys.stdout.flush()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    put(f"largest memory {peak:.2f} GiB (measured, the trace included)\n")


if __name__ == "__main__":
    main()
