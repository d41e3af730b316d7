"""Absorbed attention against the expanded form, causality to the bit."""

from __future__ import annotations

import pytest
import torch
from k3_kernels import Weight, absorbed_attention, linear
from torch import Tensor

F64 = torch.float64
HEADS, RANK, ROPE, NOPE, VALUE = 4, 48, 16, 12, 10


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def textbook(query: Tensor, cache: Tensor, positions: Tensor, scale: float) -> Tensor:
    scores = torch.einsum("hrc,kc->hrk", query, cache) * scale
    hidden = torch.arange(len(cache)) > positions.unsqueeze(-1)
    shares = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
    return torch.einsum("hrk,kc->hrc", shares, cache[:, :RANK])


@pytest.mark.parametrize("keys", [1, 2, 127, 128, 129, 300, 517])
def test_equals_softmax(keys: int) -> None:
    query, cache = draw(keys, HEADS, 6, RANK + ROPE), draw(keys + 1, keys, RANK + ROPE)
    positions = torch.linspace(0, keys - 1, 6).long()
    found = absorbed_attention(query, cache, positions, RANK, 0.3)
    wanted = textbook(query, cache, positions, 0.3)
    assert (found - wanted).norm() < 1e-6 * wanted.norm()


def test_equals_the_expanded_form() -> None:
    """Keys and values of every head built from the latents, as the released model does."""
    keys, rows = 310, 7
    cache = draw(1, keys, RANK + ROPE)
    nope, shared = draw(2, HEADS, rows, NOPE), draw(3, HEADS, rows, ROPE)
    key_up, value_up = draw(4, HEADS, NOPE, RANK) / 7, draw(5, HEADS, VALUE, RANK) / 7
    positions = torch.arange(keys - rows, keys)
    scale = (NOPE + ROPE) ** -0.5

    key = torch.einsum("hnc,kc->hkn", key_up, cache[:, :RANK])
    value = torch.einsum("hvc,kc->hkv", value_up, cache[:, :RANK])
    scores = torch.einsum("hrn,hkn->hrk", nope, key)
    scores = (scores + torch.einsum("hrp,kp->hrk", shared, cache[:, RANK:])) * scale
    scores = scores.masked_fill(torch.arange(keys) > positions.unsqueeze(-1), float("-inf"))
    wanted = torch.einsum("hrk,hkv->hrv", torch.softmax(scores, dim=-1), value)

    absorbed = linear(nope, Weight.from_matrix(key_up.transpose(1, 2).contiguous()))
    query = torch.cat((absorbed, shared), dim=-1)
    context = absorbed_attention(query, cache, positions, RANK, scale)
    found = linear(context, Weight.from_matrix(value_up))
    assert (found - wanted).norm() < 1e-6 * wanted.norm()


def test_the_shared_part_is_not_dropped() -> None:
    query, cache = draw(1, HEADS, 1, RANK + ROPE), draw(2, 20, RANK + ROPE)
    last = torch.tensor([19])
    without = cache.clone()
    without[:, RANK:] = 0
    found = absorbed_attention(query, cache, last, RANK, 0.3)
    other = absorbed_attention(query, without, last, RANK, 0.3)
    assert (found - other).norm() > 0.1 * found.norm()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_keys_beyond_the_position_change_no_bit(seed: int, dtype: torch.dtype) -> None:
    keys = 333
    query, cache = draw(seed, HEADS, 1, RANK + ROPE), draw(seed + 50, keys, RANK + ROPE).to(dtype)
    for position in (0, 1, 100, 127, 128, 200, 255, 256, 331):
        at = torch.tensor([position])
        wanted = absorbed_attention(query, cache[: position + 1], at, RANK, 0.3)
        for end in (position + 2, keys):
            assert torch.equal(absorbed_attention(query, cache[:end], at, RANK, 0.3), wanted)
        loud = cache.clone()
        loud[position + 1 :] = 1e6
        assert torch.equal(absorbed_attention(query, loud, at, RANK, 0.3), wanted)


def test_one_loud_latent_and_an_empty_one() -> None:
    """Each latent is scaled to its own power of two, so a small one keeps its bits."""
    cache = draw(1, 40, RANK + ROPE)
    cache[3] *= 1e4
    cache[7] = 0
    query = draw(2, HEADS, 1, RANK + ROPE) * 1e-3
    last = torch.tensor([39])
    found = absorbed_attention(query, cache, last, RANK, 0.1)
    wanted = textbook(query, cache, last, 0.1)
    assert (found - wanted).norm() < 1e-6 * wanted.norm()
