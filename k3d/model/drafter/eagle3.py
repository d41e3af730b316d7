"""EAGLE3 with latent attention: one layer, run once a draft, each run fed by the one before.

The row of position i joins the *feature* of i, made of the model's taps, with the embedding of the
token at i + 1, and predicts the token at i + 2. The newest committed row starts the chain; from
then on the drafter's own hidden row is the feature and its draft the token. A context row keeps
[latent | rotated shared key | feature]: the last part is what the next round starts from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm

from k3d.model.drafter.attention import attend
from k3d.model.drafter.config import ChainDrafting, DrafterConfig
from k3d.model.drafter.layer import DraftLayer
from k3d.model.drafter.proposal import Proposal, propose_with, trimmed
from k3d.model.taps import Taps


@dataclass(frozen=True)
class Eagle3Weights:
    """Float32. tap_norms [hidden] a tap, or empty (3.0)."""

    config: DrafterConfig
    fc: Tensor
    tap_norms: tuple[Tensor, ...]
    hidden_norm: Tensor
    layer: DraftLayer
    norm: Tensor

    @classmethod
    def from_tensors(cls, config: DrafterConfig, tensors: Mapping[str, Tensor]) -> Eagle3Weights:
        """From float32 tensors by their part's name (layouts)."""
        drafting = config.drafting
        assert isinstance(drafting, ChainDrafting)
        taps = range(len(config.taps.layers)) if drafting.norm_taps else ()
        return cls(
            config,
            tensors["fc.weight"],
            tuple(tensors[f"fc_norm.{tap}.weight"] for tap in taps),
            tensors["layers.0.hidden_norm.weight"],
            DraftLayer.from_tensors(config, tensors, 0),
            tensors["norm.weight"],
        )


class Eagle3Drafter:
    """embed [vocab, hidden] as stored, head f32 [draft vocab, hidden]; to_target i64 [draft vocab]
    or None where the head has the model's own vocabulary."""

    def __init__(
        self, weights: Eagle3Weights, embed: Tensor, head: Tensor, to_target: Tensor | None
    ) -> None:
        assert isinstance(weights.config.drafting, ChainDrafting)
        self.config = weights.config
        self._drafting = weights.config.drafting
        self.weights = weights
        self.embed = embed
        self.head = head
        self._to_target = to_target
        self._row_proj = weights.layer.attention.row_proj.contiguous()

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
        """See Drafter."""
        features = self._features(taps.float())
        raw = linear(self._joined(features, tokens), self._row_proj)
        rows = self.weights.layer.attention.rows(raw, self.config.rope.at(positions))
        return torch.cat((rows, features), dim=-1)

    @torch.inference_mode()
    def propose(
        self,
        contexts: Sequence[Tensor],
        anchors: Sequence[int],
        positions: Sequence[int],
        counts: Sequence[int],
        context_starts: Sequence[int] | None = None,
    ) -> list[Proposal]:
        """See Drafter. A lane without a context row has no feature to start from, and no draft."""
        asked = (contexts, anchors, positions, counts, context_starts)
        return propose_with(self._draft, self.block, *asked, least_rows=1)

    def _draft(
        self, rows: list[Tensor], token: Tensor, positions: Tensor, counts: list[int]
    ) -> list[Proposal]:
        width = self.config.attention.row_width
        feature = torch.stack([context[-1, width:] for context in rows])
        # The newest committed row is run again for its hidden row, so it is not context here.
        contexts = [context[:-1, :width] for context in rows]
        chain = torch.empty(len(rows), 0, width)
        tokens, scores, chances = [], [], []
        for step in range(max(counts)):
            feature, own = self._step(feature, token, positions - 1 + step, contexts, chain)
            chain = torch.cat((chain, own), dim=1)
            head_input = feature if self._drafting.norm_output else self._normed(feature)
            logits = linear(head_input, self.head)
            score, local = logits.max(dim=-1)
            token = local if self._to_target is None else self._to_target[local]
            tokens.append(token)
            scores.append(score)
            chances.append(torch.exp(score - torch.logsumexp(logits, dim=-1)))
        return trimmed(
            torch.stack(tokens, 1), torch.stack(scores, 1), torch.stack(chances, 1), counts
        )

    def _step(
        self,
        feature: Tensor,
        token: Tensor,
        positions: Tensor,
        contexts: list[Tensor],
        chain: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """One row a lane behind its context and the chain so far: the next feature [lanes,
        hidden] and the row's own latent [lanes, 1, row width]."""
        layer = self.weights.layer
        query, own = layer.attention.project(
            self._joined(feature, token), self.config.rope.at(positions)
        )
        own = own.unsqueeze(1)
        seen = torch.cat((chain, own), dim=1)
        attended = [
            attend(layer.attention, query[lane, None, None], context, seen[lane, None])
            for lane, context in enumerate(contexts)
        ]
        h = feature + layer.attention.output(torch.cat(attended).flatten(0, 1))
        h = h + layer.mlp(self._rms(h, layer.post_norm))
        return self._normed(h) if self._drafting.norm_output else h, own

    def _features(self, taps: Tensor) -> Tensor:
        norms = self.weights.tap_norms
        if norms:
            parts = taps.chunk(len(norms), dim=-1)
            normed = [self._rms(part, norm) for part, norm in zip(parts, norms, strict=True)]
            taps = torch.cat(normed, dim=-1)
        return linear(taps, self.weights.fc)

    def _joined(self, feature: Tensor, token: Tensor) -> Tensor:
        """[embedding | feature], each normed: the layer's input, [rows, 2 hidden]."""
        embedded = self.embed[token.clamp(0, self.config.vocab_size - 1)].float()
        embedded = self._rms(embedded, self.weights.layer.input_norm)
        return torch.cat((embedded, self._rms(feature, self.weights.hidden_norm)), dim=-1)

    def _normed(self, h: Tensor) -> Tensor:
        return self._rms(h, self.weights.norm)

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, (self.config.hidden_size,), weight, self.config.rms_norm_eps)
