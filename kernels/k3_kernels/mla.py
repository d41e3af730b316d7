"""Multi-head latent attention, absorbed: one latent row a token is all that is cached."""

from __future__ import annotations

import torch
from torch import Tensor

from k3_kernels.grid import BLOCK, PAIR_BITS, power_of_two_below, to_fixed_grid, to_grid

SHARE_QUANTUM = 2.0**-26


def absorbed_attention(
    query: Tensor, cache: Tensor, positions: Tensor, rank: int, scale: float
) -> Tensor:
    """Causal attention of rows over cached latents.

    query f64 [heads, rows, rank + shared] (latent part, then the shared-key part); cache
    [keys, rank + shared], keys 0..keys-1; positions i64 [rows]: row r sees keys <= positions[r].
    Returns sum_t p_t c_t, f64 [heads, rows, rank].

    A row's sums run over key blocks of 128 aligned to absolute positions, exact within a block,
    so keys after the row's own position change nothing.
    """
    keys = cache.double()
    scores = _scores(query, keys) * scale  # [heads, rows, keys]
    hidden = torch.arange(keys.shape[0]) > positions.unsqueeze(-1)
    scores = scores.masked_fill(hidden, float("-inf"))
    shares = torch.exp(scores - scores.amax(-1, keepdim=True))
    total = to_fixed_grid(shares, SHARE_QUANTUM).sum(-1, keepdim=True)
    return _weighted_sum(shares, keys[:, :rank]) / total


def _scores(query: Tensor, keys: Tensor) -> Tensor:
    total: Tensor | None = None
    for start in range(0, keys.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        keys_on_grid = to_grid(keys[:, part], PAIR_BITS)
        product = torch.matmul(to_grid(query[..., part], PAIR_BITS), keys_on_grid.t())
        total = product if total is None else total + product
    assert total is not None
    return total


def _weighted_sum(shares: Tensor, latents: Tensor) -> Tensor:
    """Each latent is scaled to its own power of two, which moves into its share."""
    largest = torch.linalg.vector_norm(latents, float("inf"), -1)
    power = power_of_two_below(largest) * 2.0
    unit = torch.where(power > 0, power, 1.0)
    latents = to_fixed_grid(latents / unit.unsqueeze(-1), 2.0**-PAIR_BITS)  # |.| <= 1
    weights = to_grid(shares * unit, PAIR_BITS)
    total: Tensor | None = None
    for start in range(0, latents.shape[0], BLOCK):
        part = slice(start, start + BLOCK)
        product = torch.matmul(weights[..., part], latents[part])
        total = product if total is None else total + product
    assert total is not None
    return total
