"""A drafter's folder: config.json with confidence temperatures, model.safetensors in bf16.

`python -m banks.recipe.drafter_export WORK FOLDER PLACE` writes the drafter of WORK/drafter.pt and
WORK/drafter.json for the release in FOLDER to PLACE. Its temperatures are fitted to real rounds on
every third held-out question and on held-out documentation from WORK/text.npz, halfway between
the streams of FOLDER/heldout.npz.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from banks.recipe.config import K3Config
from banks.recipe.drafter_calibrate import fitted_temperatures
from banks.recipe.drafter_model import Drafter, DrafterConfig
from banks.recipe.drafter_rounds import Rounds, replayed
from banks.recipe.drafter_target import freeze
from banks.recipe.drafter_text import Prompts, padded_prompts, questions, written
from banks.recipe.model import K3
from banks.recipe.release import load_release
from banks.recipe.tokens import Tokens
from banks.recipe.trace import STREAMS

LIMIT_BYTES = 6_000_000  # of the folder
CHAT_TOKENS, STREAM_TOKENS, PREFIX = 120, 256, 128


def calibrates(number: int) -> bool:
    """Whether held-out question `number` is for the temperatures, not for the evaluation."""
    return number % 3 == 0


def write_drafter(drafter: Drafter, temperatures: Sequence[float], place: Path) -> None:
    """Config and weights of `drafter`; temperatures divide the confidence logits."""
    place.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in drafter.state_dict().items()
    }
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    (place / "model.safetensors").chmod(0o644)  # the library writes 0600
    config = drafter.c.published_json() | {"confidence_temperatures": list(temperatures)}
    (place / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def read_drafter(place: Path) -> tuple[Drafter, list[float]]:
    """The drafter in `place`, fp32, and its confidence temperatures."""
    config = json.loads((place / "config.json").read_text())
    drafter = Drafter(DrafterConfig.from_json(config))
    weights = load_file(place / "model.safetensors")
    drafter.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    drafter.requires_grad_(False)
    return drafter, config["confidence_temperatures"]


def crops_between(stream: np.ndarray, count: int, tokens: int) -> np.ndarray:
    """`count` crops halfway between those of `trace.spread_streams`, int64 [count, tokens]."""
    edges = np.linspace(0, len(stream) - STREAM_TOKENS, count + 1)
    starts = ((edges[1:] + edges[:-1]) / 2).astype(int)
    return np.stack([stream[start : start + tokens] for start in starts]).astype(np.int64)


def fit(drafter: Drafter, work: Path, folder: Path) -> list[float]:
    """Confidence temperatures of `drafter` for the release in `folder`."""
    config = K3Config.read(folder / "config.json")
    model = K3(config)
    load_release(model, folder)
    freeze(model)
    embed, head, taps = model.model.embed_tokens.weight, model.lm_head.weight, drafter.c.taps
    chosen = [prompt for i, (_, prompt) in enumerate(questions(folder)) if calibrates(i)]
    stop = Tokens.read(folder / "tiktoken.model").end
    chat = written(model, padded_prompts(chosen, config.pad), CHAT_TOKENS, taps, stop)
    crops = crops_between(np.load(work / "text.npz")["heldout"], STREAMS - 1, PREFIX)
    sizes = torch.full((len(crops),), PREFIX)
    prompts = Prompts(torch.from_numpy(crops), sizes, torch.zeros(len(crops)))
    stream = written(model, prompts, STREAM_TOKENS, taps)
    rounds = [replayed(drafter, embed, head, text) for text in (chat, stream)]
    every = Rounds.joined([one for part in rounds for one in part])
    return fitted_temperatures(every.confidence, *every.survived())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("place", type=Path)
    args = parser.parse_args()
    shape = json.loads((args.work / "drafter.json").read_text())["shape"]
    trained = Drafter(DrafterConfig(**shape | {"taps": tuple(shape["taps"])}))
    trained.load_state_dict(torch.load(args.work / "drafter.pt", map_location="cpu"))
    write_drafter(trained, [1.0] * trained.c.block, args.place)
    drafter, _ = read_drafter(args.place)  # as shipped, rounded to bf16
    write_drafter(drafter, fit(drafter, args.work, args.folder), args.place)
    size_bytes = sum(path.stat().st_size for path in args.place.iterdir())
    if size_bytes > LIMIT_BYTES:
        parser.error(f"{args.place} has {size_bytes} bytes; at most {LIMIT_BYTES} are shipped")


if __name__ == "__main__":
    main()
