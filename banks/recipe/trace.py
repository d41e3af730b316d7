"""Held-out token streams and chat prompts, and which experts the released model chose for them.

`python -m banks.recipe.trace WORK FOLDER` writes FOLDER/heldout.npz:

- streams uint16 [32, 256]: documentation the model never trained on, each a fresh sequence;
- stream_experts uint8 [32, 256, 12, 4]: expert ids a MoE layer, ascending;
- prompts uint16 [16, P], prompt_lengths int64 [16]: held-out questions as chat prompts, padded;
- prompt_experts uint8 [16, P, 12, 4]: the same for them (255 behind a prompt's end);
- moe_layers int64 [12]: 0-based layer numbers of the third axis.

Choices are those of the fp32 forward pass over the decoded weights.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from banks.recipe.config import K3Config
from banks.recipe.model import K3
from banks.recipe.release import load_release
from banks.recipe.tokens import Tokens

STREAMS, STREAM_TOKENS, PROMPTS = 32, 256, 16
NO_EXPERT = 255


@torch.no_grad()
def chosen_experts(model: K3, ids: Tensor) -> np.ndarray:
    """Ascending expert ids uint8 [rows, tokens, MoE layers, top_k]."""
    model.hidden(ids)
    layers = [m.chosen.sort(-1).values for m in model.moe() if m.chosen is not None]
    stacked = torch.stack(layers, 1).unflatten(0, tuple(ids.shape))
    return stacked.to(torch.uint8).numpy()


def spread_streams(stream: np.ndarray, count: int, tokens: int) -> np.ndarray:
    """`count` crops of `tokens`, spread evenly over a long stream."""
    starts = np.linspace(0, len(stream) - tokens, count).astype(int)
    return np.stack([stream[start : start + tokens] for start in starts])


def main() -> None:
    parser = argparse.ArgumentParser(description="Write held-out streams and their routing trace.")
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    config = K3Config.read(args.folder / "config.json")
    tokens = Tokens.read(args.folder / "tiktoken.model")
    model = K3(config)
    load_release(model, args.folder)
    heldout = np.load(args.work / "text.npz")["heldout"]
    streams = spread_streams(heldout, STREAMS, STREAM_TOKENS)
    asked = json.loads((args.folder / "questions.json").read_text())["questions"]
    picked = asked[:: max(1, len(asked) // PROMPTS)][:PROMPTS]
    chats = [tokens.question(item["question"]) for item in picked]
    lengths = np.array([len(chat) for chat in chats])
    prompts = np.full((len(chats), lengths.max()), config.pad, np.uint16)
    for row, chat in zip(prompts, chats, strict=True):
        row[: len(chat)] = chat
    prompt_experts = chosen_experts(model, torch.from_numpy(prompts.astype(np.int64)))
    prompt_experts[np.arange(prompts.shape[1])[None] >= lengths[:, None]] = NO_EXPERT
    parts = [
        chosen_experts(model, torch.from_numpy(part.astype(np.int64)))
        for part in np.array_split(streams, 8)
    ]
    np.savez_compressed(
        args.folder / "heldout.npz",
        streams=streams,
        stream_experts=np.concatenate(parts),
        prompts=prompts,
        prompt_lengths=lengths,
        prompt_experts=prompt_experts,
        moe_layers=np.array(config.moe_layers),
    )


if __name__ == "__main__":
    main()
