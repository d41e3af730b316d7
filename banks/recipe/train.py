"""Train k3-mini: documentation text, then chats among it, then with the release's rounding.

`python -m banks.recipe.train WORK --steps N` (or `--minutes M`: the schedule then follows the
clock) writes WORK/weights.pt, fp32, now and then and at the end, and WORK/train.json, its record.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from banks.recipe.batches import IGNORED, ChatRows, TextRows
from banks.recipe.config import K3_MINI, K3Config
from banks.recipe.model import K3, Experts
from banks.recipe.muon import Muon
from banks.recipe.pieces import Linear, Pieces


@dataclass(frozen=True)
class Plan:
    """The schedule; shares and rates are functions of progress 0..1."""

    text_rows: int = 64
    text_tokens: int = 512
    chat_rows: int = 256
    chat_tokens: int = 128
    muon_rate: float = 0.02
    embedding_rate: float = 5e-3
    adam_rate: float = 2e-3
    momentum: float = 0.95
    decay: float = 0.05
    warm_up: float = 0.02
    cool_down: float = 0.45
    rounding_from: float = 0.75
    balance_step: float = 2e-3

    def rate(self, progress: float) -> float:
        """Learning-rate factor: warm-up, constant, linear to 2 %."""
        if progress < self.warm_up:
            return max(progress / self.warm_up, 0.02)
        left = (1.0 - progress) / self.cool_down
        return max(min(1.0, left), 0.02)

    def chat_share(self, progress: float) -> float:
        """Probability that the second half of a step is chats instead of text."""
        if progress < 0.35:
            return 0.3
        return 0.7 if progress < 0.65 else 1.0


def optimisers(model: K3, plan: Plan) -> tuple[Muon, torch.optim.AdamW]:
    """Muon for the matrices inside the layers, AdamW for everything else."""
    matrices: list[nn.Parameter] = []
    for module in model.model.layers.modules():
        if isinstance(module, Experts):
            matrices += [module.w1, module.w2, module.w3]
        elif isinstance(module, Linear) and module.weight.shape[0] > 1:
            matrices.append(module.weight)
    inner = {id(p) for p in matrices}
    embedding = model.model.embed_tokens.weight
    others = [p for p in model.parameters() if id(p) not in inner and p is not embedding]
    groups = [
        {"params": [embedding], "lr": plan.embedding_rate, "base": plan.embedding_rate},
        {"params": others, "lr": plan.adam_rate, "base": plan.adam_rate},
    ]
    fused = embedding.is_cuda
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=fused)
    return Muon(matrices, plan.momentum, plan.decay), adam


def loss_of(model: K3, ids: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy (nats) over the targets that count."""
    logits = model.lm_head(model.hidden(ids)).float()
    flat = targets.flatten()
    total = functional.cross_entropy(logits, flat, ignore_index=IGNORED, reduction="sum")
    return total / (flat != IGNORED).sum().clamp_min(1)


def balance(model: K3, loads: Tensor, step: float) -> None:
    """Move every correction bias one step towards equal load, by sign, and keep its mean at 0."""
    for moe, load in zip(model.moe(), loads, strict=True):
        bias = moe.gate.e_score_correction_bias
        bias.add_(step * torch.sign(load.float().mean() - load))
        bias.sub_(bias.mean())


def save(model: K3, record: dict[str, object], work: Path) -> None:
    """Write weights and record, each in one rename."""
    torch.save(model.state_dict(), work / "weights.part")
    (work / "weights.part").rename(work / "weights.pt")
    (work / "train.json").write_text(json.dumps(record, indent=1) + "\n")


def heldout_loss(model: K3, stream: np.ndarray, rows: int = 64, tokens: int = 512) -> float:
    """Nats a token over the first rows (at most `rows`) of a held-out stream."""
    rows = min(rows, (len(stream) - 1) // tokens)
    crop = torch.from_numpy(stream[: rows * tokens + 1].astype(np.int64))
    device = model.lm_head.weight.device
    ids, targets = crop[:-1].view(rows, tokens).to(device), crop[1:].view(rows, tokens).to(device)
    with torch.no_grad():
        return float(loss_of(model, ids, targets))


class HalfStep:
    """Forward and backward of half a step at one shape; on a GPU, one captured CUDA graph.

    Gradients add up in the parameters' `grad`, which must exist and keep its place.
    """

    def __init__(self, model: K3, rows: int, tokens: int, device: torch.device) -> None:
        self.model = model
        self.ids = torch.zeros(rows, tokens, dtype=torch.int64, device=device)
        self.targets = torch.zeros_like(self.ids)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.result: tuple[Tensor, Tensor] | None = None

    def pass_through(self) -> tuple[Tensor, Tensor]:
        """Loss and loads [layers, experts]; adds half the gradient."""
        loss = loss_of(self.model, self.ids, self.targets)
        (loss * 0.5).backward()
        return loss.detach(), torch.stack([m.load for m in self.model.moe() if m.load is not None])

    def capture(self) -> None:
        """Warm up on a side stream, then capture; the gradients made by it mean nothing."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.pass_through()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = self.pass_through()

    def __call__(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        self.ids.copy_(ids)
        self.targets.copy_(targets)
        if self.graph is None or self.result is None:
            return self.pass_through()
        self.graph.replay()
        loss, loads = self.result
        return loss.clone(), loads.clone()


class Trainer:
    """Model, optimisers and data of one run."""

    def __init__(self, config: K3Config, plan: Plan, work: Path, seed: int) -> None:
        torch.manual_seed(seed)
        self.plan, self.work, self.seed, self.rounding = plan, work, seed, False
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        gpu = self.device.type == "cuda"
        torch.backends.cuda.enable_cudnn_sdp(False)  # the flash kernel is safe in a captured graph
        pieces = Pieces.compiled() if gpu else Pieces()
        dtype = torch.bfloat16 if gpu else torch.float32
        self.model = K3(config, dtype, pieces).to(self.device)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if name.endswith("A_log"):
                    parameter[config.kda_heads :] = 0.0
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.judge = K3(config, dtype).to(self.device)  # plain pieces: nothing to compile
        self.halves: dict[tuple[int, int], HalfStep] = {}
        self.muon, self.adam = optimisers(self.model, plan)
        text = np.load(work / "text.npz")
        self.heldout = text["heldout"]
        self.text = TextRows(text["train"], self.device)
        self.chats = ChatRows(work / "chats.npz", config.pad, self.device)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.coin = np.random.default_rng(seed)

    def draw(self, progress: float) -> list[tuple[str, Tensor, Tensor]]:
        """The two half batches of a step."""
        p = self.plan
        out = [("text", *self.text.draw(p.text_rows, p.text_tokens, self.generator))]
        if self.coin.random() < p.chat_share(progress):
            long = self.coin.random() < 0.2  # a fifth of the chats are long conversations
            shape = (p.text_rows, p.text_tokens) if long else (p.chat_rows, p.chat_tokens)
            out.append(("chat", *self.chats.draw(*shape, self.generator)))
        else:
            out.append(("text", *self.text.draw(p.text_rows, p.text_tokens, self.generator)))
        return out

    def prepare(self, rounding: bool) -> None:
        """Make the half steps of both shapes anew, with or without the release's rounding."""
        self.model.set_rounding(rounding)
        self.halves.clear()
        p = self.plan
        for rows, tokens in ((p.text_rows, p.text_tokens), (p.chat_rows, p.chat_tokens)):
            half = HalfStep(self.model, rows, tokens, self.device)
            if self.device.type == "cuda":
                half.capture()
            self.halves[rows, tokens] = half

    def step(self, progress: float) -> dict[str, Tensor]:
        """One optimiser step; the losses stay on the device."""
        rounding = progress >= self.plan.rounding_from
        if not self.halves or rounding != self.rounding:
            self.prepare(rounding)
            self.rounding = rounding
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        losses: dict[str, Tensor] = {}
        loads: list[Tensor] = []
        for kind, ids, targets in self.draw(progress):
            losses[kind], load = self.halves[ids.shape[0], ids.shape[1]](ids, targets)
            loads.append(load)
        factor = self.plan.rate(progress)
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * factor
        self.muon.step(self.plan.muon_rate * factor)
        self.adam.step()
        with torch.no_grad():
            load = torch.stack(loads).sum(0)
            balance(self.model, load, self.plan.balance_step * (0.1 if factor < 0.1 else 1.0))
        losses["peak"] = (load.amax(1) / load.float().mean(1)).mean()
        return losses

    def run(self, steps: int | None, minutes: float | None) -> None:
        """Train for `steps`, or for `minutes` after the first, compiling, steps."""
        history: list[dict[str, float]] = []
        start = saved = time.perf_counter()
        step, progress = 0, 0.0
        while progress < 1.0:
            losses = self.step(progress)
            step += 1
            if step == 10 and steps is None:
                if self.device.type == "cuda":
                    torch.cuda.synchronize()
                sys.stderr.write(f"compiled in {time.perf_counter() - start:.0f} s\n")
                start = saved = time.perf_counter()
            elapsed = time.perf_counter() - start
            if steps is not None:
                progress = step / steps
            elif minutes is not None and step >= 10:
                progress = elapsed / (60.0 * minutes)
            if step % 50 == 0 or step in (1, 10):
                row = {"step": step, "seconds": elapsed, "progress": progress}
                row |= {key: float(value) for key, value in losses.items()}
                history.append(row)
                sys.stderr.write(" ".join(f"{k} {v:.4g}" for k, v in row.items()) + "\n")
                sys.stderr.flush()
            if time.perf_counter() - saved > 150 or progress >= 1.0:
                saved = time.perf_counter()
                self.judge.load_state_dict(self.model.state_dict())
                nats = heldout_loss(self.judge, self.heldout)
                if not nats < 20.0:
                    raise FloatingPointError(f"held-out loss is {nats} at step {step}")
                sys.stderr.write(f"held-out {nats:.4f} nats a token\n")
                p = self.plan
                tokens = p.text_rows * p.text_tokens + p.chat_rows * p.chat_tokens
                record: dict[str, object] = {
                    "plan": asdict(p), "seed": self.seed, "steps": step, "seconds": elapsed,
                    "tokens": step * tokens, "heldout_nats": nats, "history": history,
                }  # fmt: skip
                save(self.model, record, self.work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if (args.steps is None) == (args.minutes is None):
        parser.error("give either --steps or --minutes")
    torch._dynamo.config.cache_size_limit = 64
    Trainer(K3_MINI, Plan(), args.work, args.seed).run(args.steps, args.minutes)


if __name__ == "__main__":
    main()
