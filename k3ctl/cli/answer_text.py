"""How an answer looks on a terminal while it streams: reasoning dimmed, then the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k3ctl.cli.output import Output, paint
from k3ctl.cli.table import count, seconds
from k3ctl.client.conversation import Answer
from k3d.counted import counted

WAITED_S = 0.05
"""Shorter waits for a lane are not worth a word."""


class AnswerText:
    """Shows the token events of one answer."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._channel: str | None = None

    def show(self, event: Mapping[str, Any]) -> None:
        text = str(event.get("text", ""))
        if event.get("type") != "token" or not text:
            return
        channel = str(event.get("channel", "response"))
        if self._channel == "reasoning" and channel != "reasoning":
            self._output.piece("\n\n")
        self._channel = channel
        self._output.piece(paint(text, "dim") if channel == "reasoning" else text)


def stats_line(answer: Answer) -> str:
    """What an answer cost: speed, prompt, drafts. A figure that does not exist is left out."""
    timing, usage, stats = answer.timing or {}, answer.usage or {}, answer.stats
    parts = []
    if timing.get("tokens_per_s") is not None:
        parts.append(f"{timing['tokens_per_s']:.1f} tokens/s")
    reused = f", {count(stats['cached_tokens'])} reused" if stats.get("cached_tokens") else ""
    if timing.get("prompt_s") is not None:
        asked = counted(usage.get("prompt_tokens"), "token")
        parts.append(f"prompt of {asked}{reused} in {timing['prompt_s']:.2f} s")
    if timing.get("queue_s", 0.0) >= WAITED_S:
        parts.append(f"waited {seconds(timing['queue_s'])}")
    if stats.get("acceptance_length") is not None:
        length = f"acceptance length {stats['acceptance_length']:.2f}"
        parts.append(f"{length}, rounds: {count(stats['rounds'])}")
    label = "measured"
    if answer.synthetic_acceptance is not None:
        label = f"SYNTHETIC ACCEPTANCE of {answer.synthetic_acceptance:g}: no model wrote this"
    return f"{', '.join(parts) or 'no figures came'} ({label})"
