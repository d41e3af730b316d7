"""The activation of Kimi-K3's MLPs."""

from __future__ import annotations

import torch
from torch import Tensor

from k3_kernels.norm import sigmoid


def situ(gate: Tensor, up: Tensor, beta: float, linear_beta: float) -> Tensor:
    """[beta tanh(gate/beta) sigmoid(gate)] * [linear_beta tanh(up/linear_beta)], f64.

    The logistic sees the uncapped gate. |situ| <= beta * linear_beta.
    """
    gate, up = gate.double(), up.double()
    capped = torch.tanh(gate / beta) * torch.tanh(up / linear_beta)
    return capped * sigmoid(gate) * (beta * linear_beta)
