"""Train k3-mini's drafter: the target writes, then the drafter learns from what it wrote.

`python -m banks.recipe.drafter_train WORK FOLDER OUT --steps N` (or `--seconds S`: the schedule
then follows the clock) reads WORK/text.npz, WORK/chats.npz and the release in FOLDER, writes
OUT/drafter (config and bf16 weights, no temperatures yet), OUT/drafter.pt (fp32) and
OUT/drafter.json, its record, now and then and at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from banks.recipe.config import K3Config
from banks.recipe.drafter_export import write_drafter
from banks.recipe.drafter_model import MINI, Drafter, DrafterConfig
from banks.recipe.drafter_rounds import Rounds, replayed
from banks.recipe.drafter_step import Source, StepPass, draw
from banks.recipe.drafter_target import freeze
from banks.recipe.drafter_text import (
    Prompts,
    Text,
    chat_prompts,
    chat_streams,
    corpus_rows,
    document_prompts,
    padded_prompts,
    questions,
    written,
)
from banks.recipe.model import K3
from banks.recipe.muon import Muon
from banks.recipe.pieces import Linear
from banks.recipe.release import load_release
from banks.recipe.tokens import Tokens

CHATS = Source(40_960, 120, 40_960, 512, 16, 0.42)
DOCUMENTS = Source(40_960, 320, 20_480, 256, 32, 0.45)
CONVERSATIONS = Source(3_072, 512, 128, 128, 64, 0.05)
CORPUS = Source(1_536, 1_024, 64, 64, 128, 0.08)


@dataclass(frozen=True)
class Plan:
    """Text and schedule; `group` rows are written at once."""

    chats: Source = CHATS
    documents: Source = DOCUMENTS
    conversations: Source = CONVERSATIONS
    corpus: Source = CORPUS
    prefix: tuple[int, int] = (8, 160)
    greedy: float = 0.6
    heldout: int = 64
    heldout_prefix: int = 128
    muon_rate: float = 0.02
    table_rate: float = 5e-3
    adam_rate: float = 2e-3
    momentum: float = 0.95
    decay: float = 0.05
    warm_up: float = 0.02
    cool_down: float = 0.7
    average: float = 0.99

    def rate(self, progress: float) -> float:
        """Learning-rate factor: warm-up, constant, linear to 1 %."""
        if progress < self.warm_up:
            return max(progress / self.warm_up, 0.01)
        return max(min(1.0, (1.0 - progress) / self.cool_down), 0.01)


def optimisers(drafter: Drafter, plan: Plan) -> tuple[Muon, torch.optim.AdamW]:
    """Muon for the matrices, AdamW for norms, Markov tables and the confidence head."""
    matrices = [m.weight for m in drafter.modules() if isinstance(m, Linear)]
    table = drafter.markov_head.markov_w1.weight
    inner = {id(p) for p in matrices}
    others = [p for p in drafter.parameters() if id(p) not in inner and p is not table]
    groups = [
        {"params": [table], "lr": plan.table_rate, "base": plan.table_rate},
        {"params": others, "lr": plan.adam_rate, "base": plan.adam_rate},
    ]
    adam = torch.optim.AdamW(
        groups, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=table.is_cuda
    )
    return Muon(matrices, plan.momentum, plan.decay), adam


class Trainer:
    """Target, text, drafter and optimisers of one run."""

    def __init__(
        self, shape: DrafterConfig, plan: Plan, work: Path, folder: Path, seed: int
    ) -> None:
        torch.manual_seed(seed)
        self.plan, self.folder, self.seed = plan, folder, seed
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        config = K3Config.read(folder / "config.json")
        model = K3(config, dtype)
        load_release(model, folder)
        self.model = freeze(model.to(self.device))
        self.embed = self.model.model.embed_tokens.weight.detach().to(dtype)
        self.head = self.model.lm_head.weight.detach()
        self.stop = Tokens.read(folder / "tiktoken.model").end
        text, chats = np.load(work / "text.npz"), np.load(work / "chats.npz")
        self.streams = {"train": text["train"], "heldout": text["heldout"]}
        self.chats = {name: chats[name] for name in chats.files}
        self.random = np.random.default_rng(seed)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.texts: dict[str, Text] = {}
        self.heldout: dict[str, Text] = {}
        self.passes: dict[str, StepPass] = {}
        self.drafter = Drafter(shape, dtype).to(self.device)
        self.average = Drafter(shape, dtype).to(self.device).requires_grad_(False)
        self.muon, self.adam = optimisers(self.drafter, plan)

    def write(self, seconds: float) -> dict[str, int]:
        """Let the target write for at most `seconds` (a group of each kind at least), and read
        the corpus rows; rows by kind.
        """
        plan, taps, pad = self.plan, self.drafter.c.taps, self.model.c.pad
        begin = time.perf_counter()
        corpus = self.random.integers(
            0, len(self.streams["train"]) - plan.corpus.tokens, plan.corpus.rows
        )
        ids = self.streams["train"][corpus[:, None] + np.arange(plan.corpus.tokens)]
        rows = torch.from_numpy(ids.astype(np.int64))
        self.texts["corpus"] = corpus_rows(self.model, rows, 16, taps, plan.corpus.group)
        talks = plan.conversations
        rows = chat_streams(self.chats, talks.rows, talks.tokens, self.random)
        self.texts["conversations"] = corpus_rows(self.model, rows, 32, taps, talks.group)
        self.heldout["chat"] = self.reply(
            padded_prompts([prompt for _, prompt in questions(self.folder)], pad)
        )
        sizes, fixed = (plan.heldout_prefix, plan.heldout_prefix), np.random.default_rng(0)
        self.heldout["documentation"] = self.go_on(
            document_prompts(self.streams["heldout"], plan.heldout, sizes, fixed, 1.0)
        )
        parts: dict[str, list[Text]] = {"chats": [], "documents": []}
        most = max(plan.chats.rows // plan.chats.group, plan.documents.rows // plan.documents.group)
        for group in range(most):
            if group and time.perf_counter() - begin > seconds:
                break
            if group * plan.chats.group < plan.chats.rows:
                asked = chat_prompts(self.chats, plan.chats.group, pad, self.random, plan.greedy)
                parts["chats"].append(self.reply(asked))
            if group * plan.documents.group < plan.documents.rows:
                crops = document_prompts(
                    self.streams["train"], plan.documents.group, plan.prefix, self.random,
                    plan.greedy,
                )  # fmt: skip
                parts["documents"].append(self.go_on(crops))
            self.wait()
            sys.stderr.write(f"group {group}: {time.perf_counter() - begin:.1f} s\n")
        self.texts |= {name: Text.joined(texts) for name, texts in parts.items()}
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # captured graphs have memory of their own
        return {name: text.ids.shape[0] for name, text in self.texts.items()}

    def reply(self, prompts: Prompts) -> Text:
        """Answers to chat prompts."""
        taps = self.drafter.c.taps
        return written(self.model, prompts, self.plan.chats.tokens, taps, self.stop)

    def go_on(self, prompts: Prompts) -> Text:
        """Documentation carried on from prefixes."""
        return written(self.model, prompts, self.plan.documents.tokens, self.drafter.c.taps)

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    @torch.no_grad()
    def start(self) -> None:
        """Begin with taps of equal size and the target's final norm."""
        sample = self.texts["documents"].taps[:64].float()
        width = self.drafter.c.hidden
        for i in range(len(self.drafter.c.taps)):
            part = slice(i * width, (i + 1) * width)
            size = sample[..., part].square().mean().sqrt()
            self.drafter.fc.weight[:, part] /= size
        self.drafter.norm.weight.copy_(self.model.model.norm.weight)
        self.average.load_state_dict(self.drafter.state_dict())

    def prepare(self) -> None:
        """Gradients to add to, and the passes of every text."""
        for parameter in self.drafter.parameters():
            parameter.grad = torch.zeros_like(parameter)
        for name, text in self.texts.items():
            source: Source = getattr(self.plan, name)
            one = StepPass(self.drafter, self.embed, self.head, text, source)
            if self.device.type == "cuda":
                one.capture()
            self.passes[name] = one

    def step(self, progress: float) -> tuple[str, Tensor, Tensor, Tensor]:
        """One optimiser step: source, loss, chances by position and CE, on the device."""
        plan = self.plan
        names = list(self.texts)
        shares = np.array([getattr(plan, name).share for name in names])
        name = names[self.random.choice(len(names), p=shares / shares.sum())]
        for parameter in self.drafter.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        picks, anchors = draw(self.texts[name], getattr(plan, name), self.generator)
        loss, chances, ce = self.passes[name](picks, anchors)
        factor = plan.rate(progress)
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * factor
        self.muon.step(plan.muon_rate * factor)
        self.adam.step()
        with torch.no_grad():
            for mine, new in zip(self.average.parameters(), self.drafter.parameters(), strict=True):
                mine.lerp_(new, 1.0 - plan.average)
        return name, loss, chances, ce

    def acceptance(self) -> dict[str, float]:
        """Acceptance length of the averaged drafter on held-out text."""
        return {
            name: Rounds.joined(replayed(self.average, self.embed, self.head, text, 32)).length
            for name, text in self.heldout.items()
        }

    def run(self, steps: int | None, seconds: float | None, out: Path, every_s: float) -> None:
        """Train for `steps` steps or `seconds`; save every `every_s` seconds."""
        record: dict[str, Any] = {
            "plan": asdict(self.plan), "shape": asdict(self.drafter.c), "seed": self.seed,
            "rows": {name: text.ids.shape[0] for name, text in self.texts.items()},
            "tokens": {
                name: int((text.ends - text.starts).sum()) for name, text in self.texts.items()
            },
            "history": [], "heldout": [],
        }  # fmt: skip
        self.start()
        self.prepare()
        self.wait()
        begin = saved = time.perf_counter()
        step, progress = 0, 0.0
        while progress < 1.0:
            name, loss, chances, ce = self.step(progress)
            step += 1
            if step % 20 == 0:
                self.wait()  # the clock must not run behind the launches
            elapsed = time.perf_counter() - begin
            progress = step / steps if steps is not None else elapsed / (seconds or 1.0)
            if step % 100 == 0 or step in (1, 10) or progress >= 1.0:
                row = {
                    "step": step, "seconds": elapsed, "source": name, "loss": float(loss),
                    "ce": float(ce), "chances": [round(x, 4) for x in chances.tolist()],
                }  # fmt: skip
                record["history"].append(row)
                sys.stderr.write(" ".join(f"{k} {v}" for k, v in row.items()) + "\n")
                if not np.isfinite(row["loss"]):
                    raise FloatingPointError(f"loss is {row['loss']} at step {step}")
            if time.perf_counter() - saved > every_s or progress >= 1.0:
                found = self.acceptance()
                record["heldout"].append({"step": step, "seconds": elapsed, **found})
                sys.stderr.write(f"held-out at step {step}: {found}\n")
                record |= {"steps": step, "seconds": elapsed}
                self.save(record, out, progress >= 1.0)
                saved = time.perf_counter()
                sys.stderr.flush()

    def save(self, record: dict[str, Any], out: Path, full: bool) -> None:
        """The averaged drafter and the record; with `full` its fp32 weights too."""
        write_drafter(self.average, [1.0] * self.drafter.c.block, out / "drafter")
        (out / "drafter.json").write_text(json.dumps(record, indent=1) + "\n")
        if full:
            torch.save(self.average.state_dict(), out / "drafter.pt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--write-seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if (args.steps is None) == (args.seconds is None):
        parser.error("give either --steps or --seconds")
    trainer = Trainer(MINI, Plan(), args.work, args.folder, args.seed)
    trainer.write(args.write_seconds)
    torch.set_float32_matmul_precision("high")  # bf16 values are exact in tf32
    trainer.run(args.steps, args.seconds, args.out, every_s=30.0)


if __name__ == "__main__":
    main()
