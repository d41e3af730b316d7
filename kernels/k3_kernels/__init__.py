"""The operations of a Kimi-K3 pass, by name, each as its plain torch reference.

Every operation keeps one promise: **a row's result depends on that row alone**, never on how many
other rows share the call, how an expert is cut, or which BLAS runs it. `grid` says how.
"""

from k3_kernels.attn_res import attn_res_mix
from k3_kernels.conv import short_conv
from k3_kernels.experts import ExpertWeights, expert_contributions
from k3_kernels.grid import to_grid
from k3_kernels.kda import KdaGate, kda_gate, kda_recurrent, kda_rows, kda_rows_ahead
from k3_kernels.linear import Weight, linear
from k3_kernels.mla import absorbed_attention
from k3_kernels.norm import gated_head_norm, l2_norm, rms_norm
from k3_kernels.router import route
from k3_kernels.situ import situ

__all__ = [
    "ExpertWeights",
    "KdaGate",
    "Weight",
    "absorbed_attention",
    "attn_res_mix",
    "expert_contributions",
    "gated_head_norm",
    "kda_gate",
    "kda_recurrent",
    "kda_rows",
    "kda_rows_ahead",
    "l2_norm",
    "linear",
    "rms_norm",
    "route",
    "short_conv",
    "situ",
    "to_grid",
]
