"""One training step of a drafter: rows and anchors drawn, blocks run, loss and gradient.

The widths are so small that launching kernels one by one takes longer than running them; on a GPU
forward and backward over one text are one captured CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from banks.recipe.drafter_loss import drafter_loss, position_weights
from banks.recipe.drafter_model import Drafter
from banks.recipe.drafter_text import Text


@dataclass(frozen=True)
class Source:
    """One kind of text: its rows, their tokens, and how a step draws from it."""

    rows: int
    tokens: int
    group: int
    step_rows: int
    step_anchors: int
    share: float


def draw(text: Text, source: Source, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random rows int64 [rows] and random anchors of each int64 [rows, blocks], both repeating."""
    device = text.ids.device
    shape = (source.step_rows, source.step_anchors)
    picks = torch.randint(text.ids.shape[0], shape[:1], generator=generator, device=device)
    places = torch.rand(shape, generator=generator, device=device)
    span = (text.ends[picks] - 1 - text.starts[picks]).clamp_min(1)[:, None]
    anchors = text.starts[picks][:, None] + (places * span).long().clamp(max=span - 1)
    return picks, anchors


def batch_loss(
    drafter: Drafter, embed: Tensor, head: Tensor, text: Text, picks: Tensor, anchors: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss over blocks at `anchors` of rows `picks`; beside it, of the drafts inside their rows,
    the mean sum of min(p_draft, p_target) by position [block], and the weighted CE.

    embed and head [vocab, hidden] are the target's in the compute dtype.
    """
    block = drafter.c.block
    rows, tokens = len(picks), text.ids.shape[1]
    ids, taps, last = text.ids[picks], text.taps[picks], text.last[picks]
    h = drafter.blocks(embed, ids, taps, anchors).flatten(0, 2)
    places = anchors[..., None] + torch.arange(block + 1, device=h.device)
    inside = places[..., 1:] < text.ends[picks][:, None, None]
    places = places.clamp(max=tokens - 1)
    shown = ids.gather(1, places.flatten(1)).view(rows, -1, block + 1)
    before, truth = shown[..., :-1].flatten(), shown[..., 1:].flatten()
    seen = places[..., :-1].flatten(1)[..., None]
    known = last.gather(1, seen.expand(-1, -1, last.shape[2])).flatten(0, 1)
    logits = known.float() @ head.float().T
    weight = (inside * position_weights(block, h.device)).flatten()
    weight = weight / weight.sum()
    markov = drafter.markov_head
    e = markov.markov_w1.weight.index_select(0, before).to(h.dtype)
    confidence = drafter.confidence_head(h, e)
    w2 = markov.markov_w2.weight
    loss, accepted, ce = drafter_loss(h, e, head, w2, logits, truth, weight, confidence)
    counted = inside.flatten(0, 1).float()
    chances = (accepted.view(-1, block) * counted).sum(0) / counted.sum(0).clamp_min(1.0)
    return loss, chances, (ce * weight).sum()


class StepPass:
    """Forward and backward of a step on one text; on a GPU, one captured CUDA graph.

    Gradients add up in the parameters' `grad`, which must exist and keep its place.
    """

    def __init__(
        self, drafter: Drafter, embed: Tensor, head: Tensor, text: Text, source: Source
    ) -> None:
        self.drafter, self.embed, self.head, self.text = drafter, embed, head, text
        device = text.ids.device
        self.picks = torch.zeros(source.step_rows, dtype=torch.int64, device=device)
        shape = (source.step_rows, source.step_anchors)
        self.anchors = torch.full(shape, int(text.starts[0]), device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.result: tuple[Tensor, Tensor, Tensor] | None = None

    def pass_through(self) -> tuple[Tensor, Tensor, Tensor]:
        """What `batch_loss` gives, its gradient added."""
        loss, chances, ce = batch_loss(
            self.drafter, self.embed, self.head, self.text, self.picks, self.anchors
        )
        loss.backward()
        return loss.detach(), chances.detach(), ce.detach()

    def capture(self) -> None:
        """Warm up on a side stream, then capture; the gradients made by it mean nothing."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.pass_through()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = self.pass_through()

    def __call__(self, picks: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.picks.copy_(picks)
        self.anchors.copy_(anchors)
        if self.graph is None or self.result is None:
            return self.pass_through()
        self.graph.replay()
        return self.result
