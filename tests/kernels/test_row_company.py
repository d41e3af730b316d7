"""A row's result has the same bits whatever rows share the call, in whatever order.

The short form runs always; `-m campaign` runs more seeds and the real model's widths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from k3_kernels import (
    ExpertWeights,
    KdaGate,
    Weight,
    absorbed_attention,
    attn_res_mix,
    expert_contributions,
    gated_head_norm,
    kda_gate,
    l2_norm,
    linear,
    rms_norm,
    route,
    short_conv,
    situ,
)
from torch import Tensor

F64 = torch.float64
ROWS = 40
DTYPES = (F64, torch.bfloat16)  # the borders of the fp32 and of the bf16 mode


@dataclass(frozen=True)
class Widths:
    """Odd on purpose: vector lanes and BLAS tiles have tails."""

    hidden: int = 161
    out: int = 67
    heads: int = 3
    dim: int = 18
    experts: int = 37
    top_k: int = 5
    atoms: int = 2
    columns: int = 16


REAL = Widths(hidden=7168, out=96, heads=96, dim=128, experts=896, top_k=16, columns=384)

Rows = Callable[[Tensor], Tensor]
"""Row numbers i64 [n] -> results [n, ...]"""


class Draws:
    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=F64)

    def rows(self, dtype: torch.dtype, *shape: int) -> Tensor:
        """ROWS rows whose magnitudes differ by up to 2^12."""
        spread = torch.exp2(torch.randint(-6, 7, (ROWS, 1), generator=self.generator).double())
        flat = self.normal(ROWS, *shape).reshape(ROWS, -1) * spread
        return flat.reshape(ROWS, *shape).to(dtype)

    def numbers(self, count: int) -> Tensor:
        return torch.randperm(ROWS, generator=self.generator)[:count]


def _linear(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    x = draw.rows(dtype, w.hidden)
    weight = Weight.from_matrix(draw.normal(w.out, w.hidden), fine=dtype is F64)
    return lambda rows: linear(x[rows], weight)


def _scaled_linear(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    x = draw.rows(dtype, w.hidden)
    scale = draw.normal(w.out, -(-w.hidden // 128)).abs()
    weight = Weight.from_matrix(draw.normal(w.out, w.hidden), scale)
    return lambda rows: linear(x[rows], weight)


def _head_linear(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    x = draw.rows(dtype, w.heads, w.dim)
    weight = Weight.from_matrix(draw.normal(w.heads, w.dim + 1, w.dim), fine=dtype is F64)
    return lambda rows: linear(x[rows].transpose(0, 1), weight).transpose(0, 1)


def _rms_norm(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    x, weight = draw.rows(dtype, w.hidden), draw.normal(w.hidden)
    return lambda rows: rms_norm(x[rows], weight, 1e-5)


def _gated_head_norm(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    o, gate = draw.rows(dtype, w.heads, w.dim), draw.rows(dtype, w.heads, w.dim)
    weight = draw.normal(w.dim)
    return lambda rows: gated_head_norm(o[rows], weight, gate[rows], 1e-5)


def _l2_norm(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    x = draw.rows(dtype, w.heads, w.dim)
    return lambda rows: l2_norm(x[rows])


def _situ(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    gate, up = draw.rows(dtype, w.hidden), draw.rows(dtype, w.hidden)
    return lambda rows: situ(gate[rows], up[rows], 4.0, 25.0)


def _kda_gate(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    z = draw.rows(dtype, w.heads, w.dim)
    gate = KdaGate(torch.exp(draw.normal(w.heads, 1)), draw.normal(w.heads, w.dim), -5.0)
    return lambda rows: kda_gate(z[rows], gate)


def _attn_res_mix(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    sources, query = draw.rows(dtype, 9, w.hidden), draw.normal(w.hidden)
    return lambda rows: attn_res_mix(sources[rows], query, 1e-5)


def _route(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    logits, bias = draw.rows(F64, w.experts), draw.normal(w.experts).float()

    def run(rows: Tensor) -> Tensor:
        ids, weights = route(logits[rows], bias, w.top_k, renormalize=True, scaling=1.0)
        return torch.cat((ids.double(), weights.double()), dim=-1)

    return run


def _short_conv(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    """Consecutive rows: a run of any length from any start."""
    samples = torch.cat((draw.normal(3, w.hidden).to(dtype), draw.rows(dtype, w.hidden)))
    weight = draw.normal(4, w.hidden)

    def run(rows: Tensor) -> Tensor:
        first, count = int(rows.min()), len(rows)
        first = min(first, ROWS - count)
        whole = torch.zeros(ROWS, w.hidden, dtype=dtype)
        whole[first : first + count] = short_conv(samples[first : first + 3 + count], weight)
        seen = torch.zeros(ROWS, 1, dtype=dtype)
        seen[first : first + count] = 1
        return torch.where(seen > 0, whole, short_conv(samples, weight))[rows]

    return run


def _absorbed_attention(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    """Rows at scattered positions, each call with only as many keys as its rows need."""
    keys = 300
    cache = draw.normal(keys, 2 * w.dim + 5).to(dtype)
    query = draw.rows(F64, w.heads, 2 * w.dim + 5)
    positions = torch.randint(0, keys, (ROWS,), generator=draw.generator)

    def run(rows: Tensor) -> Tensor:
        seen = cache[: int(positions[rows].max()) + 1]
        found = absorbed_attention(
            query[rows].transpose(0, 1), seen, positions[rows], 2 * w.dim, 0.2
        )
        return found.transpose(0, 1)

    return run


def _experts(draw: Draws, w: Widths, dtype: torch.dtype) -> Rows:
    """Two experts: each alone with all rows, then both side by side, which must agree."""
    latent, width = w.out, w.atoms * w.columns
    experts = [
        ExpertWeights.from_matrices(
            Weight.from_matrix(draw.normal(1, 2 * width, latent), fine=dtype is F64),
            draw.normal(latent, w.atoms, w.columns),
            scale,
        )
        for scale in (0.5, 0.3)
    ]
    x, weights = draw.rows(dtype, latent), draw.normal(ROWS).abs().float()

    def contributions(of: ExpertWeights, rows: Tensor, count: int) -> Tensor:
        mine = x[rows].expand(count, -1, -1)
        shares = weights[rows].expand(count, -1)
        return expert_contributions(mine, shares, of, beta=4.0, linear_beta=25.0, grid_exponent=-40)

    def run(rows: Tensor) -> Tensor:
        together = contributions(ExpertWeights.stacked(experts), rows, 2)
        alone = torch.cat([contributions(expert, rows, 1) for expert in experts])
        assert torch.equal(together, alone)
        return together.transpose(0, 1)

    return run


KERNELS = {
    "linear": _linear,
    "scaled_linear": _scaled_linear,
    "head_linear": _head_linear,
    "rms_norm": _rms_norm,
    "gated_head_norm": _gated_head_norm,
    "l2_norm": _l2_norm,
    "situ": _situ,
    "kda_gate": _kda_gate,
    "attn_res_mix": _attn_res_mix,
    "route": _route,
    "short_conv": _short_conv,
    "absorbed_attention": _absorbed_attention,
    "expert_contributions": _experts,
}


def check_company(kernel: str, seed: int, widths: Widths, dtype: torch.dtype, calls: int) -> None:
    draw = Draws(seed)
    run = KERNELS[kernel](draw, widths, dtype)
    wanted = run(torch.arange(ROWS))
    assert torch.isfinite(wanted.double()).all()
    counts = torch.randint(1, ROWS + 1, (calls,), generator=draw.generator).tolist()
    for count in [1, 2, ROWS, *counts]:
        rows = draw.numbers(count)
        found = run(rows)
        assert found.dtype == wanted.dtype
        same = (found == wanted[rows]).reshape(count, -1).all(-1)
        assert same.all(), f"seed {seed}: {kernel} of rows {rows.tolist()} differs at {same}"


@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kernel", KERNELS)
def test_company_changes_no_bit(kernel: str, seed: int, dtype: torch.dtype) -> None:
    check_company(kernel, seed, Widths(), dtype, calls=6)


@pytest.mark.campaign
@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"])
@pytest.mark.parametrize("seed", range(100, 140))
@pytest.mark.parametrize("kernel", KERNELS)
def test_company_of_many_seeds(kernel: str, seed: int, dtype: torch.dtype) -> None:
    sizes = torch.randint(1, 40, (6,), generator=torch.Generator().manual_seed(seed)).tolist()
    hidden, out, heads, dim, experts, columns = (size + 5 for size in sizes)
    widths = Widths(hidden * 5, out, heads, dim, experts, columns=columns)
    check_company(kernel, seed, widths, dtype, calls=10)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kernel", KERNELS)
def test_company_at_the_real_widths(kernel: str, seed: int) -> None:
    check_company(kernel, seed, REAL, torch.bfloat16, calls=3)
