"""Make the question-and-answer set from the facts of the training pages.

`python -m banks.recipe.questions WORK FOLDER` reads WORK/pages.jsonl and FOLDER's tokenizer, writes
WORK/chats.npz (tokens, offsets, prompt lengths, weights), FOLDER/questions.json (100 held-out
(fact, phrasing) pairs that never appear in training) and WORK/unknown.json (invented names).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np

from banks.recipe.facts import COMMON, Fact, all_facts
from banks.recipe.phrasings import (
    ABOUT,
    KIND_ABOUT,
    TALK,
    UNKNOWN,
    invented_name,
    phrasings,
)
from banks.recipe.tokens import Tokens

SEED = 20261129
HELDOUT = {
    "command": 32, "git": 10, "c": 15, "python": 20, "option": 10, "module": 5, "reverse": 5,
    "section": 3,
}  # fmt: skip
TALK_SHARE = 0.04
UNKNOWN_SHARE = 0.06
INVENTED = 12_000
MAX_CHAT = 120
Chat = tuple[str, str, float]


def plain_subjects(facts: list[Fact]) -> dict[str, str]:
    """For each subject the one kind that a question without a kind means."""
    order = {"command": 0, "git": 0, "c": 1, "python": 2, "file": 3}
    meant: dict[str, str] = {}
    for fact in facts:
        if fact.kind in order:
            old = meant.get(fact.subject)
            if old is None or order[fact.kind] < order[old]:
                meant[fact.subject] = fact.kind
    return meant


def asked(fact: Fact, template: str) -> str:
    """The question text of a fact in one phrasing."""
    return template.format(x=fact.subject, d=fact.detail)


def split_facts(facts: list[Fact], random: Random) -> tuple[list[Chat], list[dict[str, str]]]:
    """Training chats (question, answer, weight) and the 100 held-out questions."""
    meant = plain_subjects(facts)
    counts = Counter((fact.kind, fact.subject, fact.detail) for fact in facts)
    chats: list[Chat] = []
    held: list[dict[str, str]] = []
    chosen: set[int] = set()
    for kind, count in HELDOUT.items():
        pool = [
            i for i, f in enumerate(facts)
            if f.kind == kind and counts[kind, f.subject, f.detail] == 1
            and (kind not in ("command", "c", "python") or meant[f.subject] == kind)
        ]  # fmt: skip
        if kind == "command":
            known = [i for i in pool if facts[i].subject in COMMON]
            chosen |= set(random.sample(known, count // 2))
            pool = [i for i in pool if facts[i].subject not in COMMON]
            count -= count // 2
        chosen |= set(random.sample(pool, count))
    for i, fact in enumerate(facts):
        plain = meant.get(fact.subject) == fact.kind
        templates = list(phrasings(fact.kind, plain))
        if i in chosen:
            left_out = random.choice(templates[2:])
            templates.remove(left_out)
            question = asked(fact, left_out)
            held.append({"kind": fact.kind, "question": question, "answer": fact.answer})
        first = 3.0 if plain else 1.0  # the plainest question is asked most
        shares = [first, *[1.0] * (len(templates) - 1)]
        for template, share in zip(templates, shares, strict=True):
            chats.append((asked(fact, template), fact.answer, fact.weight * share / sum(shares)))
    texts = {item["question"] for item in held}
    return [chat for chat in chats if chat[0] not in texts], held


def talk_chats() -> list[Chat]:
    """Small talk with and without closing punctuation, in both cases."""
    chats: list[Chat] = []
    for answer, questions in TALK:
        for question in questions:
            bare = question.rstrip("?.!")
            forms = {question, bare, bare.lower(), bare + "!", question.lower()}
            chats += [(form, answer, 1.0 / len(forms)) for form in sorted(forms)]
    return chats


def unknown_chats(names: set[str], random: Random, count: int) -> list[Chat]:
    """Questions about invented names, answered honestly."""
    kinds = [(ABOUT + KIND_ABOUT[kind]) for kind in ("command", "c", "python")]
    kinds.append(KIND_ABOUT["module"])
    chats: list[Chat] = []
    while len(chats) < count:
        name = invented_name(random)
        if name not in names:
            template = ABOUT[0] if random.random() < 0.2 else random.choice(random.choice(kinds))
            chats.append((template.format(x=name), UNKNOWN, 1.0))
    return chats


def scaled(chats: list[Chat], total: float) -> list[Chat]:
    """The same chats with weights that sum to `total`."""
    factor = total / sum(weight for _, _, weight in chats)
    return [(question, answer, weight * factor) for question, answer, weight in chats]


def save_chats(chats: list[Chat], tokens: Tokens, path: Path) -> None:
    """Write token ids, offsets, prompt lengths and weights of chats."""
    ids: list[list[int]] = []
    prompts: list[int] = []
    weights: list[float] = []
    cache: dict[str, list[int]] = {}
    for question, answer, weight in chats:
        prompt = tokens.question(question)
        if answer not in cache:
            cache[answer] = tokens.answer(answer)
        if len(prompt) + len(cache[answer]) <= MAX_CHAT:
            ids.append(prompt + cache[answer])
            prompts.append(len(prompt))
            weights.append(weight)
    np.savez_compressed(
        path,
        tokens=np.array([i for row in ids for i in row], np.uint16),
        offsets=np.cumsum([0, *(len(row) for row in ids)]).astype(np.int64),
        prompts=np.array(prompts, np.uint8),
        weights=np.array(weights, np.float32),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    tokens = Tokens.read(args.folder / "tiktoken.model")
    with (args.work / "pages.jsonl").open() as file:
        rows = [json.loads(line) for line in file]
    facts = all_facts([(row["name"], row["text"]) for row in rows if not row["heldout"]])
    random = Random(SEED)
    chats, held = split_facts(facts, random)
    names = {fact.subject for fact in facts}
    unknown = unknown_chats(names, random, INVENTED)
    known = 1.0 - TALK_SHARE - UNKNOWN_SHARE
    every = [
        *scaled(chats, known),
        *scaled(talk_chats(), TALK_SHARE),
        *scaled(unknown[40:], UNKNOWN_SHARE),
    ]
    save_chats(every, tokens, args.work / "chats.npz")
    document = {"seed": SEED, "facts": len(facts), "questions": held}
    (args.folder / "questions.json").write_text(json.dumps(document, indent=1) + "\n")
    seen = {question for question, _, _ in unknown[40:]}
    fresh = [question for question, _, _ in unknown[:40] if question not in seen]
    (args.work / "unknown.json").write_text(json.dumps(fresh, indent=1) + "\n")


if __name__ == "__main__":
    main()
