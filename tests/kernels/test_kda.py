"""`kda_rows` against the textbook recurrence, and itself cut at every border."""

from __future__ import annotations

import copy

import pytest
import torch
from k3_kernels import kda_recurrent, kda_rows, kda_rows_ahead
from k3_kernels.kda import BLOCK_ROWS, KdaRows
from torch import Tensor

F64 = torch.float64
HEADS, KEY, VALUE = 3, 16, 12
Rows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""q, k, v, g, beta"""


def draw_rows(seed: int, rows: int, decay: float | None = None) -> Rows:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=F64)

    q, k = (normal(rows, HEADS, KEY) for _ in range(2))
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    g = -5 * torch.sigmoid(normal(rows, HEADS, KEY))
    if decay is not None:
        g = torch.full_like(g, decay)
    return q * KEY**-0.5, k, normal(rows, HEADS, VALUE), g, torch.sigmoid(normal(rows, HEADS))


def cut(rows: Rows, part: slice) -> Rows:
    q, k, v, g, beta = rows
    return q[part], k[part], v[part], g[part], beta[part]


def same_state(one: KdaRows, other: KdaRows, filled: int) -> bool:
    """Equal where it counts: rows of the block in progress, the anchor, the decay."""
    return (
        torch.equal(one.anchor, other.anchor)
        and torch.equal(one.inverse_key[:filled], other.inverse_key[:filled])
        and torch.equal(one.delta[:filled], other.delta[:filled])
        and torch.equal(one.decay[:filled], other.decay[:filled])
    )


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 64, 100])
@pytest.mark.parametrize("decay", [None, -5.0, -1e-9, 0.0])
def test_equals_the_recurrence(rows: int, decay: float | None) -> None:
    """-5 for 64 tokens is what overflows a chunk factored into e^G and e^-G."""
    inputs = draw_rows(rows, rows, decay)
    found = kda_rows(*inputs, KdaRows.zeros(HEADS, KEY, VALUE), 0)
    wanted, _ = kda_recurrent(*inputs, torch.zeros(HEADS, KEY, VALUE, dtype=F64))
    assert torch.isfinite(found).all()
    assert (found - wanted).norm() < 1e-6 * wanted.norm()


def test_mixed_decay_of_extremes() -> None:
    q, k, v, _, beta = draw_rows(5, 80)
    g = torch.where(torch.arange(KEY) % 2 == 0, -5.0, -1e-6).double().expand_as(q).contiguous()
    found = kda_rows(q, k, v, g, beta, KdaRows.zeros(HEADS, KEY, VALUE), 0)
    wanted, _ = kda_recurrent(q, k, v, g, beta, torch.zeros(HEADS, KEY, VALUE, dtype=F64))
    assert (found - wanted).norm() < 1e-6 * wanted.norm()


def test_from_a_state_that_is_not_zero() -> None:
    first, then = draw_rows(6, 32), draw_rows(7, 24)
    state = KdaRows.zeros(HEADS, KEY, VALUE)
    kda_rows(*first, state, 0)
    found = kda_rows(*then, state, 32)
    _, kept = kda_recurrent(*first, torch.zeros(HEADS, KEY, VALUE, dtype=F64))
    wanted, _ = kda_recurrent(*then, kept)
    assert (found - wanted).norm() < 1e-6 * wanted.norm()
    anchor, _ = kda_recurrent(*cut(then, slice(0, 16)), kept)
    assert anchor.shape == (16, HEADS, VALUE)


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_the_anchor_is_the_state_key_first(blocks: int) -> None:
    rows = draw_rows(blocks, blocks * BLOCK_ROWS)
    state = KdaRows.zeros(HEADS, KEY, VALUE)
    kda_rows(*rows, state, 0)
    _, wanted = kda_recurrent(*rows, torch.zeros(HEADS, KEY, VALUE, dtype=F64))
    assert (state.anchor - wanted).norm() < 1e-6 * wanted.norm()


@pytest.mark.parametrize("seed", range(8))
def test_any_split_has_the_same_bits(seed: int) -> None:
    rows = draw_rows(seed, 75)
    whole = KdaRows.zeros(HEADS, KEY, VALUE)
    wanted = kda_rows(*rows, whole, 0)
    generator = torch.Generator().manual_seed(seed)
    for most in (1, 2, 3, 13, 16, 37):
        state = KdaRows.zeros(HEADS, KEY, VALUE)
        parts, start = [], 0
        while start < 75:
            step = 1 if most == 1 else int(torch.randint(1, most + 1, (), generator=generator))
            part = slice(start, min(start + step, 75))
            parts.append(kda_rows(*cut(rows, part), state, start))
            start = part.stop
        assert torch.equal(torch.cat(parts), wanted), f"seed {seed}, steps up to {most}"
        assert same_state(state, whole, 75 % BLOCK_ROWS)


@pytest.mark.parametrize("kept", [1, 5, 15, 16, 17, 31])
def test_rows_taken_back_leave_no_trace(kept: int) -> None:
    """Drafted rows go on from a copy of the state; forgetting them is dropping the copy."""
    rows, draft = draw_rows(1, 48), draw_rows(2, 48)
    state = KdaRows.zeros(HEADS, KEY, VALUE)
    kda_rows(*cut(rows, slice(0, kept)), state, 0)
    side = KdaRows.zeros(HEADS, KEY, VALUE)
    side.copy_(state)
    kda_rows(*cut(draft, slice(kept, kept + 5)), side, kept)
    side.copy_(state)
    found = kda_rows(*cut(rows, slice(kept, 48)), side, kept)
    straight = KdaRows.zeros(HEADS, KEY, VALUE)
    wanted = kda_rows(*rows, straight, 0)
    assert torch.equal(found, wanted[kept:])


def test_stale_rows_of_an_earlier_block_are_never_read() -> None:
    rows = draw_rows(3, 40)
    clean, dirty = KdaRows.zeros(HEADS, KEY, VALUE), KdaRows.zeros(HEADS, KEY, VALUE)
    for state in (clean, dirty):
        kda_rows(*cut(rows, slice(0, 20)), state, 0)
    dirty.inverse_key[4:] = 1e30
    dirty.delta[4:] = -1e30
    one = kda_rows(*cut(rows, slice(20, 40)), clean, 20)
    assert torch.equal(one, kda_rows(*cut(rows, slice(20, 40)), dirty, 20))


@pytest.mark.parametrize("position", [0, 3, 15, 16, 30])
@pytest.mark.parametrize("ahead", [1, 2, 8, 13, 40])
def test_rows_ahead_are_the_same_rows_and_move_no_anchor(position: int, ahead: int) -> None:
    rows = draw_rows(6, 70)
    state = KdaRows.zeros(HEADS, KEY, VALUE)
    if position:
        kda_rows(*cut(rows, slice(0, position)), state, 0)
    before = copy.deepcopy(state)
    part = cut(rows, slice(position, position + ahead))
    found = kda_rows_ahead(*part, state, position)
    assert same_state(state, before, position % BLOCK_ROWS)
    assert torch.equal(found, kda_rows(*part, before, position))
    again = kda_rows(*cut(rows, slice(position, 70)), state, position)
    whole = KdaRows.zeros(HEADS, KEY, VALUE)
    assert torch.equal(again, kda_rows(*rows, whole, 0)[position:])


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(3))
def test_four_thousand_tokens_do_not_drift(seed: int) -> None:
    """The anchor is rounded once in sixteen rows; decay forgets, so errors do not pile up."""
    rows = draw_rows(seed, 4096, decay=-1e-3)
    found = kda_rows(*rows, KdaRows.zeros(HEADS, KEY, VALUE), 0)
    wanted, _ = kda_recurrent(*rows, torch.zeros(HEADS, KEY, VALUE, dtype=F64))
    error = (found - wanted).flatten(1).norm(dim=1) / wanted.flatten(1).norm(dim=1)
    assert error.max() < 1e-5, f"seed {seed}"
