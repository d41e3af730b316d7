"""How an answer looks on a terminal while it streams: reasoning dimmed, then the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k3ctl.cli.output import Output, paint


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
