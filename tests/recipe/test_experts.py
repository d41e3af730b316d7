"""Router and expert grid: the worked case, every pair once, values and gradients."""

from __future__ import annotations

from functools import partial

import torch

from banks.recipe.experts import ALIGN, plan_grid, route, routed_experts
from banks.recipe.pieces import situ

activation = partial(situ, gate_beta=4.0, up_beta=25.0)


def test_bias_chooses_but_does_not_weigh() -> None:
    logits = torch.tensor([[0.2, 1.0, -0.5, 0.9]])
    bias = torch.tensor([0.0, -0.6, 0.5, 0.0])
    chosen, weights = route(logits, torch.eye(4), bias, top_k=2, scaling=1.0)
    assert sorted(chosen[0].tolist()) == [2, 3]
    by_expert = dict(zip(chosen[0].tolist(), weights[0].tolist(), strict=True))
    assert abs(by_expert[2] - 0.34684803) < 1e-6
    assert abs(by_expert[3] - 0.65315197) < 1e-6


def test_every_pair_has_one_place_in_its_experts_run(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(50, 8, generator=generator).topk(3).indices
    grid = plan_grid(chosen, experts=8)
    assert grid.load.tolist() == torch.bincount(chosen.flatten(), minlength=8).tolist()
    assert grid.slot.unique().numel() == chosen.numel()
    assert torch.equal(grid.pair[grid.slot.flatten()], torch.arange(chosen.numel()))
    assert (grid.ends[:-1] % ALIGN == 0).all()
    owner = torch.searchsorted(grid.ends, grid.slot, right=True)
    assert torch.equal(owner, chosen)


def test_values_and_gradients_equal_a_plain_loop(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"rows": (20, 16), "w1": (6, 32, 16), "w2": (6, 16, 32), "w3": (6, 32, 16)}
    fixed = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    chosen = torch.rand(20, 6, generator=generator).topk(2).indices
    share = torch.rand(20, 2, generator=generator)
    probe = torch.randn(20, 16, generator=generator)
    results = []
    for grouped in (True, False):
        t = {name: value.clone().requires_grad_() for name, value in fixed.items()}
        weights = share.clone().requires_grad_()
        if grouped:
            grid = plan_grid(chosen, 6)
            out = routed_experts(t["rows"], weights, grid, t["w1"], t["w2"], t["w3"], activation)
        else:
            w1, w2, w3 = t["w1"][chosen], t["w2"][chosen], t["w3"][chosen]
            gate = torch.einsum("nkiz,nz->nki", w1, t["rows"])
            up = torch.einsum("nkiz,nz->nki", w3, t["rows"])
            each = torch.einsum("nkzi,nki->nkz", w2, activation(gate, up))
            out = (each * weights[..., None]).sum(1)
        (out * probe).sum().backward()
        results.append([out.detach(), weights.grad, *(value.grad for value in t.values())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_situ_values() -> None:
    gate = torch.tensor([1.0, -1.0, 8.0, -20.0, 0.5], dtype=torch.float64)
    up = torch.tensor([1.0, 1.0, 30.0, 5.0, -100.0], dtype=torch.float64)
    expected = [0.71581782807, -0.26333466257, 80.339652391, -4.067839178e-08, -7.73527709724]
    torch.testing.assert_close(
        activation(gate, up), torch.tensor(expected, dtype=torch.float64), atol=1e-5, rtol=1e-5
    )
