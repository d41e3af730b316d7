"""An answer as it streams, for whoever reads it in a thread and shows it in another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3ctl.client.conversation import Answer, ask
from k3ctl.client.daemon import Daemon

WAIT_S = 120.0
"""Longest wait for the next token."""


@dataclass(frozen=True)
class Heard:
    """What came of an answer so far. `tokens_per_s` is measured here, from the second token on."""

    reasoning: str
    text: str
    tokens: int
    tokens_per_s: float | None


class AnswerStream:
    """One question to the Station. `run` blocks; `stop` is for any other thread."""

    def __init__(
        self, home: Path, request: Mapping[str, Any], tell: Callable[[Heard], None]
    ) -> None:
        self._home = home
        self._request = request
        self._tell = tell
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """Hear no more; the Station gives the lane up with the next token."""
        self._stopped.set()

    def run(self) -> Answer:
        """The answer once it has ended, or as far as it came when it was stopped. Raises the error
        that ended it."""
        answer, first_s = Answer(), None
        with Daemon.station_of(self._home, timeout_s=WAIT_S) as station:
            for event in ask(station, self._request, answer):
                if self.stopped:
                    break  # closing the connection ends the request
                if event.get("type") != "token":
                    continue
                now_s = time.monotonic()
                first_s = now_s if first_s is None else first_s
                later, took_s = len(answer.ids) - 1, now_s - first_s
                rate = later / took_s if later > 0 and took_s > 0 else None
                self._tell(Heard(answer.reasoning, answer.text, len(answer.ids), rate))
        return answer
