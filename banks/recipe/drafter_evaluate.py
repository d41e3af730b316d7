"""Measure a drafter on held-out text of its target: acceptance by domain, calibration.

`python -m banks.recipe.drafter_evaluate FOLDER DRAFTER --out REPORT.json` writes what the target
in FOLDER answers to held-out questions and how it carries on held-out documentation, greedily, on
a CPU in fp32, and replays the drafter of DRAFTER over it. Questions and documentation are others
than those the confidence temperatures were fitted on (`drafter_export`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from banks.recipe.config import K3Config
from banks.recipe.drafter_calibrate import calibration_error, survival
from banks.recipe.drafter_export import (
    CHAT_TOKENS,
    PREFIX,
    STREAM_TOKENS,
    calibrates,
    read_drafter,
)
from banks.recipe.drafter_rounds import Rounds, replayed
from banks.recipe.drafter_target import freeze
from banks.recipe.drafter_text import Prompts, padded_prompts, questions, written
from banks.recipe.model import K3
from banks.recipe.release import load_release
from banks.recipe.tokens import Tokens


def figures(rounds: Sequence[Rounds], temperatures: Sequence[float]) -> dict[str, Any]:
    """What PROVENANCE says about one domain; the error of confidence before and after."""
    every = Rounds.joined(rounds)
    good, known = every.survived()
    plain = survival(every.confidence, [1.0] * len(temperatures))
    fitted = survival(every.confidence, temperatures)
    return {
        "rows": len(rounds),
        "rounds": len(every.accepted),
        "acceptance_length": every.length,
        "lowest_row": min(r.length for r in rounds),
        "conditional_acceptance": every.by_position(),
        "survival": [float(good[known[:, k], k].mean()) for k in range(good.shape[1])],
        "calibration_error_before": calibration_error(plain, good, known),
        "calibration_error_after": calibration_error(fitted, good, known),
    }


def measure(folder: Path, place: Path, asked: int | None, streams: int | None) -> dict[str, Any]:
    """Acceptance of the drafter at `place` on held-out text of the release in `folder`, or on the
    first so many questions and streams of it.
    """
    config = K3Config.read(folder / "config.json")
    model = K3(config)
    load_release(model, folder)
    freeze(model)
    drafter, temperatures = read_drafter(place)
    embed, head = model.model.embed_tokens.weight, model.lm_head.weight
    stop, taps = Tokens.read(folder / "tiktoken.model").end, drafter.c.taps
    kept = [item for i, item in enumerate(questions(folder)) if not calibrates(i)][:asked]
    prompts = padded_prompts([prompt for _, prompt in kept], config.pad)
    chat = replayed(drafter, embed, head, written(model, prompts, CHAT_TOKENS, taps, stop))
    crops = np.load(folder / "heldout.npz")["streams"][:streams, :PREFIX].astype(np.int64)
    sizes = torch.full((len(crops),), PREFIX)
    documents = Prompts(torch.from_numpy(crops), sizes, torch.zeros(len(crops)))
    carried = written(model, documents, STREAM_TOKENS, taps)
    stream = replayed(drafter, embed, head, carried)
    shorter = {
        count: replace(carried, ends=torch.full_like(carried.ends, PREFIX + count))
        for count in (32, 64, 96)
    }
    by_kind: dict[str, list[Rounds]] = {}
    for (kind, _), rounds in zip(kept, chat, strict=True):
        by_kind.setdefault(kind, []).append(rounds)
    return {
        "chat": figures(chat, temperatures),
        "documentation": figures(stream, temperatures),
        "chat_by_kind": {k: Rounds.joined(v).length for k, v in sorted(by_kind.items())},
        "documentation_by_tokens": {
            count: Rounds.joined(replayed(drafter, embed, head, text)).length
            for count, text in shorter.items()
        },
        "temperatures": temperatures,
        "parameters": sum(parameter.numel() for parameter in drafter.parameters()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("drafter", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--questions", type=int)
    parser.add_argument("--streams", type=int)
    args = parser.parse_args()
    begin = time.perf_counter()
    report = measure(args.folder, args.drafter, args.questions, args.streams)
    report["seconds"] = time.perf_counter() - begin
    args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
