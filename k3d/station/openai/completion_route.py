"""A POST for completions, from its body to the last byte: read, admitted, answered, cleaned up.

Whatever happens in between (the client goes, the engine fails, the Station ends), every request
that was handed to the engine is over or cancelled when this is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import aclosing
from typing import Any

from starlette.types import Receive, Scope, Send

from k3d.station.metrics import ApiMetrics
from k3d.station.openai.answers import Delta, join
from k3d.station.openai.errors import ApiError
from k3d.station.openai.exchange import Exchange
from k3d.station.openai.gate import too_large
from k3d.station.openai.limits import Admission, ApiLimits, Body
from k3d.station.openai.replies import refuse, reply
from k3d.station.openai.running import Growth, Running
from k3d.station.openai.served import EngineRunner
from k3d.station.openai.streaming import EventStream


class ClientGone(Exception):
    """Nobody is there to answer."""


class CompletionRoute:
    """One route, as an ASGI app."""

    def __init__(
        self,
        read: Callable[[bytearray], Exchange],
        readers: Executor,
        engine: EngineRunner,
        admission: Admission,
        limits: ApiLimits,
        metrics: ApiMetrics,
    ) -> None:
        self._read = read
        self._readers = readers
        self._engine = engine
        self._admission = admission
        self._limits = limits
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._admission.body() as body:
            try:
                await self._receive(receive, body)
            except ClientGone:
                return
            except ApiError as error:
                body.clear()
                await refuse(error, receive, send)
                return
            try:
                await _while_there(receive, self._answer(body, scope["state"]["key"], send))
            except ClientGone:
                self._metrics.client_gone()
            except StreamFailed:
                return
            except ApiError as error:
                await reply(send, error.body(), error.status, error.headers)

    async def _receive(self, receive: Receive, body: Body) -> None:
        try:
            async with asyncio.timeout(self._limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    body.add(message.get("body", b""))
                    if len(body.data) > self._limits.body_bytes:
                        raise too_large(self._limits)
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            raise ApiError(
                f"the body did not come within {self._limits.body_s:g} s", status=408
            ) from None

    async def _answer(self, body: Body, key: str, send: Send) -> None:
        # Reading is a thread's work: tokenising a long prompt would hold up every stream.
        loop = asyncio.get_running_loop()
        exchange = await loop.run_in_executor(self._readers, self._read, body.data)
        body.clear()
        self._metrics.unknown_fields(exchange.unknown_fields)
        with self._admission.take(key, len(exchange.parts), exchange.prompt_tokens):
            running = Running(self._engine, exchange.parts)
            reason = "abort"
            try:
                await running.start()
                if exchange.wishes.stream:
                    await self._stream(exchange, running, send)
                else:
                    await self._whole(exchange, running, send)
            except (ApiError, StreamFailed):
                reason = "error"
                raise
            finally:
                running.abandon()
                self._count(exchange, reason)

    async def _whole(self, exchange: Exchange, running: Running, send: Send) -> None:
        deltas: dict[int, list[Delta]] = {part.index: [] for part in exchange.parts}
        async with aclosing(self._growth(running)) as growths:
            async for growth in growths:
                for each in growth:
                    deltas[each.part.index].append(each.delta)
        whole = [join(parts) if parts else Delta() for parts in deltas.values()]
        spelled = exchange.spelling.whole(exchange.parts, whole, exchange.usage())
        await reply(send, spelled)

    async def _stream(self, exchange: Exchange, running: Running, send: Send) -> None:
        stream = EventStream(send, self._limits.comment_s)
        await stream.begin()
        try:
            for chunk in exchange.spelling.first(exchange.parts):
                await stream.data(exchange.with_usage(chunk))
            async with aclosing(self._growth(running)) as growths:
                async for growth in growths:
                    for each in growth:
                        for chunk in exchange.chunks(each):
                            await stream.data(chunk)
                    await stream.comment_if_quiet()
            if exchange.wishes.usage_chunk:
                totals = exchange.spelling.totals(exchange.usage(), exchange.parts)
                await stream.data(totals)
        except ApiError as error:
            await stream.data(error.body())
            await stream.end()
            raise StreamFailed from error
        await stream.end()

    def _count(self, exchange: Exchange, unfinished: str) -> None:
        """One terminal reason a choice, whatever it was."""
        for part in exchange.parts:
            answer = part.answer
            self._metrics.finished(
                answer.finish_reason if part.told and answer.finish_reason else unfinished,
                answer.timing,
                prompt_tokens=len(part.request.prompt),
                completion_tokens=answer.completion_tokens,
                max_tokens=part.request.max_tokens,
                n=exchange.wishes.n,
            )

    def _growth(self, running: Running) -> AsyncGenerator[list[Growth], None]:
        deadline_s = asyncio.get_running_loop().time() + self._limits.request_s
        return running.growth(deadline_s, self._limits.comment_s)


class StreamFailed(Exception):
    """A stream ended with an error, which its client was told."""


async def _while_there(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do `work` while the client is connected. Raises ClientGone when it leaves first."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            await asyncio.wait((working,))
            if not working.cancelled():
                working.exception()  # nobody is left to tell
            raise ClientGone
    finally:
        leaving.cancel()
        working.cancel()
    working.result()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
