"""Causal depthwise convolution of four taps in front of KDA's q, k and v."""

from __future__ import annotations

from torch import Tensor

from k3_kernels.norm import sigmoid

TAPS = 4


def short_conv(samples: Tensor, weight: Tensor) -> Tensor:
    """SiLU of y_t[c] = sum_j weight[j, c] * u_(t-3+j)[c]: tap 3 meets the newest sample.

    samples [3 + rows, channels]: three earlier pre-convolution samples, then the rows;
    weight f64 [4, channels]; returns [rows, channels] in the samples' dtype.
    """
    rows = samples.shape[0] - (TAPS - 1)
    wide = samples.double()
    total = wide[:rows] * weight[0]
    for tap in range(1, TAPS):
        total = total + wide[tap : tap + rows] * weight[tap]
    return (total * sigmoid(total)).to(samples.dtype)
