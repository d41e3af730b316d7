"""The model without a pod: every expert in this process, for comparison with other engines."""

from __future__ import annotations

from pathlib import Path

import torch
from blake3 import blake3
from torch import Tensor

from k3d.engine.engine import Engine, Limits
from k3d.engine.request import ErrorEvent, Request, TokenEvent
from k3d.errors import ConfigError, K3Error
from k3d.experts.dispatch import DTYPES
from k3d.experts.hop_log import HopLog
from k3d.experts.source import ExpertSource
from k3d.experts.tiers import ExpertTiers, LocalTier
from k3d.experts.worker import SliceWorker
from k3d.model.checkpoint import Checkpoint, Leftover
from k3d.model.kimi_k3 import KimiK3, Span
from k3d.model.lane_state import LaneState
from k3d.model.row_pages import RowPages, pages_for
from k3d.model.weights import load_weights


class OfflineModel:
    """A checkpoint loaded whole; `leftover` says what a text model does not read."""

    leftover: Leftover

    def __init__(self, folder: Path, dtype: str, max_rows: int) -> None:
        torch.set_num_threads(1)  # reductions keep one order
        checkpoint = Checkpoint(folder)
        weights = load_weights(checkpoint, fine=DTYPES[dtype] is torch.float64)
        self.config = checkpoint.config
        self.model = KimiK3(self.config, weights, DTYPES[dtype], max_rows)
        self.experts = local_experts(ExpertSource(checkpoint))
        self.leftover = checkpoint.finish()

    def logits(self, ids: list[int], chunk: int) -> Tensor:
        """f64 [len(ids), vocab]: row t after ids[0..t]."""
        self._check(ids)
        lane = LaneState.alone(self.config, self.model.dtype, len(ids))
        rows = []
        with torch.inference_mode():
            for start in range(0, len(ids), chunk):
                span = Span(lane, ids[start : start + chunk])
                rows.append(self.model.forward([span], self.experts, slice(None)).logits)
                self.model.commit(span, len(span.tokens))
        logits = torch.cat(rows)
        if not torch.isfinite(logits).all():
            raise K3Error("the checkpoint gives logits that are not numbers")
        return logits

    def generate(self, ids: list[int], max_tokens: int, chunk: int) -> list[int]:
        """Greedy continuation; stops after max_tokens, never at a stop id."""
        limits = _limits(self.model, len(ids) + max_tokens)
        engine = Engine(self.model, self.experts, chunk, limits)
        engine.submit(Request("offline", tuple(ids), max_tokens))
        tokens: list[int] = []
        while not engine.idle:
            for event in engine.step():
                if isinstance(event, TokenEvent):
                    tokens.append(event.token)
                elif isinstance(event, ErrorEvent):
                    raise event.error
        return tokens

    def _check(self, ids: list[int]) -> None:
        if not ids:
            raise ConfigError("no token ids are given")
        bad = next((i for i in ids if not 0 <= i < self.config.vocab_size), None)
        if bad is not None:
            raise ConfigError(f"token id {bad} is not in a vocabulary of {self.config.vocab_size}")


def _limits(model: KimiK3, positions: int) -> Limits:
    """Room for one sequence, and nothing kept for another."""
    row_bytes = RowPages.bytes_each(model.config, model.dtype) * pages_for(positions)
    return Limits(lanes=1, max_positions=positions, row_bytes=row_bytes, snapshot_bytes=0)


def local_experts(source: ExpertSource) -> ExpertTiers:
    """Every expert of a checkpoint in one local tier."""
    shape = source.shape
    worker = SliceWorker(shape, len(shape.layers) * shape.experts, name="local")
    slot = 0
    for layer in shape.layers:
        for expert in range(shape.experts):
            record = source.record(layer, expert)
            worker.load(slot, layer, expert, memoryview(record), blake3(record).digest())
            slot += 1
    table = torch.zeros(max(shape.layers) + 1, shape.experts, dtype=torch.int8)
    return ExpertTiers(shape, [LocalTier("local", worker)], table, HopLog(("local",)))
