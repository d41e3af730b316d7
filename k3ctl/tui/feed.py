"""Where frames come from: one thread that asks, and messages that replace one another.

The thread that draws only says that a tick has come. If the last question is still open the tick
is dropped; a source that hangs is asked again when it has answered, and waited for by nobody. The
newest answer replaces one that has not been drawn yet. After an error the next tick asks again, so
a daemon that was started anew is found without being told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from textual.message import Message

from k3ctl.client.frames import FrameSource
from k3d.errors import K3Error
from k3d.store.frame import Frame

LEAST_INTERVAL_S = 0.25
BACKLOG_MS = 600_000
BACKLOG_FRAMES = 300


@runtime_checkable
class Recorded(Protocol):
    """The pod as it was: frames that were kept."""

    def span(self) -> tuple[int, int] | None: ...

    def at(self, at_ms: int) -> Frame | None: ...

    def after(self, at_ms: int) -> Frame | None: ...

    def between(self, first_ms: int, last_ms: int, most: int, /) -> Sequence[Frame]: ...


@dataclass(frozen=True)
class Question:
    """What is asked next. `at_ms` seeks in a recording: the newest frame not after it; `onward`
    wants a frame after it instead. None asks for the latest."""

    at_ms: int | None = None
    onward: bool = False


class Fetched(Message):
    """An answer, or the error that came instead of it."""

    def __init__(
        self,
        frame: Frame | None,
        error: K3Error | None = None,
        backlog: Sequence[Frame] = (),
        question: Question | None = None,
        seek: bool = False,
    ) -> None:
        super().__init__()
        self.frame = frame
        self.error = error
        self.backlog = backlog
        self.question = question
        self.seek = seek
        """The backlog is all there is before the frame: what was remembered is forgotten."""

    def can_replace(self, message: Message) -> bool:
        """Whether a newer message may come in its place: not if that would lose a backlog."""
        return isinstance(message, Fetched) and not self.backlog


class Feed:
    """Asks a source in a thread of its own, one question at a time."""

    def __init__(
        self,
        source: FrameSource | Recorded,
        post: Callable[[Message], object],
        *,
        history: Callable[[], Recorded] | None = None,
    ) -> None:
        self.recorded = source if isinstance(source, Recorded) else None
        self._source = source
        self._history = history
        self._post = post
        self._condition = threading.Condition()
        self._next: Question | None = None
        self._asked_at: float | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="console-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread after the question that is open; nobody waits for it."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def tick(self) -> bool:
        """Ask for the latest frame, unless a question is open: then the tick is dropped."""
        with self._condition:
            if self._asked_at is not None or self._next is not None:
                return False
            self._next = Question()
            self._condition.notify()
            return True

    def seek(self, at_ms: int, *, onward: bool = False) -> None:
        """Ask for a moment of the recording; the newest wish replaces one that still waits."""
        with self._condition:
            self._next = Question(at_ms, onward)
            self._condition.notify()

    @property
    def open_s(self) -> float | None:
        """How long the question that is open has waited; None when none is."""
        asked_at = self._asked_at
        return None if asked_at is None else time.monotonic() - asked_at

    def _run(self) -> None:
        if self._history is not None:
            self._send(self._remembered(self._history))
        while True:
            with self._condition:
                while self._next is None and not self._closed:
                    self._condition.wait()
                question = self._next
                if self._closed or question is None:
                    return
                self._next = None
                self._asked_at = time.monotonic()
            try:
                answer = self._ask(question)
            finally:
                self._asked_at = None
            self._send(answer)

    def _send(self, message: Fetched | None) -> None:
        if message is not None and not self._closed:
            self._post(message)

    def _ask(self, question: Question) -> Fetched:
        try:
            if isinstance(self._source, Recorded):
                return self._look_up(self._source, question)
            return Fetched(self._source.latest(), question=question)
        except K3Error as error:
            return Fetched(None, error, question=question)
        except OSError as error:
            sentence = error.strerror or str(error)
            return Fetched(None, K3Error(f"the frame cannot be read: {sentence}"))

    @staticmethod
    def _look_up(recording: Recorded, question: Question) -> Fetched:
        span = recording.span()
        if span is None:
            return Fetched(None, K3Error("nothing was recorded in this home"), question=question)
        first_ms, last_ms = span
        wanted_ms = last_ms if question.at_ms is None else question.at_ms
        at_ms = min(max(wanted_ms, first_ms), last_ms)
        frame = recording.at(at_ms)
        if question.onward and question.at_ms is not None:
            frame = recording.after(question.at_ms) or frame
        if frame is None:
            return Fetched(None, K3Error("no frame was recorded then"), question=question)
        backlog = recording.between(frame.at_ms - BACKLOG_MS, frame.at_ms - 1, BACKLOG_FRAMES)
        return Fetched(frame, backlog=tuple(backlog), question=question, seek=True)

    @staticmethod
    def _remembered(history: Callable[[], Recorded]) -> Fetched | None:
        """What was recorded in the last ten minutes, so that charts do not begin empty."""
        now_ms = int(time.time() * 1000)
        try:
            frames = history().between(now_ms - BACKLOG_MS, now_ms, BACKLOG_FRAMES)
        except (K3Error, OSError):
            return None  # a home that has recorded nothing: charts begin empty
        return Fetched(None, backlog=tuple(frames)) if frames else None
