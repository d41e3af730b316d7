"""One answer as it comes: engine events in, deltas out. A response that is not streamed is the
join of the same deltas, so both modes say the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from k3d.engine.request import FinishEvent, PromptEvent, Timing, TokenEvent
from k3d.station.openai.held_text import Released, TextToken


@dataclass(frozen=True)
class CallPiece:
    """The beginning of a tool call, with its name, or more of its arguments' JSON."""

    index: int
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True)
class Delta:
    """What an answer grew by."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[CallPiece, ...] = ()
    tokens: tuple[TextToken, ...] = ()
    """Tokens of `text`."""
    ids: tuple[int, ...] = ()
    """Every token that was delivered, whatever became of it."""

    @property
    def shown(self) -> bool:
        """Whether there is anything to tell a client."""
        return bool(self.text or self.reasoning or self.calls or self.tokens)


def join(deltas: Iterable[Delta]) -> Delta:
    """All deltas as one; pieces of one call are joined."""
    parts = list(deltas)
    if len(parts) == 1:
        return parts[0]
    calls: list[CallPiece] = []
    for piece in (piece for part in parts for piece in part.calls):
        last = calls[-1] if calls else None
        if last is not None and last.index == piece.index and piece.name is None:
            calls[-1] = CallPiece(last.index, last.name, last.arguments + piece.arguments)
        else:
            calls.append(piece)
    return Delta(
        text="".join(part.text for part in parts),
        reasoning="".join(part.reasoning for part in parts),
        calls=tuple(calls),
        tokens=tuple(token for part in parts for token in part.tokens),
        ids=tuple(token for part in parts for token in part.ids),
    )


class Answer(Protocol):
    """An answer in the making; what it counted is right at any time."""

    completion_tokens: int
    reasoning_tokens: int
    finish_reason: str | None
    """Set once the answer is settled; what the engine still sends is then of no account."""
    stop_reason: str | int | None
    timing: Timing | None
    """Of the engine, once it has ended the request."""

    def prompt(self, event: PromptEvent) -> None: ...

    def token(self, event: TokenEvent) -> Delta: ...

    def finish(self, event: FinishEvent) -> Delta: ...


def delta_of(released: Released, reasoning: str = "", ids: tuple[int, ...] = ()) -> Delta:
    """A delta of text alone."""
    return Delta(text=released.text, reasoning=reasoning, tokens=released.tokens, ids=ids)
