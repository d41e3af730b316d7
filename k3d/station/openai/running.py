"""The answers to one HTTP request while the engine writes them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from k3d.engine.request import ErrorEvent, Event, FinishEvent, PromptEvent, Request, TokenEvent
from k3d.errors import K3Error
from k3d.station.openai.answers import Answer, Delta, join
from k3d.station.openai.errors import ApiError, of_engine, overloaded
from k3d.station.openai.grammar import GrammarConstraint
from k3d.station.openai.served import EngineRunner


@dataclass
class Part:
    """One choice: the engine's request and the answer made of its events."""

    index: int
    request: Request
    answer: Answer
    told: bool = field(default=False, init=False)
    """Whether its end was handed out."""


@dataclass(frozen=True)
class Growth:
    """What one choice grew by; `ended` the one time that its finish_reason is settled."""

    part: Part
    delta: Delta
    ended: bool


class Running:
    """Submits requests together, hands their growth out, and cancels what nobody waits for.

    Lives in one event loop; the engine's thread only ever appends to a queue and wakes the loop.
    """

    def __init__(self, engine: EngineRunner, parts: Sequence[Part]) -> None:
        self._engine = engine
        self._parts = {part.request.id: part for part in parts}
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._open: set[str] = set()
        """Requests that the engine may still be at work on."""
        self._cancelled: set[str] = set()
        self._failed: ApiError | None = None

    async def start(self) -> None:
        """Raises ApiError when the engine refuses one of them; then none goes on."""
        asked: list[Future[None]] = []
        for request_id, part in self._parts.items():
            self._open.add(request_id)
            asked.append(self._engine.submit(part.request, self._deliver))
        try:
            for each in asked:
                await asyncio.wrap_future(each)
        except K3Error as error:
            raise of_engine(error) from error

    async def growth(self, deadline_s: float, quiet_s: float) -> AsyncGenerator[list[Growth], None]:
        """What came with every wake-up, until all ended; [] after `quiet_s` without anything.

        Raises ApiError when the engine failed, after what came before; or when `deadline_s` (the
        loop's clock) passed.
        """
        while self._open:
            now = self._loop.time()
            if now >= deadline_s:
                raise ApiError(
                    "the answer took longer than a request may",
                    status=504,
                    kind="server_error",
                    code="timeout",
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(min(quiet_s, deadline_s - now)):
                    await self._wake.wait()
            self._wake.clear()
            yield self._take()
            if self._failed is not None:
                raise self._failed

    def abandon(self) -> None:
        """Cancel whatever is not over. May be called at any time, and again."""
        for request_id in self._open - self._cancelled:
            self._cancel(request_id)
        self._open.clear()

    def _deliver(self, event: Event) -> None:
        self._events.append(event)
        with suppress(RuntimeError):  # the loop has ended, and every stream with it
            self._loop.call_soon_threadsafe(self._wake.set)

    def _cancel(self, request_id: str) -> None:
        self._cancelled.add(request_id)
        self._engine.cancel(request_id)

    def _take(self) -> list[Growth]:
        deltas: dict[str, list[Delta]] = {}
        while self._events and self._failed is None:
            event = self._events.popleft()
            if event.request_id not in self._open:
                continue
            try:
                deltas.setdefault(event.request_id, []).append(self._feed(event))
            except ApiError as error:
                self._failed = error  # what came before it is right, and goes out
        return [self._grown(self._parts[each], parts) for each, parts in deltas.items() if parts]

    def _feed(self, event: Event) -> Delta:
        answer = self._parts[event.request_id].answer
        try:
            match event:
                case TokenEvent():
                    delta = answer.token(event)
                case PromptEvent():
                    answer.prompt(event)
                    delta = Delta()
                case FinishEvent():
                    delta = self._finish(answer, event)
                case ErrorEvent():
                    self._open.discard(event.request_id)
                    raise of_engine(event.error)
        except ApiError:
            raise
        except K3Error as error:
            raise of_engine(error) from error
        if answer.finish_reason is not None and event.request_id in self._open - self._cancelled:
            self._cancel(event.request_id)  # a stop string was met; the end is still to come
        return delta

    def _finish(self, answer: Answer, event: FinishEvent) -> Delta:
        self._open.discard(event.request_id)
        if event.reason == "cancelled" and answer.finish_reason is None:
            raise overloaded("the request was cancelled")
        constraint = self._parts[event.request_id].request.constraint
        failed = constraint.failed if isinstance(constraint, GrammarConstraint) else None
        if failed is not None:
            raise ApiError(f"the answer outgrew what its grammar may cost: {failed}")
        return answer.finish(event)

    def _grown(self, part: Part, deltas: list[Delta]) -> Growth:
        ended = part.answer.finish_reason is not None and not part.told
        part.told = part.told or ended
        return Growth(part, join(deltas), ended)
