"""Training rows, drawn on the device: crops of the text stream and packed chats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

IGNORED = -100


class TextRows:
    """Random crops of one long token stream."""

    def __init__(self, stream: np.ndarray, device: torch.device) -> None:
        self.stream = torch.from_numpy(stream.astype(np.int32)).to(device)

    def draw(self, rows: int, tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Inputs and targets [rows, tokens]."""
        limit = self.stream.shape[0] - tokens - 1
        device = self.stream.device
        start = torch.randint(limit, (rows, 1), generator=generator, device=device)
        crop = self.stream[start + torch.arange(tokens + 1, device=device)].long()
        return crop[:, :-1], crop[:, 1:]


class ChatRows:
    """Chats drawn by weight, one conversation a row, loss on the answers alone."""

    def __init__(self, path: Path, pad: int, device: torch.device) -> None:
        chats = np.load(path)
        self.tokens = torch.from_numpy(chats["tokens"].astype(np.int32)).to(device)
        self.offsets = torch.from_numpy(chats["offsets"]).to(device)
        self.prompts = torch.from_numpy(chats["prompts"].astype(np.int64)).to(device)
        self.weights = torch.from_numpy(chats["weights"]).to(device)
        self.pad = pad

    def draw(self, rows: int, tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Inputs and targets [rows, tokens]: chats follow each other while they fit."""
        device = self.tokens.device
        turns = max(2, tokens // 40)
        picks = torch.multinomial(self.weights, rows * turns, replacement=True, generator=generator)
        position = torch.arange(tokens + 1, device=device)[None]
        ids = torch.full((rows, tokens + 1), self.pad, device=device, dtype=torch.int64)
        answer = torch.zeros((rows, tokens + 1), device=device, dtype=torch.bool)
        filled = torch.zeros((rows, 1), device=device, dtype=torch.int64)
        for pick in picks.view(turns, rows, 1):
            first = self.offsets[pick]
            length = self.offsets[pick + 1] - first
            length = torch.where(filled + length <= tokens + 1, length, 0)
            local = position - filled
            inside = (local >= 0) & (local < length)
            source = (first + local).clamp(0, self.tokens.shape[0] - 1)
            ids = torch.where(inside, self.tokens[source].long(), ids)
            answer |= inside & (local >= self.prompts[pick])
            filled = filled + length
        return ids[:, :-1], torch.where(answer, ids, IGNORED)[:, 1:]
