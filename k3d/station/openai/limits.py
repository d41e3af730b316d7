"""Limits: what one client may ask for, and what the Station takes on at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from k3d.station.openai.errors import RETRY_S, ApiError, overloaded

MOST_CHOICES = 64
MOST_N = 8
MOST_STOPS = 16
MOST_STOP_CHARACTERS = 256
MOST_STOP_IDS = 64
MOST_BIASES = 1024
MOST_TOOLS = 128
MOST_SCHEMA_BYTES = 64 * 1024


@dataclass(frozen=True)
class ApiLimits:
    """Bytes, seconds and counts of the HTTP side."""

    body_bytes: int = 16 * 2**20
    all_bodies_bytes: int = 256 * 2**20
    """Of all bodies that are being received."""
    header_bytes: int = 32 * 2**10
    headers: int = 128
    header_s: float = 10.0
    """For a request's headers, from its first byte or the connection's start."""
    body_s: float = 30.0
    stall_s: float = 30.0
    """How long a client may leave its full buffer unread."""
    idle_s: float = 15.0
    """Between the requests of a connection."""
    request_s: float = 3600.0
    """From admission to the last token."""
    comment_s: float = 10.0
    """Silence after which a stream gets a comment, so that nobody on the way gives up."""
    connections: int = 512
    drain_s: float = 1.0
    """How long running answers may go on when the Station is told to end."""


class Admission:
    """Counts what is being answered. Used in one event loop; nothing here waits."""

    def __init__(
        self,
        choices: int,
        prompt_tokens: int,
        body_bytes: int,
        several_keys: Callable[[], bool] = lambda: False,
    ) -> None:
        """At most `choices` answers at once, with `prompt_tokens` tokens of prompt together, and
        `body_bytes` of bodies that are not read yet.

        One key gets three quarters of the answers while there are several.
        """
        self._several_keys = several_keys
        self._most_body_bytes = body_bytes
        self._most_choices = choices
        self._most_prompt_tokens = prompt_tokens
        self._by_key: Counter[str] = Counter()
        self.choices = 0
        self.prompt_tokens = 0
        self.body_bytes = 0
        self.draining = False

    @property
    def full(self) -> bool:
        return self.choices >= self._most_choices

    @property
    def share(self) -> int:
        """Answers that one key may have in work."""
        most = self._most_choices
        return max(1, most * 3 // 4) if self._several_keys() else most

    @contextmanager
    def body(self) -> Iterator[Body]:
        """A body that is about to come."""
        body = Body(self)
        try:
            yield body
        finally:
            body.clear()

    def count_body(self, size: int) -> None:
        """Raises ApiError (503) when too much is being received."""
        self.body_bytes += size
        if self.body_bytes > self._most_body_bytes:
            raise overloaded("too many bytes of requests are being received; try again later")

    @contextmanager
    def take(self, key: str, choices: int, prompt_tokens: int) -> Iterator[None]:
        """Hold a place for a request. Raises ApiError: 503 when full, 429 for the key's share."""
        if self.draining:
            raise overloaded("the Station is shutting down")
        crowded = self.choices and self.prompt_tokens + prompt_tokens > self._most_prompt_tokens
        if self.choices + choices > self._most_choices or crowded:
            raise overloaded(
                f"{self.choices} answers with {self.prompt_tokens} prompt tokens are being "
                "written or wait; try again later"
            )
        if self._by_key[key] + choices > self.share:
            raise ApiError(
                f"this key has {self._by_key[key]} answers in work, of {self.share} at most",
                status=429,
                kind="rate_limit_error",
                code="rate_limit_exceeded",
                retry_after_s=RETRY_S,
            )
        self._by_key[key] += choices
        self.choices += choices
        self.prompt_tokens += prompt_tokens
        try:
            yield
        finally:
            self._by_key[key] -= choices
            self.choices -= choices
            self.prompt_tokens -= prompt_tokens


class Body:
    """The body of one request, counted while it is held."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.data = bytearray()

    def add(self, piece: bytes) -> None:
        """Raises ApiError (503) when too much is being received by all."""
        self.data += piece
        self._admission.count_body(len(piece))

    def clear(self) -> None:
        """It was read, or will not be."""
        size, self.data = len(self.data), bytearray()
        self._admission.body_bytes -= size
