"""DSpark: one pass drafts a whole block, and a small head ties each draft to the one before.

The block is the anchor's embedding followed by the mask's; row j is at the anchor's position + j
and predicts the token after it, so the anchor's own row gives the first draft. The context are
projected taps of committed positions, which enter every layer's keys and values directly. The
functions are differentiable in the weights; `DSparkDrafter` is what the engine calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm

from k3d.model.drafter.attention import attend
from k3d.model.drafter.config import BlockDrafting, DrafterConfig
from k3d.model.drafter.layer import DraftLayer
from k3d.model.drafter.proposal import Proposal, propose_with, trimmed
from k3d.model.taps import Taps


@dataclass(frozen=True)
class DSparkWeights:
    """Float32. context_proj [layers * row_width, hidden] makes all layers' context rows at once;
    confidence [hidden + rank] and its bias [1]."""

    config: DrafterConfig
    fc: Tensor
    context_norm: Tensor
    context_proj: Tensor
    layers: tuple[DraftLayer, ...]
    norm: Tensor
    markov_w1: Tensor
    markov_w2: Tensor
    confidence: Tensor
    confidence_bias: Tensor

    @classmethod
    def from_tensors(cls, config: DrafterConfig, tensors: Mapping[str, Tensor]) -> DSparkWeights:
        """From float32 tensors by their part's name (layouts); gradients reach the tensors."""
        layers = tuple(
            DraftLayer.from_tensors(config, tensors, layer) for layer in range(config.layers)
        )
        return cls(
            config,
            tensors["fc.weight"],
            tensors["hidden_norm.weight"],
            torch.cat([layer.attention.row_proj for layer in layers]),
            layers,
            tensors["norm.weight"],
            tensors["markov_head.markov_w1.weight"],
            tensors["markov_head.markov_w2.weight"],
            tensors["confidence_head.proj.weight"][0],
            tensors["confidence_head.proj.bias"],
        )


@dataclass(frozen=True)
class BlockContext:
    """The context of `blocks` consecutive blocks of a pass: rows f32 [p, row_width].

    visible bool [blocks, p] says what each block sees. None, for a block whose anchor follows the
    last row: everything, within each layer's window.
    """

    rows: Tensor
    blocks: int = 1
    visible: Tensor | None = None


def context_rows(weights: DSparkWeights, taps: Tensor, positions: Tensor) -> Tensor:
    """taps [rows, taps * hidden] at positions i64 [rows] -> f32 [rows, row_width]."""
    config = weights.config
    features = rms_norm(
        linear(taps.float(), weights.fc),
        (config.hidden_size,),
        weights.context_norm,
        config.rms_norm_eps,
    )
    turn = config.rope.at(positions)
    raw = linear(features, weights.context_proj).chunk(config.layers, dim=-1)
    rows = [
        layer.attention.rows(part, turn) for layer, part in zip(weights.layers, raw, strict=True)
    ]
    return torch.cat(rows, dim=-1)


def block_hidden(
    weights: DSparkWeights, embedded: Tensor, anchors_at: Tensor, contexts: Sequence[BlockContext]
) -> Tensor:
    """The block pass: embedded f32 [blocks, rows, hidden], anchors at positions i64 [blocks] ->
    final normed hidden rows, the same shape. Contexts cover the blocks in order."""
    config = weights.config
    blocks, rows, hidden = embedded.shape
    width = config.attention.row_width
    turn = config.rope.at((anchors_at.unsqueeze(1) + torch.arange(rows)).flatten())
    h = embedded.reshape(-1, hidden)
    for index, layer in enumerate(weights.layers):
        x = rms_norm(h, (hidden,), layer.input_norm, config.rms_norm_eps)
        query, own = layer.attention.project(x, turn)
        query, own = query.view(blocks, rows, *query.shape[1:]), own.view(blocks, rows, width)
        attended, first = [], 0
        for context in contexts:
            block = slice(first, first + context.blocks)
            first += context.blocks
            kept = context.rows[:, index * width : (index + 1) * width]
            visible, window = context.visible, config.windows[index]
            if window is not None and visible is None:
                kept = kept[-window:]
            elif window is not None and visible is not None:
                near = torch.arange(kept.shape[0]) >= anchors_at[block].unsqueeze(1) - window
                visible = visible & near
            attended.append(
                attend(
                    layer.attention,
                    query[block],
                    kept,
                    own[block],
                    visible=visible,
                    causal=config.causal[index],
                )
            )
        together = attended[0] if len(attended) == 1 else torch.cat(attended)
        h = h + layer.attention.output(together.flatten(0, 1))
        h = h + layer.mlp(rms_norm(h, (hidden,), layer.post_norm, config.rms_norm_eps))
    h = rms_norm(h, (hidden,), weights.norm, config.rms_norm_eps)
    return h.view(blocks, rows, hidden)


def confidence_logits(weights: DSparkWeights, hidden: Tensor, previous: Tensor) -> Tensor:
    """How likely each draft is accepted, before calibration: hidden [..., hidden] and the Markov
    embedding [..., rank] of the token before the draft -> [...]."""
    joined = torch.cat((hidden, previous), dim=-1)
    return joined @ weights.confidence + weights.confidence_bias


class DSparkDrafter:
    """Drafts with weights of the model's own: embed [vocab, hidden], head f32 [vocab, hidden]."""

    def __init__(self, weights: DSparkWeights, embed: Tensor, head: Tensor) -> None:
        config = weights.config
        assert isinstance(config.drafting, BlockDrafting)
        self.config = config
        self.weights = weights
        self.embed = embed
        self.head = head
        self._mask = embed[config.drafting.mask_id].float()
        self._temperatures = torch.tensor(config.drafting.temperatures)

    @property
    def block(self) -> int:
        return self.config.block

    @property
    def taps(self) -> Taps:
        return self.config.taps

    @property
    def row_width(self) -> int:
        return self.config.row_width

    @torch.no_grad()
    def context_rows(self, taps: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """See Drafter. The following tokens play no part here."""
        return context_rows(self.weights, taps, positions)

    @torch.inference_mode()
    def propose(
        self,
        contexts: Sequence[Tensor],
        anchors: Sequence[int],
        positions: Sequence[int],
        counts: Sequence[int],
        context_starts: Sequence[int] | None = None,
    ) -> list[Proposal]:
        """See Drafter."""
        asked = (contexts, anchors, positions, counts, context_starts)
        return propose_with(self._draft, self.block, *asked)

    def _draft(
        self, rows: list[Tensor], anchors: Tensor, positions: Tensor, counts: list[int]
    ) -> list[Proposal]:
        weights, steps = self.weights, max(counts)
        # Where block rows see later ones, a shorter block would be another draft.
        length = steps if all(self.config.causal) else self.block
        anchors = anchors.clamp(0, self.config.vocab_size - 1)
        embedded = self._mask.repeat(len(rows), length, 1)
        embedded[:, 0] = self.embed[anchors].float()
        hidden = block_hidden(weights, embedded, positions, [BlockContext(r) for r in rows])
        hidden = hidden[:, :steps]
        base = linear(hidden, self.head)
        tokens, scores, before = [], [], []
        previous = anchors
        for step in range(steps):
            before.append(weights.markov_w1[previous])
            logits = torch.addmm(base[:, step], before[-1], weights.markov_w2.t())
            score, previous = logits.max(dim=-1)
            tokens.append(previous)
            scores.append(score)
        logits = confidence_logits(weights, hidden, torch.stack(before, 1))
        confidence = torch.sigmoid(logits / self._temperatures[:steps])
        return trimmed(torch.stack(tokens, 1), torch.stack(scores, 1), confidence, counts)
