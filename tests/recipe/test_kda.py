"""The delta rule: worked two-token case, gate values, and the kernel against the reference."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import torch

from banks.recipe.kda import causal_conv, delta_rule_reference, kda_inputs

ROOT = Path(__file__).resolve().parents[2]


def test_two_tokens_by_hand() -> None:
    scale = math.sqrt(2.0)  # undoes the dim**-0.5 that the recurrence applies to q
    q = torch.tensor([[1.0, 0.0], [0.6, 0.8]])[None, :, None] * scale
    k = torch.tensor([[0.6, 0.8], [0.0, 1.0]])[None, :, None]
    v = torch.tensor([[1.0, 2.0], [-1.0, 1.0]])[None, :, None]
    decay = torch.tensor([[-1.0, -2.0], [-0.5, -3.0]])[None, :, None]
    out = delta_rule_reference(q, k, v, decay, torch.tensor([[[0.5], [0.25]]]))
    expected = torch.tensor([[0.3, 0.6], [-0.07887558, 0.44224883]])
    torch.testing.assert_close(out[0, :, 0], expected, atol=1e-6, rtol=0.0)


def test_gate_is_a_bounded_sigmoid() -> None:
    a_log = torch.tensor([0.0, 0.0, 1.2, -1.0])
    z = torch.tensor([[0.0, 3.0, -2.0, 10.0]])
    qkv, taps = torch.zeros(1, 12), torch.zeros(12, 4)
    log_decay = kda_inputs(qkv, taps, z, a_log, torch.zeros(4), -5.0, 1)[3]
    expected = torch.tensor([-2.5, -4.762870634, -0.00652508172, -4.876843121])
    torch.testing.assert_close(log_decay.flatten(), expected)


def test_convolution_is_causal_and_stays_in_its_row() -> None:
    x = torch.zeros(8, 1)
    x[2] = 1.0  # third of four tokens in the first of two rows
    taps = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    out = causal_conv(x, taps, tokens=4).flatten()
    torch.testing.assert_close(out, torch.tensor([0.0, 0.0, 0.4, 0.3, 0.0, 0.0, 0.0, 0.0]))


COMPARE = """
import sys, torch
from banks.recipe.kda import delta_rule_reference
from banks.recipe.kda_kernel import DeltaRule
g = torch.Generator().manual_seed(int(sys.argv[1]))
shape = (2, 32, 2, 16)
q, v, w = (torch.randn(shape, generator=g) for _ in range(3))
k = torch.nn.functional.normalize(torch.randn(shape, generator=g), dim=-1)
decay, beta = -5.0 * torch.rand(shape, generator=g) ** 2, torch.rand(shape[:3], generator=g)
results = []
for rule in (delta_rule_reference, DeltaRule.apply):
    inputs = [t.clone().requires_grad_() for t in (q, k, v, decay, beta)]
    out = rule(*inputs)
    (out * w).sum().backward()
    results.append([out.detach(), *(t.grad for t in inputs)])
for expected, found in zip(*results):
    assert float((expected - found).norm() / expected.norm()) < 1e-5
"""


def test_kernel_and_its_gradients_match_the_reference(seed: int) -> None:
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", COMPARE, str(seed)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
