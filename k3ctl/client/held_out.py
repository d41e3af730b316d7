"""Prompts to measure and check with: what the model's folder holds, else texts of our own."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import msgspec

from k3ctl.client.daemon import Daemon
from k3d.errors import ConfigError, NotFound
from k3d.placement.pod import PodDescription, model_directory
from k3d.store.state import StateReader

QUESTIONS = (
    "What does ls do?",
    "How do I copy a directory with everything in it?",
    "What is the difference between a process and a thread?",
    "Write a haiku about a slow disk.",
    "Why is the sky blue?",
    "Name three sorting algorithms and what each is good for.",
    "What happens when a file is deleted while a program reads it?",
    "Explain what a hash table is to a child.",
)
TEXTS = (
    "The pump stood at the end of the yard, and whoever wanted water had to prime it first. In "
    "winter the handle was wrapped in rags, for bare hands stuck to the iron. My grandmother drew "
    "two buckets before breakfast and two after, and could tell by the sound how deep the well "
    "was that week.",
    "NAME\n    cut - print selected parts of lines\n\nDESCRIPTION\n    Print the parts chosen of "
    "each line of each file to standard output. With no file, or when the file is -, read "
    "standard input. A list is one range, or several separated by commas.\n",
    "def merge(left, right):\n    out = []\n    while left and right:\n        out.append((left if "
    "left[0] <= right[0] else right).pop(0))\n    return out + left + right\n",
)


@dataclass(frozen=True)
class HeldOut:
    """Questions for the chat, and ids of running text; `source` says whose they are."""

    questions: tuple[str, ...]
    streams: tuple[tuple[int, ...], ...]
    source: str

    def question(self, index: int) -> str:
        """One of them, in turns."""
        return self.questions[index % len(self.questions)]

    def text(self, start: int, length: int) -> list[int]:
        """`length` ids of running text, streams one behind another from number `start` on."""
        count = len(self.streams)
        order = (self.streams[(start + i) % count] for i in range(count))
        return list(islice(cycle([token for stream in order for token in stream]), length))


def read_held_out(home: Path, station: Daemon) -> HeldOut:
    """What lies beside the model of the pod that runs, or the built-in texts in its tokens."""
    folder = _model_folder(home)
    questions = _questions(folder / "questions.json") if folder is not None else ()
    streams = _streams(folder / "heldout.npz") if folder is not None else ()
    names = [
        f"{name} of {folder.name}"
        for name, found in (("questions.json", questions), ("heldout.npz", streams))
        if found and folder is not None
    ]
    if not (questions and streams):
        names.append("built-in texts")
    return HeldOut(
        questions or QUESTIONS,
        streams or tuple(tuple(station.tokens(text)) for text in TEXTS),
        ", ".join(names),
    )


def _model_folder(home: Path) -> Path | None:
    try:
        with StateReader.open(home) as reader:
            stored = reader.pod()
    except NotFound:
        return None
    if stored is None:
        return None
    try:
        pod = msgspec.convert(stored.description, PodDescription)
    except msgspec.ValidationError:
        return None  # written by another version
    return model_directory(pod, home)


def _questions(path: Path) -> tuple[str, ...]:
    """Those of questions.json, its kinds mixed. Raises ConfigError when it holds something else."""
    if not path.is_file():
        return ()
    try:
        asked = msgspec.json.decode(path.read_bytes(), type=_Questions).questions
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    kinds: dict[str, list[str]] = {}
    for each in asked:
        kinds.setdefault(each.kind, []).append(each.question)
    longest = max((len(group) for group in kinds.values()), default=0)
    return tuple(g[i] for i in range(longest) for g in kinds.values() if i < len(g))


def _streams(path: Path) -> tuple[tuple[int, ...], ...]:
    """Streams of heldout.npz; none where numpy is not installed."""
    if not path.is_file() or importlib.util.find_spec("numpy") is None:
        return ()
    import numpy as np

    try:
        with np.load(path) as held:
            streams = held["streams"]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    return tuple(tuple(int(token) for token in stream) for stream in streams)


class _Question(msgspec.Struct, frozen=True):
    question: str
    kind: str = ""


class _Questions(msgspec.Struct, frozen=True):
    questions: list[_Question]
