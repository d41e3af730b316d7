"""What a block of drafts costs: python kernels/bench/draft_block.py [DRAFTER] [--drafts 7].

Weights are random, of the sizes that DRAFTER/config.json gives, since only sizes take time. Lanes
and context lengths are run in turns on one thread, and the best of each is shown: drafting, and
the context rows of one round of drafts and of a prompt chunk.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from k3d.model.drafter.layouts import tensor_list
from k3d.model.drafter.proposal import Drafter
from k3d.model.drafter.reader import assemble
from k3d.model.drafter.vendors import read_config

LANES = (1, 4, 16)
CONTEXTS = (64, 512, 2048)
ROWS = (1, 8, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("drafter", nargs="?", type=Path, default=Path("banks/k3-mini/drafter"))
    parser.add_argument("--drafts", type=int)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    drafter = _random(options.drafter)
    drafts = options.drafts or drafter.block
    jobs: dict[tuple[int, int], Callable[[], object]] = {
        (lanes, length): _block(drafter, lanes, length, drafts)
        for lanes in LANES
        for length in CONTEXTS
    } | {(0, rows): _rows(drafter, rows) for rows in ROWS}
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(options.rounds):
        for key, job in jobs.items():
            begun = time.perf_counter()
            job()
            best[key] = min(best[key], 1e3 * (time.perf_counter() - begun))
    lines = [f"ms a block of {drafts} drafts, by lanes and context (measured)"]
    lines.append("lanes" + "".join(f"{length:9}" for length in CONTEXTS))
    for lanes in LANES:
        lines.append(f"{lanes:5}" + "".join(f"{best[lanes, n]:9.2f}" for n in CONTEXTS))
    shown = ", ".join(f"{best[0, rows]:.2f} for {rows}" for rows in ROWS)
    lines.append(f"ms for context rows: {shown} (measured)")
    sys.stdout.write("\n".join(lines) + "\n")


def _random(folder: Path) -> Drafter:
    config = read_config(folder)
    tensors = {
        spec.part: torch.randn(spec.shape) * spec.shape[-1] ** -0.5
        for spec in tensor_list(config)
        if spec.part is not None and not spec.optional
    }
    vocabulary = (config.vocab_size, config.hidden_size)
    return assemble(config, tensors, torch.randn(vocabulary).bfloat16(), torch.randn(vocabulary))


def _block(drafter: Drafter, lanes: int, length: int, drafts: int) -> Callable[[], object]:
    contexts = [torch.randn(length, drafter.row_width) for _ in range(lanes)]
    anchors = list(range(lanes))
    return lambda: drafter.propose(contexts, anchors, [length] * lanes, [drafts] * lanes)


def _rows(drafter: Drafter, rows: int) -> Callable[[], object]:
    hidden = drafter.config.hidden_size
    taps = torch.randn(rows, len(drafter.taps.layers) * hidden).bfloat16()
    positions, tokens = torch.arange(rows), torch.arange(rows)
    return lambda: drafter.context_rows(taps, positions, tokens)


if __name__ == "__main__":
    main()
