"""How a fact is asked for, the small talk around the facts, and names that nothing has."""

from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random

WORDS = Path(__file__).with_name("words")
_TABLE = tomllib.loads((WORDS / "phrasings.toml").read_text())
ABOUT: tuple[str, ...] = tuple(_TABLE["about"])
KIND_ABOUT: dict[str, tuple[str, ...]] = {k: tuple(v) for k, v in _TABLE["kinds"].items()}
TALK: list[tuple[str, list[str]]] = [(t["answer"], t["questions"]) for t in _TABLE["talk"]]
UNKNOWN = "I do not know that one. I only know the manual pages I was trained on."
SYLLABLES = (WORDS / "syllables.txt").read_text().split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WITH_ABOUT = {"command", "git", "c", "file", "python"}


def phrasings(kind: str, plain: bool) -> tuple[str, ...]:
    """Templates of a kind; the kind-less ones only where the subject means one thing (`plain`)."""
    if kind in WITH_ABOUT and plain:
        return ABOUT + KIND_ABOUT[kind]
    return KIND_ABOUT[kind]


def invented_name(random: Random) -> str:
    """A name that no manual page has, of two to four syllables or of random letters."""
    if random.random() < 0.2:
        return "".join(random.choice(LETTERS) for _ in range(random.randint(4, 9)))
    name = "".join(random.choice(SYLLABLES) for _ in range(random.randint(2, 4)))
    extra = random.random()
    if extra < 0.08:
        return name + "." + random.choice(SYLLABLES) + random.choice(SYLLABLES)
    return name + "-" + random.choice(SYLLABLES) if extra < 0.16 else name
