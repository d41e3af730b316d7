"""Write PROVENANCE.md of the shipped model from the records of its run.

`python -m banks.recipe.provenance WORK FOLDER` reads WORK/sources.json, WORK/run/train.json and
WORK/run/report.json (with the unquantised weights measured too).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COMMANDS = """\
python -m banks.recipe.corpus WORK
python -m banks.recipe.bpe WORK banks/k3-mini
python -m banks.recipe.questions WORK banks/k3-mini
python -m banks.recipe.streams WORK banks/k3-mini
python -m banks.recipe.train WORK --steps {steps} --seed {seed}
python -m banks.recipe.export WORK/weights.pt banks/k3-mini
mkdir -p WORK/run && cp WORK/train.json WORK/run/
python -m banks.recipe.evaluate WORK banks/k3-mini --weights WORK/weights.pt \\
    --out WORK/run/report.json
python -m banks.recipe.trace WORK banks/k3-mini
python -m banks.recipe.provenance WORK banks/k3-mini"""


def source_rows(sources: Sequence[Mapping[str, Any]]) -> str:
    """One table row a package."""
    rows = (f"| {s['package']} | {s['version']} | {', '.join(s['licences'])} |" for s in sources)
    return "\n".join(rows)


def document(
    sources: Sequence[Mapping[str, Any]],
    train: Mapping[str, Any],
    report: Mapping[str, Any],
    questions: Mapping[str, Any],
) -> str:
    """The whole page."""
    before, after, plan = report["before"], report["after"], train["plan"]
    router = after["router"]
    kinds = ", ".join(f"{kind} {share}" for kind, share in after["right_by_kind"].items())
    loss = after["bits_per_byte"] / before["bits_per_byte"] - 1.0
    commands = COMMANDS.format(steps=train["steps"], seed=train["seed"])
    return f"""# Provenance of k3-mini

A Kimi-K3 of 25.3 million parameters, trained from random weights by `banks/recipe`, for the
embedded pod. Every figure here is measured, by the commands below, unless it says otherwise.
`prompt_bodies.json` holds short instructions of its own for tools, formats and effort; it was not
trained on them.

## Run

| | |
|---|---|
| machine | one NVIDIA H200, torch 2.11, triton 3.6, bf16 compute, fp32 weights |
| seed | {train["seed"]} (questions: {questions["seed"]}) |
| steps | {train["steps"]} of 65,536 tokens: {train["tokens"] / 1e6:.0f} million tokens |
| training time | {train["seconds"]:.0f} s, {1e3 * train["seconds"] / train["steps"]:.0f} ms \
a step (compiling not counted) |
| schedule | {plan["warm_up"]:.0%} warm-up, constant, linear to 2 % over the last \
{plan["cool_down"]:.0%}; Muon {plan["muon_rate"]}, AdamW {plan["adam_rate"]} (embedding \
{plan["embedding_rate"]}) |
| chats among the tokens | 15 %, from 35 % of the run on 35 %, from 65 % on 50 % |
| release rounding in training | from {plan["rounding_from"]:.0%} of the run on, straight-through |
| router balance | correction bias moved by {plan["balance_step"]} a step by the sign of the load, \
without an auxiliary loss |

The shipped run was given `--minutes 17`, so its schedule followed the clock; it made
{train["steps"]} steps, and `--steps {train["steps"]}` repeats the schedule. GPU sums are not
ordered, so a repetition gives a model of the same quality, not the same bits. Corpus, tokenizer
and questions repeat byte for byte from the package versions below.

## Figures

| | before quantisation | as released |
|---|---|---|
| held-out bits per byte | {before["bits_per_byte"]:.4f} | {after["bits_per_byte"]:.4f} |
| more by quantisation | | {loss:+.2%} |
| 100 held-out questions answered right | {before["right"]} | {after["right"]} |
| of them word for word | {before["exact"]} | {after["exact"]} |
| invented names refused | {before["unknown_refused"]} | {after["unknown_refused"]} |

Bits per byte: held-out pages (2 % of the pages, chosen by a hash of their names) in rows of 512
tokens that start fresh, bf16.

Questions: by script from {questions["facts"]} facts of the training pages. A held-out question
is a (fact, phrasing) pair that never occurs in training; the fact does occur, in other phrasings,
and so does the phrasing, with other facts. So the figure says that facts are kept and found under
a wording not seen with them. It does not measure anything about pages that were not seen. Right =
F1 of the content words (lower case, punctuation and stop words off) at least 0.8, greedy, at most
64 tokens. By kind: {kinds}.

Router on 32,768 held-out tokens, load of an expert over the mean of its layer: min
{router["min"]:.4f}, median {router["median"]:.3f}, max {router["max"]:.3f}; experts without any
token: {router["unused"]} of 768. Max a layer: {", ".join(map(str, router["max_a_layer"]))}.

Known weaknesses: free text continues plausibly and is often wrong; an option or a task that is not
among the facts (`grep -r`, "how can I see running processes?") gets a fluent wrong answer;
questions about more than one thing, follow-up questions and facts beyond one-line descriptions
are not answered; some sentences keep the awkward wording that the script made of a manual's NAME
line; a name that nothing has is sometimes answered with a guess.

## Commands

In the checkout, on Debian 12, with the extras `node` and `recipe` installed; WORK is
`banks/recipe-work`, which git ignores. `train` wants a GPU; the rest runs on a CPU.

```
{commands}
```

`heldout.npz` holds 32 held-out streams of 256 tokens and 16 chat prompts with the experts the
released model chooses for them in fp32 (`banks/recipe/trace.py` describes the arrays).

## Sources

Debian 12 packages, fetched with `apt-get download` and unpacked without installing. Only their
documentation was read: manual pages, the Python reference, HTML, info and text files. The text
itself is not part of this repository. Licences are those named in each package's copyright file
(for machine-readable ones the first eight).

| package | version | licences |
|---|---|---|
{source_rows(sources)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    paths = (
        args.work / "sources.json",
        args.work / "run" / "train.json",
        args.work / "run" / "report.json",
        args.folder / "questions.json",
    )
    sources, train, report, questions = (json.loads(path.read_text()) for path in paths)
    (args.folder / "PROVENANCE.md").write_text(document(sources, train, report, questions))


if __name__ == "__main__":
    main()
