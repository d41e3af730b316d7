"""The element-wise pieces of the model, plain or compiled, and its matrices and norms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from banks.recipe.kda import kda_inputs, kda_output
from banks.recipe.quantise import rounded_fp8


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalised in fp32, rounded to x's dtype, then weighted."""
    x32 = x.float()
    normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return normed.to(x.dtype) * weight.to(x.dtype)


def situ(gate: Tensor, up: Tensor, gate_beta: float, up_beta: float) -> Tensor:
    """[b tanh(g/b) sigmoid(g)] * [c tanh(u/c)], in fp32."""
    g, u = gate.float(), up.float()
    capped = gate_beta * torch.tanh(g / gate_beta) * torch.sigmoid(g)
    return (capped * (up_beta * torch.tanh(u / up_beta))).to(gate.dtype)


def mix(sources: list[Tensor], norm: Tensor, proj: Tensor, eps: float) -> Tensor:
    """AttnRes: softmax-weighted sum of the raw sources, scored by a learned vector."""
    query = norm * proj[0]
    values = [s.float() for s in sources]
    scores = torch.stack(
        [(v * query).sum(-1) * torch.rsqrt(v.square().mean(-1) + eps) for v in values], -1
    )
    share = torch.softmax(scores, -1)
    total = values[0] * share[..., :1]
    for i in range(1, len(values)):
        total = total + values[i] * share[..., i : i + 1]
    return total.to(sources[-1].dtype)


@dataclass(frozen=True)
class Pieces:
    """The element-wise pieces, plain or compiled."""

    rms: Callable[..., Tensor] = rms
    situ: Callable[..., Tensor] = situ
    mix: Callable[..., Tensor] = mix
    kda_inputs: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]] = kda_inputs
    kda_output: Callable[..., Tensor] = kda_output

    @staticmethod
    def compiled() -> Pieces:
        """Each piece under torch.compile, with static shapes."""
        return Pieces(
            rms=torch.compile(rms, dynamic=False),
            situ=torch.compile(situ, dynamic=False),
            mix=torch.compile(mix, dynamic=False),
            kda_inputs=torch.compile(kda_inputs, dynamic=False),
            kda_output=torch.compile(kda_output, dynamic=False),
        )


class Linear(nn.Module):
    """A matrix [out, in] without bias; `rounding` imitates its release format in training."""

    def __init__(self, inputs: int, outputs: int, fp8: bool = False, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * (gain * inputs**-0.5))
        self.fp8 = fp8
        self.rounding = False

    def value(self) -> Tensor:
        return rounded_fp8(self.weight) if self.rounding and self.fp8 else self.weight

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.value().to(x.dtype))


class Norm(nn.Module):
    """A weight vector; the arithmetic is in `Pieces`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
