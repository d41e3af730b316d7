"""What a pass costs by its rows: python kernels/bench/pass_rows.py [CHECKPOINT] [--dtype bf16].

Each count of rows is run on a fresh lane behind the same prompt, counts in turns, and the best of
each is shown with the line a + b r fitted to 1..16 rows. Figures are of the machine at hand; the
ratio of b to a is what tells whether drafting several rows pays.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

from k3d.engine.offline import OfflineModel
from k3d.model.kimi_k3 import Span
from k3d.model.lane_state import LaneState

ROWS = (1, 2, 4, 8, 16, 64, 256)
FITTED = 16
PROMPT = 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", nargs="?", type=Path, default=Path("banks/k3-mini"))
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    offline = OfflineModel(options.checkpoint, options.dtype, max(ROWS))
    best = {rows: float("inf") for rows in ROWS}
    for _ in range(options.rounds):
        for rows in ROWS:
            best[rows] = min(best[rows], _pass_s(offline, rows))
    fitted = [rows for rows in ROWS if rows <= FITTED]
    slope, start = np.polyfit(fitted, [1e3 * best[rows] for rows in fitted], 1)
    lines = ["rows  pass ms  ms a row"]
    lines += [f"{rows:4}  {1e3 * best[rows]:7.2f}  {1e3 * best[rows] / rows:8.2f}" for rows in ROWS]
    lines.append(f"pass(r) = {start:.2f} + {slope:.2f} r ms for r <= {FITTED} (measured)")
    sys.stdout.write("\n".join(lines) + "\n")


def _pass_s(offline: OfflineModel, rows: int) -> float:
    """Seconds of one pass of `rows` rows behind a prompt."""
    model = offline.model
    lane = LaneState.alone(offline.config, model.dtype, PROMPT + rows)
    ids = [each * 37 % 256 for each in range(PROMPT + rows)]
    with torch.inference_mode():
        prompt = Span(lane, ids[:PROMPT])
        model.forward([prompt], offline.experts, slice(-1, None))
        model.commit(prompt, PROMPT)
        begun = time.perf_counter()
        span = Span(lane, ids[PROMPT:], ahead=rows <= FITTED)
        model.forward([span], offline.experts, slice(None))
        model.commit(span, rows)
        return time.perf_counter() - begun


if __name__ == "__main__":
    main()
