"""Text for a drafter: what the target itself writes, and some of what it was trained on.

Prompts are fed and answers drawn token by token for thousands of rows at once; taps and final rows
are kept as they arise, so that training never runs the target again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from banks.recipe.drafter_target import Decoder, features
from banks.recipe.model import K3
from banks.recipe.tokens import Tokens


@dataclass(frozen=True)
class Prompts:
    """ids int64 [rows, width], padded at the right; lengths int64, temperatures fp32 [rows]."""

    ids: Tensor
    lengths: Tensor
    temperatures: Tensor

    def rows(self, first: int, last: int) -> Prompts:
        """The prompts first..last-1."""
        return Prompts(*(getattr(self, f.name)[first:last] for f in fields(self)))


@dataclass(frozen=True)
class Text:
    """Rows of equal length with what the target computed on them.

    ids int64 [rows, tokens]; taps [rows, tokens, ..] and last [rows, tokens, hidden] in the
    compute dtype; anchors of a row are starts <= p < ends - 1, its tokens end before `ends`.
    """

    ids: Tensor
    taps: Tensor
    last: Tensor
    starts: Tensor
    ends: Tensor

    def rows(self, first: int, last: int) -> Text:
        """The rows first..last-1, without a copy."""
        return Text(*(getattr(self, f.name)[first:last] for f in fields(self)))

    @staticmethod
    def joined(parts: list[Text]) -> Text:
        """All rows of parts of one length; each part is freed as it is copied."""
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(Text)}
        parts.clear()
        return Text(**{name: torch.cat(columns.pop(name)) for name in list(columns)})


def document_prompts(
    stream: np.ndarray, rows: int, lengths: tuple[int, int], generator: np.random.Generator,
    greedy: float,
) -> Prompts:  # fmt: skip
    """Crops of a token stream of random length as prompts; a share `greedy` is greedy, the rest
    drawn at temperature 0.7 to 1.
    """
    low, high = lengths
    starts = generator.integers(0, len(stream) - high, rows)
    ids = stream[starts[:, None] + np.arange(high)].astype(np.int64)
    sizes = generator.integers(low, high + 1, rows)
    return Prompts(
        torch.from_numpy(ids), torch.from_numpy(sizes), temperatures(rows, generator, greedy)
    )


def temperatures(rows: int, generator: np.random.Generator, greedy: float) -> Tensor:
    """0 for a share `greedy` of the rows, 0.7 to 1 for the rest; fp32 [rows]."""
    drawn = generator.uniform(0.7, 1.0, rows)
    return torch.from_numpy(np.where(generator.random(rows) < greedy, 0.0, drawn)).float()


def padded_prompts(prompts: list[list[int]], pad: int) -> Prompts:
    """Greedy prompts from lists of ids."""
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    ids = torch.full((len(prompts), int(lengths.max())), pad)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt)
    return Prompts(ids, lengths, torch.zeros(len(prompts)))


def chat_prompts(
    chats: dict[str, np.ndarray], rows: int, pad: int, generator: np.random.Generator,
    greedy: float,
) -> Prompts:  # fmt: skip
    """Questions of the training chats, without their answers, drawn half by weight, half evenly."""
    weights = chats["weights"].astype(np.float64)
    share = 0.5 * weights / weights.sum() + 0.5 / len(weights)
    picks = generator.choice(len(weights), rows, replace=rows > len(weights), p=share)
    lengths = chats["prompts"][picks].astype(np.int64)
    at = chats["offsets"][picks][:, None] + np.arange(lengths.max())
    ids = chats["tokens"][at.clip(max=len(chats["tokens"]) - 1)].astype(np.int64)
    ids[np.arange(ids.shape[1])[None] >= lengths[:, None]] = pad
    return Prompts(
        torch.from_numpy(ids), torch.from_numpy(lengths), temperatures(rows, generator, greedy)
    )


@torch.no_grad()
def written(
    model: K3, prompts: Prompts, tokens: int, taps: tuple[int, ...], stop: int | None = None
) -> Text:
    """Rows of `tokens` ids in which the target goes on after each prompt.

    A row ends behind the first `stop` after its prompt; what follows it means nothing.
    """
    device = model.lm_head.weight.device
    lengths, temperature = prompts.lengths.to(device), prompts.temperatures.to(device)[:, None]
    given = prompts.ids[:, :tokens].to(device)
    rows, width = given.shape
    decoder = Decoder(model, rows, tokens, taps)
    ids = torch.zeros(rows, tokens, dtype=torch.int64, device=device)
    text = Text(
        ids,
        torch.empty(rows, tokens, len(taps) * model.c.hidden, dtype=model.dtype, device=device),
        torch.empty(rows, tokens, model.c.hidden, dtype=model.dtype, device=device),
        lengths,
        torch.full_like(lengths, tokens),
    )
    head = model.lm_head.weight.float()
    drawn = given[:, 0]
    for t in range(tokens):
        if t < width:
            drawn = torch.where(t < lengths, given[:, t], drawn)
        ids[:, t] = drawn
        text.taps[:, t], text.last[:, t] = decoder.step(drawn)
        logits = text.last[:, t].float() @ head.T  # greedy ties are rare in fp32 alone
        noise = -torch.empty_like(logits).exponential_().log()  # Gumbel
        drawn = (logits + temperature * noise).argmax(-1)
    if stop is not None:
        place = torch.arange(tokens, device=device)
        stops = (ids == stop) & (place >= lengths[:, None])
        first = torch.where(stops, place, tokens - 1).amin(1)
        text.ends.copy_(first + 1)
    return text


def corpus_rows(model: K3, ids: Tensor, starts: int, taps: tuple[int, ...], group: int) -> Text:
    """Given rows ids [rows, tokens], with anchors from `starts` on; `group` rows at a time."""
    device = model.lm_head.weight.device
    tokens = ids.shape[1]
    parts: list[Text] = []
    for part in ids.split(group):
        part = part.to(device)
        tapped, last = features(model, part, taps)
        first = torch.full((part.shape[0],), starts, device=device)
        parts.append(Text(part, tapped, last, first, torch.full_like(first, tokens)))
    return Text.joined(parts)


def chat_streams(
    chats: dict[str, np.ndarray], rows: int, tokens: int, generator: np.random.Generator
) -> Tensor:
    """Conversations: training chats by weight laid end to end, ids int64 [rows, tokens]."""
    weights = chats["weights"].astype(np.float64)
    offsets, every = chats["offsets"], chats["tokens"]
    turns = -(-tokens // int(np.diff(offsets).min()))  # enough of the shortest
    picks = generator.choice(len(weights), (rows, turns), p=weights / weights.sum())
    out = [
        np.concatenate([every[offsets[i] : offsets[i + 1]] for i in row])[:tokens] for row in picks
    ]
    return torch.from_numpy(np.stack(out).astype(np.int64))


def questions(folder: Path) -> list[tuple[str, list[int]]]:
    """The held-out questions of a release: their kinds, and them as chat prompts."""
    tokens = Tokens.read(folder / "tiktoken.model")
    asked = json.loads((folder / "questions.json").read_text())["questions"]
    return [(item["kind"], tokens.question(item["question"])) for item in asked]
