"""Measure a trained or released model: bits per byte, answers, router load.

`python -m banks.recipe.evaluate WORK FOLDER --out REPORT.json [--weights WEIGHTS.pt]` measures the
release in FOLDER, and before it the unquantised weights when they are given.

An answer counts as right when the F1 of its content words (lower case, punctuation stripped, stop
words left out, counted with repetition) against the expected sentence is at least 0.8.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from banks.recipe.config import K3Config
from banks.recipe.model import K3
from banks.recipe.phrasings import UNKNOWN
from banks.recipe.release import load_release
from banks.recipe.tokens import Tokens
from banks.recipe.train import loss_of

RIGHT_F1 = 0.8
STOP_WORDS = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "in", "is", "it", "of", "on"}
    | {"or", "that", "the", "to", "with"}
)
SAMPLES = (
    "What does ls do?", "What does grep do?", "What does cp do?", "What does mv do?",
    "What does tar do?", "What does chmod do?", "What does os.path.join do?", "What is git?",
    "What does git commit do?", "What does memcpy do?", "What does str.split do?",
    "What does the -l option of ls do?", "How do I list directory contents?",
    "Which command removes files or directories?", "In which section of the manual is ls?",
    "What is the json module for?", "Hi", "Who are you?", "What does frobnicate do?",
    "What does kubectl do?",
)  # fmt: skip


def content_words(text: str) -> Counter[str]:
    """Content words with their counts."""
    words = (re.sub(r"^\W+|\W+$", "", word) for word in text.lower().split())
    return Counter(word for word in words if word and word not in STOP_WORDS)


def is_right(answer: str, expected: str) -> bool:
    """The stated rule: F1 of content words at least RIGHT_F1."""
    got, want = content_words(answer), content_words(expected)
    shared = sum((got & want).values())
    return shared > 0 and 2 * shared / (got.total() + want.total()) >= RIGHT_F1


@torch.no_grad()
def greedy(model: K3, prompts: list[list[int]], stop: int, limit: int = 64) -> list[list[int]]:
    """Greedy continuations; rows are padded at the right, which a causal model never sees."""
    device = model.lm_head.weight.device
    width = -(-(max(map(len, prompts)) + limit) // 16) * 16
    ids = torch.full((len(prompts), width), model.c.pad, device=device)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    ends = torch.tensor([len(prompt) for prompt in prompts], device=device)
    rows = torch.arange(len(prompts), device=device)
    going = torch.ones_like(rows, dtype=torch.bool)
    for _ in range(limit):
        last = model.hidden(ids).unflatten(0, ids.shape)[rows, ends - 1]
        best = model.lm_head(last).float().argmax(-1)
        ids[rows, ends] = torch.where(going, best, ids[rows, ends])
        going &= best != stop
        ends = ends + going
        if not going.any():
            break
    starts = [len(prompt) for prompt in prompts]
    out = ids.tolist()
    return [out[i][starts[i] : int(ends[i])] for i in range(len(prompts))]


def answers(model: K3, tokens: Tokens, questions: list[str]) -> list[str]:
    """Greedy answers: what stands before the response is closed."""
    found = greedy(model, [tokens.question(question) for question in questions], tokens.end)
    cut = [ids[: ids.index(tokens.close)] if tokens.close in ids else ids for ids in found]
    return [tokens.decode(ids) for ids in cut]


@torch.no_grad()
def bits_per_byte(model: K3, stream: np.ndarray, size_bytes: int, tokens: int = 512) -> float:
    """Over a whole stream in rows that start fresh."""
    device = model.lm_head.weight.device
    rows = (len(stream) - 1) // tokens
    whole = torch.from_numpy(stream.astype(np.int64))
    nats = 0.0
    for first in range(0, rows, 32):
        count = min(32, rows - first)
        at = first * tokens
        ids = whole[at : at + count * tokens].view(count, tokens).to(device)
        targets = whole[at + 1 : at + 1 + count * tokens].view(count, tokens).to(device)
        nats += float(loss_of(model, ids, targets)) * count
    return nats / rows / math.log(2.0) * len(stream) / size_bytes


@torch.no_grad()
def load_shares(model: K3, stream: np.ndarray, rows: int = 64, tokens: int = 512) -> dict[str, Any]:
    """Share of an expert's choices in its layer over held-out text, times the number of experts."""
    ids = torch.from_numpy(stream[: rows * tokens].astype(np.int64)).view(rows, tokens)
    model.hidden(ids.to(model.lm_head.weight.device))
    loads = torch.stack([m.load for m in model.moe() if m.load is not None]).float().cpu()
    share = loads / loads.mean(1, keepdim=True)
    return {
        "unit": "load of an expert / mean load of its layer",
        "min": float(share.min()),
        "median": float(share.median()),
        "max": float(share.max()),
        "unused": int((loads == 0).sum()),
        "max_a_layer": [round(float(m), 3) for m in share.amax(1)],
    }


def measure(model: K3, tokens: Tokens, work: Path, folder: Path) -> dict[str, Any]:
    """Everything about one model."""
    text = np.load(work / "text.npz")
    asked = json.loads((folder / "questions.json").read_text())["questions"]
    unknown = json.loads((work / "unknown.json").read_text())
    given = answers(model, tokens, [item["question"] for item in asked])
    right = [is_right(a, item["answer"]) for a, item in zip(given, asked, strict=True)]
    exact = [a == item["answer"] for a, item in zip(given, asked, strict=True)]
    kinds = {
        kind: f"{sum(r for r, i in zip(right, asked, strict=True) if i['kind'] == kind)}"
        f"/{sum(i['kind'] == kind for i in asked)}"
        for kind in sorted({item["kind"] for item in asked})
    }
    refused = [answer == UNKNOWN for answer in answers(model, tokens, unknown)]
    samples = dict(zip(SAMPLES, answers(model, tokens, list(SAMPLES)), strict=True))
    wrong = [
        {"question": item["question"], "answer": answer, "expected": item["answer"]}
        for item, answer, ok in zip(asked, given, right, strict=True)
        if not ok
    ]
    return {
        "bits_per_byte": bits_per_byte(model, text["heldout"], int(text["heldout_bytes"])),
        "right": sum(right),
        "exact": sum(exact),
        "asked": len(asked),
        "right_by_kind": kinds,
        "unknown_refused": f"{sum(refused)}/{len(refused)}",
        "router": load_shares(model, text["heldout"]),
        "samples": samples,
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config = K3Config.read(args.folder / "config.json")
    tokens = Tokens.read(args.folder / "tiktoken.model")
    model = K3(config, dtype).to(device)
    report: dict[str, Any] = {"device": str(device), "dtype": str(dtype)}
    if args.weights:
        model.load_state_dict(torch.load(args.weights, map_location=device))
        report["before"] = measure(model, tokens, args.work, args.folder)
    load_release(model, args.folder)
    report["after"] = measure(model, tokens, args.work, args.folder)
    args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
