"""Worked examples of the specification, each of which one known mistake would change."""

from __future__ import annotations

import pytest
import torch
from k3_kernels import (
    KdaGate,
    attn_res_mix,
    kda_gate,
    kda_recurrent,
    kda_rows,
    l2_norm,
    rms_norm,
    route,
    short_conv,
    situ,
)
from k3_kernels.kda import KdaRows
from k3_kernels.quant import e2m1_pairs, e4m3, e8m0, fp8_block_scales, fp8_matrix, scaled_codes
from torch import Tensor

F64 = torch.float64


def close(found: Tensor, wanted: list[float] | list[list[float]], tolerance: float = 1e-8) -> None:
    torch.testing.assert_close(
        found.double(), torch.tensor(wanted, dtype=F64), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(
    ("gate", "up", "wanted"),
    [
        (1.0, 1.0, 0.7158178280748404),
        (-1.0, 1.0, -0.26333466257272786),
        (8.0, 30.0, 80.33965239078263),
        (-20.0, 5.0, -4.067839178234511e-08),
        (0.5, -100.0, -7.735277097238144),
    ],
)
def test_situ(gate: float, up: float, wanted: float) -> None:
    """Both caps; the logistic sees the uncapped gate; gate and up are not alike."""
    found = situ(torch.tensor([gate]), torch.tensor([up]), 4.0, 25.0)
    assert float(found) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("a_log", "z", "wanted"),
    [
        (0.0, 0.0, -2.5),
        (0.0, 3.0, -4.762870634112167),
        (1.2, -2.0, -0.006525081720361556),
        (-1.0, 10.0, -4.876843121642429),
    ],
)
def test_decay_gate_is_a_bounded_sigmoid(a_log: float, z: float, wanted: float) -> None:
    rate = torch.exp(torch.tensor([[a_log]], dtype=F64))
    gate = KdaGate(rate=rate, dt_bias=torch.tensor([[1.0]], dtype=F64), lower_bound=-5.0)
    found = kda_gate(torch.tensor([[[z - 1.0]]], dtype=F64), gate)
    assert float(found) == pytest.approx(wanted, rel=1e-12)


def _two_tokens() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    def of(*rows: tuple[float, float]) -> Tensor:
        return torch.tensor(rows, dtype=F64).unsqueeze(1)  # [2, one head, 2]

    return (
        of((1, 0), (0.6, 0.8)),
        of((0.6, 0.8), (0, 1)),
        of((1, 2), (-1, 1)),
        of((-1, -2), (-0.5, -3)),
        torch.tensor([[0.5], [0.25]], dtype=F64),
    )


def test_kda_recurrence() -> None:
    q, k, v, g, beta = _two_tokens()
    out, state = kda_recurrent(
        q[:1], k[:1], v[:1], g[:1], beta[:1], torch.zeros(1, 2, 2, dtype=F64)
    )
    close(state[0], [[0.3, 0.6], [0.4, 0.8]])
    close(out[0, 0], [0.3, 0.6])
    out, state = kda_recurrent(q[1:], k[1:], v[1:], g[1:], beta[1:], state)
    close(state[0], [[0.1819592, 0.3639184], [-0.23506388, 0.27987224]])
    close(out[0, 0], [-0.07887558, 0.44224883])


def test_kda_rows_of_two_tokens() -> None:
    out = kda_rows(*_two_tokens(), KdaRows.zeros(1, 2, 2), 0)
    close(out[:, 0], [[0.3, 0.6], [-0.07887558, 0.44224883]])


def test_attn_res_sums_raw_values() -> None:
    sources = torch.tensor([[[3.0, 4.0], [1.0, -1.0]]], dtype=F64)
    found = attn_res_mix(sources, torch.tensor([0.5, -0.25], dtype=F64), 1e-5)
    close(found, [[1.70476868, 0.7619217]])


def test_attn_res_may_be_written_over_its_last_source() -> None:
    sources = torch.tensor([[[3.0, 4.0], [1.0, -1.0]]])
    query = torch.tensor([0.5, -0.25], dtype=F64)
    wanted = attn_res_mix(sources, query, 1e-5)
    sources[:, 1] = attn_res_mix(sources, query, 1e-5)
    assert torch.equal(sources[:, 1], wanted)


def test_router_bias_chooses_and_does_not_weigh() -> None:
    ids, weights = route(
        torch.tensor([[0.2, 1.0, -0.5, 0.9]], dtype=F64),
        torch.tensor([0.0, -0.6, 0.5, 0.0]),
        2,
        renormalize=True,
        scaling=1.0,
    )
    assert ids.tolist() == [[2, 3]]
    close(weights, [[0.34684803, 0.65315197]], 1e-7)


def test_router_scaling_and_no_renormalisation() -> None:
    arguments = (torch.tensor([[0.2, 1.0, -0.5, 0.9]], dtype=F64), torch.zeros(4), 2)
    _, plain = route(*arguments, renormalize=False, scaling=1.0)
    close(plain, [[0.73105858, 0.7109495]], 1e-7)
    _, scaled = route(*arguments, renormalize=True, scaling=2.5)
    assert float(scaled.double().sum()) == pytest.approx(2.5, rel=1e-6)


def test_router_ties_go_to_the_lower_id() -> None:
    ids, _ = route(torch.zeros(3, 40, dtype=F64), torch.zeros(40), 4, renormalize=True, scaling=1.0)
    assert ids.tolist() == [[0, 1, 2, 3]] * 3


def test_router_group_limit_scores_a_group_by_its_two_best() -> None:
    logits = torch.tensor([[3.0, -9.0, 1.0, 1.0, 0.0, 0.0]], dtype=F64)
    ids, _ = route(logits, torch.zeros(6), 2, renormalize=True, scaling=1.0, groups=3, top_groups=1)
    assert ids.tolist() == [[2, 3]]  # 0.73 + 0.73 beats 0.95 + 0.0001


def test_nvfp4_byte() -> None:
    packed = torch.tensor([[0xA7] * 8], dtype=torch.uint8)
    scale = e4m3(torch.tensor([[0x38]], dtype=torch.uint8))
    found = scaled_codes(packed, scale) * 2.0**-3
    close(found, [[0.75, -0.125] * 8], 0.0)


def test_mxfp4_byte() -> None:
    packed = torch.tensor([[0xA7] * 16], dtype=torch.uint8)
    found = scaled_codes(packed, e8m0(torch.tensor([[124]], dtype=torch.uint8)))
    close(found, [[0.75, -0.125] * 16], 0.0)


def test_every_e2m1_code_low_nibble_first() -> None:
    magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    values = magnitudes + [-m for m in magnitudes]
    found = e2m1_pairs(torch.arange(256, dtype=torch.uint8).view(16, 16))
    wanted = [[values[b % 16], values[b // 16]] for b in range(256)]
    close(found.view(256, 2), wanted, 0.0)


def test_every_e4m3_byte() -> None:
    """Sign, four exponent bits of bias 7, three mantissa bits; 0x7f is the NaN."""
    for byte in range(256):
        sign, exponent, mantissa = (-1) ** (byte >> 7), byte >> 3 & 15, byte & 7
        found = float(e4m3(torch.tensor([byte], dtype=torch.uint8)))
        if byte & 0x7F == 0x7F:
            assert found != found
        elif exponent == 0:
            assert found == sign * mantissa * 2.0**-9
        else:
            assert found == sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def test_e8m0_covers_the_byte() -> None:
    raw = torch.arange(255, dtype=torch.uint8)
    assert e8m0(raw).tolist() == [2.0 ** (s - 127) for s in range(255)]


def test_fp8_ragged_blocks() -> None:
    """160 rows = 128 + 32: the last block of the four-dimensional scales is a short one."""
    scale = torch.tensor([[1.0, 2.0], [4.0, 8.0]]).view(2, 1, 2, 1)
    raw = torch.full((160, 144), 0x38, dtype=torch.uint8)  # 1.0
    found = fp8_matrix(raw, scale)
    assert found[127, 127] == 1.0
    assert found[127, 128] == 2.0
    assert found[128, 127] == 4.0
    assert found[159, 143] == 8.0
    close(fp8_block_scales(scale, 160)[[0, 127, 128, 159]], [[1, 2], [1, 2], [4, 8], [4, 8]], 0.0)


def test_l2_epsilon_is_added_to_the_sum() -> None:
    tiny = torch.tensor([[3e-4, 4e-4]], dtype=F64)
    close(l2_norm(tiny), [[3e-4 / (2.5e-7 + 1e-6) ** 0.5, 4e-4 / (2.5e-7 + 1e-6) ** 0.5]], 1e-12)
    assert l2_norm(torch.zeros(1, 4)).tolist() == [[0.0] * 4]


def test_rms_norm_rounds_before_the_weight() -> None:
    x = torch.tensor([[1.0, 3.0, 5.0, 7.0]], dtype=torch.bfloat16)
    weight = torch.tensor([1.7, 0.3, 1.1, 0.9], dtype=F64)
    normed = (x.double() * torch.rsqrt(torch.tensor(21.0, dtype=F64) + 1e-5)).bfloat16()
    assert torch.equal(rms_norm(x, weight, 1e-5), (normed.double() * weight).bfloat16())


def test_conv_impulse_meets_the_taps_newest_last() -> None:
    """tap 3 multiplies the newest sample, so an impulse comes out as taps 3, 2, 1, 0."""
    weight = torch.tensor([[1.0], [2.0], [3.0], [4.0]], dtype=F64)
    samples = torch.tensor([[0.0], [0.0], [0.0], [1.0], [0.0], [0.0], [0.0]], dtype=F64)
    taps = torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=F64)
    close(short_conv(samples, weight)[:, 0], (taps * torch.sigmoid(taps)).tolist(), 1e-12)
