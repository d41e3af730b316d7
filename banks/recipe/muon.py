"""Muon: momentum whose matrix updates are made orthogonal, many equal matrices at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """Newton-Schulz iteration towards the nearest orthogonal matrices; [count, rows, columns]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    tall = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if tall else x
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(x.dtype)
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(1, 2) if tall else x


class Muon:
    """Optimiser of matrices [out, in] and stacks of matrices [experts, out, in]."""

    def __init__(self, parameters: Iterable[nn.Parameter], momentum: float, decay: float) -> None:
        groups: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            groups[tuple(parameter.shape)].append(parameter)
        self.groups = list(groups.values())
        self.momentum, self.decay = momentum, decay
        self.buffers = [torch.zeros_like(torch.stack(list(group))) for group in self.groups]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update at learning rate `rate` from the gradients in place."""
        for group, buffer in zip(self.groups, self.buffers, strict=True):
            grads = torch.stack([p.grad for p in group if p.grad is not None])
            buffer.lerp_(grads, 1.0 - self.momentum)
            update = grads.lerp(buffer, self.momentum)
            rows, columns = update.shape[-2:]
            flat = orthogonal(update.reshape(-1, rows, columns)).to(buffer.dtype)
            scale = rate * max(1.0, rows / columns) ** 0.5
            for parameter, change in zip(group, flat.reshape(buffer.shape), strict=True):
                parameter.mul_(1.0 - rate * self.decay).sub_(change, alpha=scale)
