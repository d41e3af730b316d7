"""What every request passes before any work is done: who may come in, and under what name.

A server on loopback is reached by every program of its machine and by every page in a browser on
it. So without keys the Host must be this machine's (against DNS that was rebound) and a page from
elsewhere is refused; a POST must be JSON, which a page cannot send unasked. With keys, everything
but the probes wants one.
"""

from __future__ import annotations

import logging
import re
import secrets
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from k3d.placement.pod import LOOPBACK
from k3d.station.metrics import ApiMetrics
from k3d.station.openai.errors import ApiError
from k3d.station.openai.keys import KeyFile
from k3d.station.openai.limits import ApiLimits
from k3d.station.openai.replies import refuse

OPEN = ("/health", "/ready", "/ping")
log = logging.getLogger(__name__)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Gate:
    """ASGI middleware, the outermost."""

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyFile,
        limits: ApiLimits,
        metrics: ApiMetrics,
        *,
        loopback: bool,
        stamp: str | None,
    ) -> None:
        """`stamp` is put on every response, where the Station's tokens are not the model's."""
        self._app = app
        self._keys = keys
        self._limits = limits
        self._metrics = metrics
        self._loopback = loopback
        self._stamp = stamp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = _Headers(scope["headers"])
        request_id = headers.one(b"x-request-id") or ""
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = f"req-{secrets.token_hex(12)}"

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(b"x-request-id", request_id.encode())]
                if self._stamp is not None:
                    own.append((b"x-k3-synthetic-acceptance", self._stamp.encode()))
                message = {**message, "headers": [*message.get("headers", ()), *own]}
                self._metrics.http(scope["path"], message["status"])
            await send(message)

        try:
            self._check_size(headers)
            self._check_place(headers)
            scope["state"]["key"] = self._check_key(scope["path"], headers)
            self._check_body(scope["method"], headers)
        except ApiError as error:
            await refuse(error, receive, stamped)
            return
        await self._served(scope, receive, stamped)

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A bug ends its request, in the shape of any other error."""
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:
            log.exception("a request failed")
            if not begun:
                error = ApiError("the server failed", status=500, kind="server_error")
                await refuse(error, receive, send)

    def _check_size(self, headers: _Headers) -> None:
        """The parser beneath bounds what comes in pieces only."""
        if headers.bytes > self._limits.header_bytes or headers.count > self._limits.headers:
            raise ApiError("the headers are too large", status=431)

    def _check_place(self, headers: _Headers) -> None:
        if not self._loopback:
            return
        host = _host_of(headers.one(b"host") or "")
        if host not in LOOPBACK:
            raise ApiError(
                "this server answers to the names of its own machine only",
                status=403,
                code="host_not_allowed",
            )
        origin = headers.one(b"origin")
        if origin is None or self._keys.required or _hostname(origin) in LOOPBACK:
            return
        raise ApiError("pages of other sites are not served", status=403, code="origin_not_allowed")

    def _check_key(self, path: str, headers: _Headers) -> str:
        """A name for whoever asks."""
        if path in OPEN or not self._keys.required:
            return "open"
        scheme, _, key = (headers.one_bytes(b"authorization") or b"").partition(b" ")
        name = self._keys.name_of(key.strip()) if scheme.lower() == b"bearer" else None
        if name is None:
            raise ApiError(
                "the API key is missing or wrong; send it as: Authorization: Bearer KEY",
                status=401,
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return name

    def _check_body(self, method: str, headers: _Headers) -> None:
        if method != "POST":
            return
        kind = (headers.one(b"content-type") or "").partition(";")[0].strip().lower()
        missing_is_fine = not kind and headers.one(b"origin") is None
        if kind != "application/json" and not kind.endswith("+json") and not missing_is_fine:
            raise ApiError("the body must be application/json", status=415)
        if (headers.one(b"content-encoding") or "identity").lower() != "identity":
            raise ApiError("a compressed body is not accepted", status=415)
        length = headers.one(b"content-length")
        if length is not None and headers.one(b"transfer-encoding") is not None:
            # Two lengths: where one request ends another could be hidden. The refusal closes.
            raise ApiError("a body has a length or comes in chunks, not both")
        if length is not None and int(length) > self._limits.body_bytes:
            raise too_large(self._limits)


def too_large(limits: ApiLimits) -> ApiError:
    return ApiError(f"a body may hold {limits.body_bytes} bytes", status=413)


class _Headers:
    """Headers by name; one that is there twice counts as none."""

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self._pairs = pairs

    @property
    def count(self) -> int:
        return len(self._pairs)

    @property
    def bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self._pairs)

    def one_bytes(self, name: bytes) -> bytes | None:
        values = [value for key, value in self._pairs if key == name]
        return values[0] if len(values) == 1 else None

    def one(self, name: bytes) -> str | None:
        value = self.one_bytes(name)
        return None if value is None else value.decode("latin-1")


def _hostname(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None


def _host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()
