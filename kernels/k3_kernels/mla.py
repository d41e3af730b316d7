"""Multi-head latent attention, absorbed: one latent row a token is all that is cached."""

from __future__ import annotations

import torch
from torch import Tensor

from k3_kernels.grid import (
    BLOCK,
    PAIR_BITS,
    grid_parts,
    power_of_two_below,
    product_of_parts,
    to_fixed_grid,
)

SHARE_QUANTUM = 2.0**-26
FINE_SHARE_QUANTUM = 2.0**-38


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
    keys, fine = cache.double(), cache.dtype is torch.float64
    scores = _scores(query, keys, fine) * scale  # [heads, rows, keys]
    hidden = torch.arange(keys.shape[0]) > positions.unsqueeze(-1)
    scores = scores.masked_fill(hidden, float("-inf"))
    shares = torch.exp(scores - scores.amax(-1, keepdim=True))
    quantum = FINE_SHARE_QUANTUM if fine else SHARE_QUANTUM
    total = to_fixed_grid(shares, quantum).sum(-1, keepdim=True)
    return _weighted_sum(shares, keys[:, :rank], fine) / total


def _scores(query: Tensor, keys: Tensor, fine: bool) -> Tensor:
    products = []
    for start in range(0, keys.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        queries = grid_parts(query[..., part], PAIR_BITS, fine=fine)
        against = grid_parts(keys[:, part], PAIR_BITS, fine=fine)
        products.append(product_of_parts(queries, [each.t() for each in against]))
    return _in_order(products)


def _weighted_sum(shares: Tensor, latents: Tensor, fine: bool) -> Tensor:
    """Each latent is scaled to its own power of two, which moves into its share."""
    largest = torch.linalg.vector_norm(latents, float("inf"), -1)
    power = power_of_two_below(largest) * 2.0
    unit = torch.where(power > 0, power, 1.0)
    scaled = latents / unit.unsqueeze(-1)  # |.| <= 1
    units = [to_fixed_grid(scaled, 2.0**-PAIR_BITS)]
    if fine:
        units.append(to_fixed_grid(scaled - units[0], 2.0 ** (-2 * PAIR_BITS)))
    weights = grid_parts(shares * unit, PAIR_BITS, fine=fine)
    products = []
    for start in range(0, latents.shape[0], BLOCK):
        part = slice(start, start + BLOCK)
        products.append(product_of_parts([w[..., part] for w in weights], [u[part] for u in units]))
    return _in_order(products)


def _in_order(products: list[Tensor]) -> Tensor:
    """Their sum, first to last."""
    total = products[0]
    for product in products[1:]:
        total = total + product
    return total
