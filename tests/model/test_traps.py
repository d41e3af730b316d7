"""Each silent mistake, made on purpose in the oracle: the comparison with the engine notices it.

This is what makes `test_kimi_k3` and `test_golden` proofs: a checkpoint on which a mistake cannot
be seen would prove nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from k3d.engine.offline import OfflineModel
from tests.oracle import E2M1, Array, Oracle, logistic, relative_error
from tests.tiny_checkpoint import TinyModel

SEEN = 1e-3  # fifty times the tolerance
PLAIN = TinyModel(seed=1)
SMALL = TinyModel(seed=3, small=True)
LONG = TinyModel(seed=3, layers=13)
IDS = tuple(np.random.default_rng(0).integers(0, 384, 37).tolist())
Tiny = Callable[[TinyModel], Path]


class PerChannelALog(Oracle):
    def a_log(self, name: str) -> Array:
        return self.weight(f"{name}.A_log")[None, :]


class ClampedGate(Oracle):
    def gate(self, z: Array, a_log: Array) -> Array:
        return np.maximum(-np.exp(a_log) * np.log1p(np.exp(z)), -5.0)


class NoLastMix(Oracle):
    def last_mix(self, sources: list[Array]) -> Array:
        return sources[-1]


class BiasInWeights(Oracle):
    def shares(self, scores: Array, bias: Array, chosen: np.ndarray) -> Array:
        return super().shares(scores + bias, bias, chosen)


class LateBlocks(Oracle):
    def opens_block(self, layer: int) -> bool:
        return layer == 0 or (layer % self.text["attn_res_block_size"]) == 1


class BlockKeepsOldResidual(Oracle):
    def after_attention(self, residual: Array, attended: Array, opens: bool) -> Array:
        return residual + attended


class MixesKeys(Oracle):
    def mixed_values(self, values: Array, keys: Array) -> Array:
        return keys


class NoRoutedNorm(Oracle):
    def routed_norm(self, total: Array, weight: Array) -> Array:
        return total


class UnscaledQuery(Oracle):
    def scaled_query(self, q: Array) -> Array:
        return q


class ReversedTaps(Oracle):
    def taps(self, taps: Array) -> Array:
        return taps[:, ::-1]


class GateBeforeNorm(Oracle):
    def gated_norm(self, out: Array, weight: Array, gate: Array) -> Array:
        return self.rms(out * logistic(gate), weight, self.eps)


class SiluForSitu(Oracle):
    def situ(self, gate: Array, up: Array) -> Array:
        return gate * logistic(gate) * up


class UncappedUp(Oracle):
    def situ(self, gate: Array, up: Array) -> Array:
        return 4 * np.tanh(gate / 4) * logistic(gate) * up


class SwappedGateAndUp(Oracle):
    def expert(self, x: Array, name: str, expert: int) -> Array:
        w1, w3, w2 = (self.weight(f"{name}.experts.{expert}.{w}") for w in ("w1", "w3", "w2"))
        return self.situ(x @ w3.T, x @ w1.T) @ w2.T


class DeltaFromUndecayed(Oracle):
    def predicting_state(self, before: Array, decayed: Array) -> Array:
        return before


class DroppedPositionHalf(Oracle):
    def scores(self, query: Array, keys: Array, nope: int) -> Array:
        return np.einsum("qhd,khd->hqk", query[..., :nope], keys[..., :nope]) / np.sqrt(
            query.shape[-1]
        )


class LatentEpsilon(Oracle):
    latent_eps = 1e-5


class LargeL2Epsilon(Oracle):
    l2_eps = 1e-5


class NoL2Epsilon(Oracle):
    l2_eps = 0.0


class NoRenormalisation(Oracle):
    def shares(self, scores: Array, bias: Array, chosen: np.ndarray) -> Array:
        return np.take_along_axis(scores, chosen, axis=-1)


class SharedTakesLatent(Oracle):
    def shared_input(self, x: Array, latent: Array) -> Array:
        return np.concatenate([latent, x[:, latent.shape[1] :]], axis=1)


class SwappedNibbles(Oracle):
    def _decode(self, name: str) -> Array:
        if ".experts." not in name:
            return super()._decode(name)
        packed = self.stored(f"{name}.weight").numpy()
        right = np.stack([E2M1[packed & 15], E2M1[packed >> 4]], axis=-1)
        decoded = super()._decode(name)
        scale = np.divide(
            decoded.reshape(right.shape), right, out=np.zeros_like(right), where=right != 0
        )
        return (right[..., ::-1] * scale.max(-1, keepdims=True)).reshape(decoded.shape)


class DividedGlobalScale(Oracle):
    def _decode(self, name: str) -> Array:
        decoded = super()._decode(name)
        if self.has(f"{name}.weight_scale_2"):
            decoded = decoded / float(self.stored(f"{name}.weight_scale_2")) ** 2
        return decoded


def lexicographic(count: int) -> list[int]:
    return sorted(range(count), key=str)


class LexicographicExperts(Oracle):
    def expert(self, x: Array, name: str, expert: int) -> Array:
        return super().expert(x, name, lexicographic(self.text["num_experts"])[expert])


class LexicographicLayers(Oracle):
    def weight(self, name: str) -> Array:
        """Norms of layers in name order: every layer has them, so that nothing else complains."""
        if "_layernorm" in name and "self_attn" not in name:
            _, _, layer, rest = name.split(".", 3)
            order = lexicographic(self.text["num_hidden_layers"])
            name = f"model.layers.{order[int(layer)]}.{rest}"
        return super().weight(name)


class SquareScaleBlocks(Oracle):
    """The ragged last FP8 block read with the scale of the whole one before it."""

    def _decode(self, name: str) -> Array:
        if not self.has(f"{name}.weight_scale") or self.has(f"{name}.weight_scale_2"):
            return super()._decode(name)
        matrix = self.stored(f"{name}.weight").double().numpy()
        return matrix * float(self.stored(f"{name}.weight_scale").flatten()[0])


class ScaledEmbedding(Oracle):
    def _decode(self, name: str) -> Array:
        factor = np.sqrt(160.0) if name == "model.embed_tokens" else 1.0
        return super()._decode(name) * factor


class CappedLogits(Oracle):
    def logits(self, ids: list[int]) -> Array:
        return 30 * np.tanh(super().logits(ids) / 30)


class TiedHead(Oracle):
    def weight(self, name: str) -> Array:
        return super().weight("model.embed_tokens" if name == "lm_head" else name)


MISTAKES: list[tuple[int, type[Oracle], TinyModel]] = [
    (1, PerChannelALog, PLAIN),
    (2, ClampedGate, PLAIN),
    (3, NoLastMix, PLAIN),
    (4, BiasInWeights, PLAIN),
    (5, LateBlocks, PLAIN),
    (6, BlockKeepsOldResidual, PLAIN),
    (7, MixesKeys, PLAIN),
    (8, NoRoutedNorm, PLAIN),
    (9, UnscaledQuery, PLAIN),
    (10, ReversedTaps, PLAIN),
    (11, GateBeforeNorm, PLAIN),
    (12, SiluForSitu, PLAIN),
    (12, UncappedUp, PLAIN),
    (13, DeltaFromUndecayed, PLAIN),
    (14, DroppedPositionHalf, PLAIN),
    (15, LatentEpsilon, SMALL),
    (16, LargeL2Epsilon, SMALL),
    (16, NoL2Epsilon, SMALL),
    (19, SwappedNibbles, PLAIN),
    (20, DividedGlobalScale, PLAIN),
    (22, LexicographicExperts, PLAIN),
    (23, LexicographicLayers, LONG),
    (24, SwappedGateAndUp, PLAIN),
    (25, SquareScaleBlocks, PLAIN),
    (37, SharedTakesLatent, PLAIN),
    (39, ScaledEmbedding, PLAIN),
    (39, CappedLogits, PLAIN),
    (39, TiedHead, PLAIN),
]


@cache
def engine_logits(folder: Path) -> Array:
    return OfflineModel(folder, "fp32", 37).logits(list(IDS), 37).numpy()


@pytest.mark.parametrize(
    ("mistake", "model"),
    [pytest.param(m, model, id=f"{number}-{m.__name__}") for number, m, model in MISTAKES],
)
def test_the_mistake_shows(tiny: Tiny, mistake: type[Oracle], model: TinyModel) -> None:
    folder = tiny(model)
    with np.errstate(over="ignore"):
        wrong = mistake(folder).logits(list(IDS))
    assert not relative_error(wrong, engine_logits(folder)) < SEEN


@pytest.mark.parametrize("model", [PLAIN, SMALL, LONG], ids=["plain", "small", "13 layers"])
def test_without_a_mistake_nothing_shows(tiny: Tiny, model: TinyModel) -> None:
    folder = tiny(model)
    assert relative_error(engine_logits(folder), Oracle(folder).logits(list(IDS))) < 2e-5


def test_missing_renormalisation_shows_before_the_norm(tiny: Tiny) -> None:
    """17: end to end it is invisible, so the sums themselves are compared in test_kimi_k3."""
    right, wrong = Oracle(tiny(PLAIN)), NoRenormalisation(tiny(PLAIN))
    right.logits(list(IDS))
    wrong.logits(list(IDS))
    assert relative_error(wrong.routed_sums[0], right.routed_sums[0]) > 0.5
