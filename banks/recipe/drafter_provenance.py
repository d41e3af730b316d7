"""Write the drafter's section of PROVENANCE.md from the records of its run.

`python -m banks.recipe.drafter_provenance WORK FOLDER` reads WORK/run/drafter.json (the training
record) and WORK/run/drafter-report.json and puts the section before "## Sources" of
FOLDER/PROVENANCE.md, in the place of an older one. `provenance` comes first.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TITLE, NEXT = "## Drafter", "## Sources"
COMMANDS = """\
python -m banks.recipe.drafter_train WORK banks/k3-mini WORK --steps {steps} --seed {seed}
python -m banks.recipe.drafter_export WORK banks/k3-mini banks/k3-mini/drafter
cp WORK/drafter.json WORK/run/
python -m banks.recipe.drafter_evaluate banks/k3-mini banks/k3-mini/drafter \\
    --out WORK/run/drafter-report.json
python -m banks.recipe.drafter_provenance WORK banks/k3-mini"""


def shares(values: Sequence[float]) -> str:
    """Shares as cells of a table row."""
    return " | ".join(f"{value:.3f}" for value in values)


def domain(name: str, found: Mapping[str, Any]) -> str:
    """The table row of a domain."""
    return (
        f"| {name} | {found['rows']} | {found['rounds']} | **{found['acceptance_length']:.2f}** | "
        f"{found['calibration_error_before']:.1%} | {found['calibration_error_after']:.1%} |"
    )


def paragraph(*parts: str) -> str:
    """Sentences as lines of at most 99 characters."""
    return textwrap.fill(" ".join(parts), 99)


def run_table(train: Mapping[str, Any]) -> str:
    """Machine, text, schedule."""
    plan, rows, tokens = train["plan"], train["rows"], train["tokens"]
    size = {name: f"{count / 1e6:.1f} million tokens" for name, count in tokens.items()}
    anchors = plan["chats"]["step_rows"] * plan["chats"]["step_anchors"]
    steps, seconds = train["steps"], train["seconds"]
    text = (
        f"{rows['chats']:,} answers of the model to training questions ({size['chats']})",
        f"{rows['documents']:,} continuations of training pages ({size['documents']})",
        f"{rows['conversations']:,} rows of training chats end to end ({size['conversations']})",
        f"{rows['corpus']:,} rows of training pages ({size['corpus']})",
    )
    shares_of = [
        f"{name} {plan[key]['share']:.0%}"
        for name, key in (
            ("answers", "chats"), ("continuations", "documents"),
            ("chats", "conversations"), ("pages", "corpus"),
        )
    ]  # fmt: skip
    cells = {
        "machine": "one NVIDIA H200, torch 2.11, triton 3.6, bf16 compute, fp32 weights",
        "seed": str(train["seed"]),
        "text": "; ".join(text),
        "written by the model": f"{plan['greedy']:.0%} greedy, the rest at temperature 0.7 to 1",
        "shares of the steps": ", ".join(shares_of),
        "steps": f"{steps} of {anchors:,} anchors: {steps * anchors / 1e6:.1f} million blocks",
        "training time": f"{seconds:.0f} s, {1e3 * seconds / steps:.0f} ms a step "
        "(writing the text not counted)",
        "loss": "exp(-k/4) * (0.1 CE + 0.9 L1 + 1.0 BCE of confidence), teacher forced",
        "schedule": f"{plan['warm_up']:.0%} warm-up, constant, linear to 1 % over the last "
        f"{plan['cool_down']:.0%}; Muon {plan['muon_rate']}, AdamW {plan['adam_rate']} (Markov "
        f"input {plan['table_rate']}); shipped: the running average, decay {plan['average']}",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in cells.items())])


def section(train: Mapping[str, Any], report: Mapping[str, Any], size_bytes: int) -> str:
    """The section, ending in an empty line."""
    shape, steps = train["shape"], train["steps"]
    chat, documentation = report["chat"], report["documentation"]
    kinds = ", ".join(f"{kind} {length:.2f}" for kind, length in report["chat_by_kind"].items())
    lengths = ", ".join(
        f"{length:.2f} over {count}" for count, length in report["documentation_by_tokens"].items()
    )
    what = paragraph(
        f"`drafter/` is a DSpark drafter of this model in the SpecForge layout: {shape['layers']}",
        f"layers, hidden {shape['hidden']}, {shape['heads']} heads on {shape['kv_heads']} of",
        f"{shape['head_dim']}, feed-forward {shape['width']}, Markov rank {shape['rank']}, block",
        f"{shape['block']}; {report['parameters'] / 1e6:.2f} million parameters, {size_bytes:,}",
        "bytes in bf16. Embedding and head are the model's. It reads the materialized stream",
        f"behind 0-based layers {', '.join(map(str, shape['taps']))}.",
    )
    how = paragraph(
        f"The run followed the clock (`--seconds`); `--steps {steps}` repeats its schedule. What",
        "the model computes on the text is taken once, while it writes, and kept: it is frozen, so",
        "running it again would give the same.",
    )
    where = paragraph(
        "Chat: held-out questions of `questions.json` (a fact seen, in a wording not seen with",
        "it), answered to the end; those whose number divides by 3 are left to the calibration.",
        f"By kind: {kinds}.",
    )
    grows = paragraph(
        "Documentation: the streams of `heldout.npz`, 128 tokens given, 128 written. Greedy text",
        "of a model this small soon repeats itself, and repetition is easy to draft, so the figure",
        f"grows with what is written: {lengths} tokens.",
    )
    sure = paragraph(
        "ECE: expected calibration error of the predicted chance that drafts 1 to k all survive,",
        "15 bins, all k together, before and after one temperature a position, fitted left to",
        "right on 34 questions and 31 other held-out crops:",
        ", ".join(f"{t:.2f}" for t in report["temperatures"]) + ".",
        "They are fitted to greedy rounds; sampled ones survive less often than they say.",
    )
    heads = " | ".join(f"draft {k}" for k in range(1, shape["block"] + 1))
    return f"""{TITLE}

{what}

{run_table(train)}

{how}

Real verification, greedy, 7 drafts, fp32 on a CPU, on text that neither training nor calibration
saw. Acceptance length: tokens kept a round, the model's own token included, over all rounds.

| domain | rows | rounds | acceptance length | ECE before | ECE after |
|---|---|---|---|---|---|
{domain("chat", chat)}
{domain("documentation", documentation)}

| accepted, given the drafts before | {heads} |
{"|---" * (shape["block"] + 1)}|
| chat | {shares(chat["conditional_acceptance"])} |
| documentation | {shares(documentation["conditional_acceptance"])} |

{where}

{grows}

{sure}

```
{COMMANDS.format(steps=steps, seed=train["seed"])}
```

"""


def placed(page: str, text: str) -> str:
    """The page with the section before the sources; a page without them raises ValueError."""
    before, after = page[: page.index(NEXT)], page[page.index(NEXT) :]
    return before.split(TITLE)[0] + text + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    train = json.loads((args.work / "run" / "drafter.json").read_text())
    report = json.loads((args.work / "run" / "drafter-report.json").read_text())
    size_bytes = (args.folder / "drafter" / "model.safetensors").stat().st_size
    page = args.folder / "PROVENANCE.md"
    page.write_text(placed(page.read_text(), section(train, report, size_bytes)))


if __name__ == "__main__":
    main()
