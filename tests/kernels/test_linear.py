"""`linear` against exact rational arithmetic, and in other orders of summation."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from k3_kernels import Weight, linear
from k3_kernels.grid import ACTIVATION_BITS, BLOCK, to_fixed_grid, to_grid, weight_bits
from torch import Tensor

F64 = torch.float64
SEEDS = range(6)


def _random(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    spread = torch.exp2(torch.randint(-8, 8, shape, generator=generator).double())
    return torch.randn(shape, generator=generator, dtype=F64) * spread


def _exact_blocks(x: Tensor, weight: Weight) -> list[list[list[Fraction]]]:
    """[row][out][block] sums over grid values, as rationals."""
    blocks, block, outs = weight.codes.shape
    padded = torch.nn.functional.pad(x.double(), (0, blocks * block - x.shape[1]))
    on_grid = to_grid(padded.view(len(x), blocks, block))
    values = [[[Fraction(v) for v in part] for part in row] for row in on_grid.tolist()]
    codes = [[[Fraction(v) for v in o] for o in part.T.tolist()] for part in weight.codes.double()]
    return [
        [
            [
                sum((a * b for a, b in zip(row[i], codes[i][out], strict=True)), Fraction(0))
                for i in range(blocks)
            ]
            for out in range(outs)
        ]
        for row in values
    ]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("width", [1, 16, 127, 128, 160, 300])
def test_every_block_sum_is_exact(seed: int, width: int) -> None:
    x, weight = _random(seed, 2, width).float(), Weight.from_matrix(_random(seed + 99, 3, width))
    found = linear(x, weight)
    for row, outs in enumerate(_exact_blocks(x, weight)):
        for out, blocks in enumerate(outs):
            total = 0.0
            for part in blocks:
                assert Fraction(float(part)) == part, "a block sum needs more than 53 bits"
                total += float(part)
            assert float(found[row, out]) == total


@pytest.mark.parametrize("seed", SEEDS)
def test_fine_products_see_what_the_grid_rounds_away(seed: int) -> None:
    """x in float64 and a fine weight: as a float64 product, where the coarse one is as float32."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 300, generator=generator, dtype=F64)
    matrix = torch.randn(7, 300, generator=generator, dtype=F64)
    wanted = x @ matrix.T
    fine = linear(x, Weight.from_matrix(matrix, fine=True))
    coarse = linear(x.float(), Weight.from_matrix(matrix))
    assert (fine - wanted).norm() < 1e-12 * wanted.norm()
    assert 1e-9 * wanted.norm() < (coarse - wanted).norm() < 1e-5 * wanted.norm()


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_order_of_terms_changes_no_bit(seed: int, fine: bool) -> None:
    x, matrix = _random(seed, 7, BLOCK), _random(seed + 7, 33, BLOCK)
    x = x if fine else x.float()
    wanted = linear(x, Weight.from_matrix(matrix, fine=fine))
    generator = torch.Generator().manual_seed(seed)
    for _ in range(5):
        order = torch.randperm(BLOCK, generator=generator)
        shuffled = Weight.from_matrix(matrix[:, order], fine=fine)
        assert torch.equal(linear(x[:, order], shuffled), wanted)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("terms", [1, 2, 16, 100, 128])
def test_worst_case_magnitudes_stay_exact(seed: int, terms: int) -> None:
    """All products of one sign and full grid width: the sum still fits 53 bits."""
    almost_two = 2.0 - 2.0**-30
    x = torch.full((1, terms), 2.0 - 2.0**-23)
    weight = Weight.from_matrix(torch.full((1, terms), almost_two, dtype=F64))
    [[[exact]]] = _exact_blocks(x, weight)
    assert Fraction(float(linear(x, weight))) == exact


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bits", [20, 23, 26])
def test_grid_rounds_to_the_nearest_multiple(seed: int, bits: int) -> None:
    x = _random(seed, 4, 50)
    found = to_grid(x, bits)
    for row, largest in enumerate(x.abs().amax(-1).tolist()):
        quantum = Fraction(2) ** (math.frexp(largest)[1] - bits)
        for before, after in zip(x[row].tolist(), found[row].tolist(), strict=True):
            assert (Fraction(after) / quantum).denominator == 1
            assert abs(Fraction(after) - Fraction(before)) <= quantum / 2


def test_grid_of_zeros_and_of_released_values_changes_nothing() -> None:
    assert to_grid(torch.zeros(3, 4, dtype=F64)).tolist() == [[0.0] * 4] * 3
    bytes_ = torch.arange(256, dtype=torch.uint8)
    finite = bytes_[(bytes_ & 0x7F) != 0x7F].view(torch.float8_e4m3fn).double()
    assert torch.equal(to_grid(finite, weight_bits(BLOCK)), finite)
    single = torch.randn(50, generator=torch.Generator().manual_seed(1))
    for value in single.double():
        assert torch.equal(to_grid(value.view(1), ACTIVATION_BITS), value.view(1))


def test_fixed_grid() -> None:
    x = torch.tensor([0.3, -0.3, 0.125, 0.0], dtype=F64)
    assert to_fixed_grid(x, 0.25).tolist() == [0.25, -0.25, 0.0, 0.0]


@pytest.mark.parametrize("seed", SEEDS)
def test_scales_are_applied_a_block(seed: int) -> None:
    codes = torch.randint(-8, 8, (5, 300), generator=torch.Generator().manual_seed(seed)).double()
    scale = _random(seed, 5, 3).abs()
    spread = scale.repeat_interleave(BLOCK, dim=1)[:, :300]
    x = _random(seed + 1, 4, 300)
    found = linear(x, Weight.from_matrix(codes, scale))
    wanted = x @ (codes * spread).T
    assert (found - wanted).norm() < 1e-7 * wanted.norm()


@pytest.mark.parametrize("seed", SEEDS)
def test_stacked_weights_give_their_own_outputs(seed: int) -> None:
    x = _random(seed, 3, 160)
    plain = Weight.from_matrix(_random(seed + 1, 4, 160))
    scaled = Weight.from_matrix(_random(seed + 2, 5, 160), _random(seed + 3, 5, 2).abs())
    found = linear(x, Weight.stacked([plain, scaled, plain]))
    wanted = torch.cat([linear(x, plain), linear(x, scaled), linear(x, plain)], dim=-1)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_head_linear_is_linear_a_head(seed: int) -> None:
    x, matrices = _random(seed, 3, 5, 40), _random(seed + 1, 3, 7, 40)
    found = linear(x, Weight.from_matrix(matrices))
    for head in range(3):
        assert torch.equal(found[head], linear(x[head], Weight.from_matrix(matrices[head])))


def test_weights_are_held_in_the_narrowest_exact_type() -> None:
    released = torch.randn(6, 160, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert Weight.from_matrix(released).codes.dtype == torch.bfloat16
    full = Weight.from_matrix(_random(4, 6, 160))
    assert full.codes.dtype == torch.float32
    wide = Weight(full.codes.double(), full.rest, full.scale, full.in_features)
    x = _random(3, 4, 160)
    assert torch.equal(linear(x, full), linear(x, wide))
