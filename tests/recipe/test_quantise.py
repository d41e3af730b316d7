"""Number formats: worked bytes, round trips, ragged blocks, straight-through gradients."""

from __future__ import annotations

import torch

from banks.recipe.quantise import (
    decode_fp8,
    decode_nvfp4,
    encode_fp8,
    encode_nvfp4,
    global_scale,
    rounded_fp8,
    rounded_nvfp4,
)


def weights(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_worked_byte_decodes_low_nibble_first() -> None:
    codes = torch.tensor([[0xA7] + [0] * 7], dtype=torch.uint8)
    scales = torch.tensor([[1.0]]).to(torch.float8_e4m3fn)
    values = decode_nvfp4(codes, scales, torch.tensor(2.0**-3))
    assert values[0, :2].tolist() == [0.75, -0.125]


def test_nvfp4_round_trip_is_stable_and_close(seed: int) -> None:
    weight = weights(seed, 3, 32, 64)
    scale = global_scale(weight)
    assert (torch.log2(scale) == torch.log2(scale).round()).all()
    codes, scales = encode_nvfp4(weight, scale)
    assert codes.shape == (3, 32, 32)
    assert scales.shape == (3, 32, 4)
    decoded = decode_nvfp4(codes, scales, scale)
    assert float((decoded - weight).norm() / weight.norm()) < 0.12
    again, scales_again = encode_nvfp4(decoded, scale)
    assert torch.equal(decode_nvfp4(again, scales_again, scale), decoded)
    assert not ((codes & 15) == 8).any()
    assert not ((codes >> 4) == 8).any()


def test_zero_weights_stay_zero() -> None:
    weight = torch.zeros(1, 16, 32)
    scale = global_scale(weight)
    assert torch.equal(decode_nvfp4(*encode_nvfp4(weight, scale), scale), weight)


def test_fp8_blocks_are_ragged_and_four_dimensional(seed: int) -> None:
    weight = weights(seed, 200, 300)
    encoded, scales = encode_fp8(weight)
    assert scales.shape == (2, 1, 3, 1)
    assert encoded.shape == weight.shape
    decoded = decode_fp8(encoded, scales)
    assert float((decoded - weight).norm() / weight.norm()) < 0.04
    assert torch.equal(decoded[128:, 256:], encoded[128:, 256:].float() * scales[1, 0, 2, 0])


def test_rounding_passes_gradients_straight_through(seed: int) -> None:
    fp4 = weights(seed, 2, 16, 32).requires_grad_()
    rounded = rounded_nvfp4(fp4, global_scale(fp4.detach()))
    rounded.sum().backward()
    assert fp4.grad is not None
    assert (fp4.grad == 1.0).all()
    fp8 = weights(seed + 1, 16, 32).requires_grad_()
    rounded_fp8(fp8).sum().backward()
    assert fp8.grad is not None
    assert (fp8.grad == 1.0).all()
