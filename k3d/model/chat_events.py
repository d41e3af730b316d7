"""What a model's answer consists of, as events while it streams and as one message afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """More of the reasoning; whole characters."""

    text: str


@dataclass(frozen=True, slots=True)
class ResponseText:
    """More of the response; whole characters."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call begins. `index` counts the answer's calls from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the JSON text of a call's arguments; its pieces join to the whole text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A tool call is over. Not `complete`: the answer stopped inside it, so its JSON is cut."""

    index: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Malformed:
    """The model broke the format here; parsing went on. `text` is output that is in no event."""

    reason: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer is over; only `Malformed` may follow, for ids after the end marker.

    Not `complete`: the answer stopped before its end marker.
    """

    complete: bool


ChatEvent: TypeAlias = (
    ReasoningText | ResponseText | CallStarted | CallArguments | CallFinished | Malformed | Ended
)


@dataclass(frozen=True)
class AnsweredCall:
    """A tool call of an answer. `arguments` is JSON text, or whatever the model wrote instead."""

    name: str
    arguments: str
    complete: bool


@dataclass(frozen=True)
class Answer:
    """A model's whole answer."""

    reasoning: str
    response: str
    calls: tuple[AnsweredCall, ...]
    complete: bool
    """Whether the end marker came."""
    malformed: tuple[Malformed, ...]
    """Every break of the format; empty for a well-formed answer, cut off or not."""


def join_events(events: Iterable[ChatEvent]) -> Answer:
    """The answer that a stream's events, all of them, amount to."""
    reasoning: list[str] = []
    response: list[str] = []
    names: list[str] = []
    arguments: list[list[str]] = []
    completed: set[int] = set()
    malformed: list[Malformed] = []
    complete = False
    for event in events:
        match event:
            case ReasoningText(text):
                reasoning.append(text)
            case ResponseText(text):
                response.append(text)
            case CallStarted(_, name):
                names.append(name)
                arguments.append([])
            case CallArguments(index, text):
                arguments[index].append(text)
            case CallFinished(index, complete=True):
                completed.add(index)
            case Malformed():
                malformed.append(event)
            case Ended():
                complete = event.complete
    calls = tuple(
        AnsweredCall(name, "".join(pieces), index in completed)
        for index, (name, pieces) in enumerate(zip(names, arguments, strict=True))
    )
    return Answer("".join(reasoning), "".join(response), calls, complete, tuple(malformed))
