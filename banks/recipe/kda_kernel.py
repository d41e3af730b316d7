"""Triton kernel of the delta rule, one program a (row, head), state in registers.

The forward pass keeps the state at every 16th token. The backward pass walks those blocks from the
end: it recomputes the 16 decayed states of a block into a scratch and runs the adjoint recurrence.
Tokens must be a multiple of 16 and dim a power of two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 16
WARPS = (1, 2, 4)
_chosen: dict[tuple[str, int, int], int] = {}


def fastest_warps(name: str, programs: int, tokens: int, launch: Callable[[int], object]) -> int:
    """Warps a program for this kernel and shape, timed once on the device in use."""
    key = (name, programs, tokens)
    if key not in _chosen:
        times_ms = {}
        for warps in WARPS if torch.cuda.is_available() else ():
            launch(warps)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            launch(warps)
            end.record()
            end.synchronize()
            times_ms[warps] = begin.elapsed_time(end)
        _chosen[key] = min(times_ms, key=times_ms.__getitem__) if times_ms else 1
    return _chosen[key]


@triton.jit
def _forward(
    q, k, v, g, beta, o, saved, heads, scale,
    BLOCKS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    row, head = pid // heads, pid % heads
    lane = tl.arange(0, D)
    tile = lane[:, None] * D + lane[None, :]
    state = tl.zeros((D, D), tl.float32)
    at = (row * BLOCKS * BLOCK * heads + head).to(tl.int64)
    for block in range(BLOCKS):
        tl.store(saved + (pid * BLOCKS + block).to(tl.int64) * D * D + tile, state)
        for _ in range(BLOCK):
            kt = tl.load(k + at * D + lane).to(tl.float32)
            vt = tl.load(v + at * D + lane).to(tl.float32)
            qt = tl.load(q + at * D + lane).to(tl.float32) * scale
            state = state * tl.exp(tl.load(g + at * D + lane))[:, None]
            delta = tl.load(beta + at) * (vt - tl.sum(state * kt[:, None], 0))
            state = state + kt[:, None] * delta[None, :]
            tl.store(o + at * D + lane, tl.sum(state * qt[:, None], 0).to(o.dtype.element_ty))
            at += heads


@triton.jit
def _backward(
    q, k, v, g, beta, do, saved, scratch, dq, dk, dv, dg, dbeta, heads, scale,
    BLOCKS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    row, head = pid // heads, pid % heads
    lane = tl.arange(0, D)
    tile = lane[:, None] * D + lane[None, :]
    local = scratch + pid.to(tl.int64) * BLOCK * D * D + tile
    dstate = tl.zeros((D, D), tl.float32)
    for step in range(BLOCKS):
        block = BLOCKS - 1 - step
        state = tl.load(saved + (pid * BLOCKS + block).to(tl.int64) * D * D + tile)
        first = (((row * BLOCKS + block) * BLOCK) * heads + head).to(tl.int64)
        at = first
        for i in range(BLOCK):
            kt = tl.load(k + at * D + lane).to(tl.float32)
            vt = tl.load(v + at * D + lane).to(tl.float32)
            state = state * tl.exp(tl.load(g + at * D + lane))[:, None]
            tl.store(local + i * D * D, state)
            delta = tl.load(beta + at) * (vt - tl.sum(state * kt[:, None], 0))
            state = state + kt[:, None] * delta[None, :]
            at += heads
        tl.debug_barrier()
        for i in range(BLOCK):
            at -= heads
            kt = tl.load(k + at * D + lane).to(tl.float32)
            vt = tl.load(v + at * D + lane).to(tl.float32)
            qt = tl.load(q + at * D + lane).to(tl.float32) * scale
            dot = tl.load(do + at * D + lane).to(tl.float32)
            bt = tl.load(beta + at)
            decay = tl.exp(tl.load(g + at * D + lane))
            decayed = tl.load(local + (BLOCK - 1 - i) * D * D)
            error = vt - tl.sum(decayed * kt[:, None], 0)
            delta = bt * error
            after = decayed + kt[:, None] * delta[None, :]
            dqt = tl.sum(after * dot[None, :], 1) * scale
            tl.store(dq + at * D + lane, dqt.to(dq.dtype.element_ty))
            dstate += qt[:, None] * dot[None, :]
            ddelta = tl.sum(dstate * kt[:, None], 0)
            derror = bt * ddelta
            dkt = tl.sum(dstate * delta[None, :] - decayed * derror[None, :], 1)
            tl.store(dk + at * D + lane, dkt.to(dk.dtype.element_ty))
            tl.store(dv + at * D + lane, derror.to(dv.dtype.element_ty))
            tl.store(dbeta + at, tl.sum(ddelta * error, 0))
            dstate = dstate - kt[:, None] * derror[None, :]
            tl.store(dg + at * D + lane, tl.sum(dstate * decayed, 1))
            dstate = dstate * decay[:, None]
        tl.debug_barrier()


class DeltaRule(torch.autograd.Function):
    """`delta_rule` with its gradient; arguments as in `banks.recipe.kda`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        q, k, v, g, beta = (t.contiguous() for t in (q, k, v, g, beta))
        rows, tokens, heads, dim = q.shape
        if tokens % BLOCK:
            raise ValueError(f"a row of {tokens} tokens is not a multiple of {BLOCK}; pad it")
        out = torch.empty_like(q)
        saved = q.new_empty(rows * heads, tokens // BLOCK, dim, dim, dtype=torch.float32)

        def launch(warps: int) -> None:
            _forward[(rows * heads,)](
                q, k, v, g, beta, out, saved, heads, dim**-0.5,
                BLOCKS=tokens // BLOCK, D=dim, BLOCK=BLOCK,
                num_warps=warps,  # pyright: ignore[reportCallIssue]
            )  # fmt: skip

        launch(fastest_warps("forward", rows * heads, tokens, launch))
        ctx.save_for_backward(q, k, v, g, beta, saved)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        q, k, v, g, beta, saved = ctx.saved_tensors
        rows, tokens, heads, dim = q.shape
        scratch = q.new_empty(rows * heads, BLOCK, dim, dim, dtype=torch.float32)
        dq, dk, dv, dg, dbeta = (torch.empty_like(t) for t in (q, k, v, g, beta))
        grad = grads[0].contiguous()

        def launch(warps: int) -> None:
            _backward[(rows * heads,)](
                q, k, v, g, beta, grad, saved, scratch, dq, dk, dv, dg, dbeta,
                heads, dim**-0.5, BLOCKS=tokens // BLOCK, D=dim, BLOCK=BLOCK,
                num_warps=warps,  # pyright: ignore[reportCallIssue]
            )  # fmt: skip

        launch(fastest_warps("backward", rows * heads, tokens, launch))
        return dq, dk, dv, dg, dbeta
