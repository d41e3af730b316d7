"""Choosing a token. A draw depends on (seed, position) alone, so it can be drawn again."""

from __future__ import annotations

import hashlib
import struct

import torch
from torch import Tensor

from k3d.engine.request import Sampling


def uniform(seed: int, position: int) -> float:
    """The draw in [0, 1) of one position, 53 bits of blake2b."""
    message = struct.pack("<qq", seed, position)
    (bits,) = struct.unpack("<Q", hashlib.blake2b(message, digest_size=8).digest())
    return (bits >> 11) * 2.0**-53


def choose(logits: Tensor, sampling: Sampling, position: int) -> int:
    """Token for `position` from logits f64 [vocab]; ties go to the lower id."""
    if sampling.temperature == 0.0:
        return int((logits == logits.max()).nonzero()[0])
    below = (logits - logits.max()) / sampling.temperature  # at most 0, however cold
    ordered, ids = torch.sort(below, descending=True, stable=True)
    if sampling.top_k:
        ordered = ordered[: sampling.top_k]
    shares = torch.exp(ordered)
    mass = torch.cumsum(shares, 0)
    kept = len(mass)
    if sampling.top_p < 1.0:
        kept = int((mass < sampling.top_p * mass[-1]).sum()) + 1  # up to the one that reaches it
    drawn = uniform(sampling.seed, position) * float(mass[kept - 1])
    return int(ids[min(int((mass <= drawn).sum()), kept - 1)])
