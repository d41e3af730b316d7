"""One answer of the model, put together from its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from k3ctl.client.daemon import Daemon

STATS = ("cached_tokens", "rounds", "drafted", "accepted", "acceptance_length")


@dataclass
class Answer:
    """What came so far. `usage`, `timing` and `stats` are the Station's, once it is done.

    `synthetic_acceptance` is set where drafts were accepted unchecked: then no model wrote this.
    """

    text: str = ""
    reasoning: str = ""
    ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    timing: dict[str, Any] | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    synthetic_acceptance: float | None = None

    def add(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        self.synthetic_acceptance = event.get("synthetic_acceptance", self.synthetic_acceptance)
        if kind == "token":
            if event.get("channel") == "reasoning":
                self.reasoning += str(event.get("text", ""))
            else:
                self.text += str(event.get("text", ""))
            if isinstance(event.get("id"), int):
                self.ids.append(event["id"])
        elif kind == "done":
            self.finish_reason = event.get("finish_reason")
            self.usage = event.get("usage")
            self.timing = event.get("timing")
            self.stats = {name: event.get(name) for name in STATS}

    def as_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "reasoning": self.reasoning or None,
            "ids": self.ids,
            "finish_reason": self.finish_reason,
            "usage": self.usage,
            "timing": self.timing,
            **self.stats,
            "provenance": "measured",
            "synthetic_acceptance": self.synthetic_acceptance,
        }


def ask(station: Daemon, request: Mapping[str, Any], answer: Answer) -> Iterator[Mapping[str, Any]]:
    """The events of an answer as they come, each added to `answer` before it is passed on."""
    for event in station.chat(request):
        answer.add(event)
        yield event
