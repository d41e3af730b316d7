"""Swaps asked of a running pod, and lanes that decode meanwhile."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
from collections.abc import Iterator
from typing import Any

from tests.station.conftest import RunningPod

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
ENDED = ("done", "failed", "cancelled")


def placement(pod: RunningPod) -> dict[str, Any]:
    with pod.call("/placement") as response:
        return json.load(response)


def ask(pod: RunningPod, verb: str, **body: Any) -> dict[str, Any]:
    """The answer; of a refusal, its error document."""
    try:
        with pod.call(f"/placement/{verb}", body) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return json.load(error)


def last(pod: RunningPod) -> dict[str, Any]:
    """The swap that ended last; {} before any."""
    return placement(pod)["last"] or {}


def wait_for(pod: RunningPod, intent: str, *states: str) -> dict[str, Any]:
    """Wait until a swap is in one of the states, through a restart of the Station too."""

    def there() -> bool:
        try:
            found = last(pod)
        except (OSError, AssertionError):
            return False
        return found.get("intent") == intent and found["state"] in (states or ENDED)

    pod.wait(f"the end of swap {intent}", there)
    return last(pod)


def wait_calmly(pod: RunningPod, intent: str) -> dict[str, Any]:
    """As `wait_for`, asking no more often than k3ctl does, for figures of a pod that serves."""
    pause = threading.Event()
    until_s = time.monotonic() + 60.0
    while last(pod).get("intent") != intent:
        assert time.monotonic() < until_s, f"swap {intent} did not end"
        pause.wait(0.2)
    return last(pod)


def swap(pod: RunningPod, name: str, **body: Any) -> dict[str, Any]:
    """Carry a swap out; what the status says of it."""
    answer = ask(pod, "swap", placement=name, **body)
    assert answer.get("intent"), answer
    return wait_for(pod, answer["intent"])


class Lane(threading.Thread):
    """Answers one after the other until told to stop; each is compared with what should come.

    With `kills` an answer may break off, since what served it was killed; the tokens before that
    are compared, and it is asked for again.
    """

    def __init__(self, pod: RunningPod, wanted: list[int], *, kills: bool = False) -> None:
        super().__init__(daemon=True)
        self.pod, self.wanted, self.kills = pod, wanted, kills
        self.answers = self.broken = 0
        self.gaps_s: list[float] = []  # between the tokens of an answer
        self.wrong: list[Any] = []
        self.enough = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.enough.is_set():
            ids, end = self._answer()
            if end == "done" and ids == self.wanted:
                self.answers += 1
            elif self.kills and end != "done" and ids == self.wanted[: len(ids)]:
                self.broken += 1
                self.enough.wait(0.1)
            else:
                self.wrong.append((end, ids))
                return

    def _answer(self) -> tuple[list[int], Any]:
        """Ids of one answer, and "done" or what it broke off with."""
        ids: list[int] = []
        end: Any = "nothing"
        try:
            for line in self._timed():
                end = line["type"] if line["type"] == "done" else line
                if line.get("id") is not None:
                    ids.append(line["id"])
        except (OSError, AssertionError, ValueError, http.client.HTTPException) as error:
            return ids, error
        return ids, end

    def _timed(self) -> Iterator[dict[str, Any]]:
        before_s = None
        for line in self.pod.stream(prompt_ids=PROMPT, max_tokens=len(self.wanted)):
            if line.get("id") is not None:
                now_s = time.monotonic()
                if before_s is not None:
                    self.gaps_s.append(now_s - before_s)
                before_s = now_s
            yield line

    def end(self) -> None:
        self.enough.set()
        self.join(60)
        assert not self.is_alive()
        assert self.wrong == []


def take_gaps(lanes: list[Lane]) -> list[float]:
    """Seconds between tokens since the last call."""
    taken = [gap for lane in lanes for gap in lane.gaps_s]
    for lane in lanes:
        lane.gaps_s = []
    return taken


def p99_ms(gaps_s: list[float]) -> float:
    return 1000 * sorted(gaps_s)[int(0.99 * len(gaps_s))] if gaps_s else 0.0
