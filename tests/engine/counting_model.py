"""A model whose logits are known: for the engine's own logic, without arithmetic to wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from k3d.errors import K3Error
from k3d.model.config import ModelConfig
from k3d.model.kimi_k3 import KimiK3, PassResult, Span
from k3d.model.lane_state import Snapshots, Workspace
from k3d.model.row_pages import PAGE_ROWS
from k3d.model.taps import Taps
from tests.tiny_checkpoint import TinyModel

VOCAB = 384


def tiny_config() -> ModelConfig:
    return ModelConfig.from_document(TinyModel().config(), Path("config.json"))


class CountingModel:
    """After token t the best next token is t + 1, the second best t + 2. Notes its passes."""

    def __init__(self, max_rows: int = 8) -> None:
        self.config = replace(tiny_config(), max_positions=None)
        self.dtype = torch.float32
        self.max_rows = max_rows
        self.passes: list[list[list[int]]] = []
        self.fail_next: list[K3Error] = []
        self.poison: float | None = None
        self.poison_from = 0
        self._workspace = Workspace(self.config, self.dtype)

    def forward(
        self, spans: Sequence[Span], experts: Any, wanted: Tensor, taps: Taps | None = None
    ) -> PassResult:
        tokens = [token for span in spans for token in span.tokens]
        assert len(tokens) <= self.max_rows
        assert sum(not span.ahead for span in spans) <= 1
        for span in spans:
            work = None if span.ahead else self._workspace
            span.lane.begin(len(span.tokens), work, span.snapshot_every, span.snapshot_until)
        if self.fail_next:
            raise self.fail_next.pop(0)
        self.passes.append([list(span.tokens) for span in spans])
        logits = torch.zeros(len(tokens), VOCAB, dtype=torch.float64)
        for row, token in enumerate(tokens):
            logits[row, (token + 1) % VOCAB] = 3.0
            logits[row, (token + 2) % VOCAB] = 2.0
            if self.poison is not None and token >= self.poison_from:
                logits[row, 5] = self.poison
        tapped = torch.tensor(tokens, dtype=torch.float32).unsqueeze(-1) if taps else None
        return PassResult(logits[wanted], tapped)

    def commit(self, span: Span, rows: int) -> Snapshots:
        """State of a model without recurrence: positions only."""
        lane = span.lane
        before, lane.position = lane.position, lane.position + rows
        until = lane.position if span.snapshot_until is None else span.snapshot_until
        border = min(lane.position, until) // PAGE_ROWS * PAGE_ROWS
        return {border: lane.kda.snapshot()} if before < border and span.snapshot_every else {}

    def as_model(self) -> KimiK3:
        return cast(KimiK3, self)


class NoExperts:
    """Routed experts of a model that asks for none; counts what was abandoned."""

    def __init__(self) -> None:
        self.abandoned = 0

    def start(self, layer: int, ids: Tensor, weights: Tensor, x: Tensor) -> None:
        raise AssertionError("no layer asks")

    def finish(self) -> Tensor:
        raise AssertionError("no layer asks")

    def abandon(self) -> None:
        self.abandoned += 1


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
