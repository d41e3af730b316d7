"""HTTP to one daemon of the pod."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from k3ctl.client.quick_get import plain_get
from k3d.errors import ExitCode, FabricError, K3Error, NodeLost, Refused, TimedOut
from k3d.store.run_file import RunFile, read_run_files
from k3d.store.secret import http_token, read_secret

if TYPE_CHECKING:
    import httpx

ANSWER_S = 5.0


def find_station(home: Path) -> RunFile:
    """The running Station of a home. Raises FabricError (UNREACHABLE) when there is none.

    Where a run file cannot be read and no other is a Station's, it may be the one: then its
    StoreError is raised.
    """
    runs = read_run_files(home)
    if runs.station is not None:
        return runs.station
    for damaged in runs.damaged.values():
        raise damaged
    raise FabricError(f"no Station runs in {home}", hint="start the pod: k3ctl pod up")


class Daemon:
    """A client of one daemon. Use as a context manager or close() it.

    What is plainly there is read without an HTTP library, whose import takes longer than most
    verbs; that library asks for all else, and says what is wrong.
    """

    def __init__(self, run: RunFile, secret: bytes, *, timeout_s: float = ANSWER_S) -> None:
        self.name = run.name
        self._run = run
        self._token = http_token(secret)
        self._timeout_s = timeout_s

    @cached_property
    def _client(self) -> httpx.Client:
        # The one place that imports httpx. httpx2 is its maintained drop-in; httpx is what the
        # daemons' users have, and everything used here is in both.
        import httpx

        return httpx.Client(
            base_url=self._run.url,
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=self._timeout_s,
            trust_env=False,
        )

    @classmethod
    def station_of(cls, home: Path, *, timeout_s: float = ANSWER_S) -> Daemon:
        """The Station of a home. Raises FabricError when none runs, or the secret's errors."""
        return cls(find_station(home), read_secret(home), timeout_s=timeout_s)

    def health(self) -> dict[str, Any]:
        return self._get("/health", "k3d.health/1")

    def status(self) -> dict[str, Any]:
        return self._get("/status", "k3d.status/1")

    def engine(self) -> dict[str, Any]:
        """How the Station decodes and what it counted since its start."""
        return self._get("/engine", "k3d.engine/1")

    def frame(self) -> bytes:
        """The Station's newest frame, as JSON that k3d.store.frame decodes."""
        return self._bytes("/frame")

    def experts(self) -> dict[str, Any]:
        """Every expert's uses since the Station's start, and its tier."""
        return self._get("/experts", "k3d.experts/1")

    def events(
        self, *, since_id: int = 0, limit: int = 200, node: str | None = None
    ) -> list[dict[str, Any]]:
        """The newest events after number `since_id`, oldest first."""
        query = f"/events?since_id={since_id}&limit={limit}"
        if node is not None:
            query += f"&node={quote(node)}"
        return list(self._get(query, "k3d.events/1")["events"])

    def lanes(self) -> list[dict[str, Any]]:
        """Requests in lanes and those that wait."""
        return list(self._get("/lanes", "k3d.lanes/1")["lanes"])

    def cancel(self, request_id: str) -> dict[str, Any]:
        """End a request. Raises the Station's NOT_FOUND for an unknown one."""
        return self._post("/lanes/cancel", {"id": request_id})

    def tokens(self, text: str) -> list[int]:
        """Ids of a raw text."""
        with self._sentences():
            response = self._client.post("/tokens", json={"text": text})
            self._check(response)
        return list(self._decode(response.content).get("ids", []))

    def placement(self) -> dict[str, Any]:
        """The map in force, the swap under way and the last one."""
        return self._get("/placement", "k3d.placement/1")

    def placement_use(self, since_s: float | None) -> dict[str, Any]:
        """What the router chose in the last `since_s`, or since the map in force came."""
        query = "" if since_s is None else f"?since_s={since_s:g}"
        return self._get(f"/placement/use{query}", "k3d.placement-use/1")

    def change_placement(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """swap, rollback or abort."""
        return self._post(f"/placement/{verb}", body)

    def trace(self) -> dict[str, Any]:
        """The trace that is recorded, or was last."""
        return self._get("/trace", "k3d.trace/1")

    def change_trace(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """record or stop."""
        return self._post(f"/trace/{verb}", body)

    def note_event(self, event: Mapping[str, Any]) -> None:
        """Let the Station note what a command did: kind, message, node and detail."""
        self._post("/events", event)

    def shut_down(self) -> None:
        with self._sentences():
            self._check(self._client.post("/shutdown"))

    def keep_receipt(self, receipt: Mapping[str, Any]) -> str:
        """Let the Station note a measured result; its id."""
        with self._sentences():
            response = self._client.post("/receipts", json=dict(receipt))
            self._check(response)
        return str(self._decode(response.content).get("id"))

    def chat(self, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of one answer, as they come. Raises the error that ends it, if one does."""
        with self._sentences(), self._client.stream("POST", "/chat", json=request) as response:
            if response.is_error:
                response.read()
                self._check(response)
            finished = False
            for line in response.iter_lines():
                if line:
                    event = self._decode(line)
                    if event.get("type") == "error":
                        raise error_from_document(event)
                    finished = event.get("type") == "done"
                    yield event
                    if finished and event.get("finish_reason") == "cancelled":
                        raise _cancelled()
            if not finished:
                raise NodeLost(
                    self.name, f"{self.name} ended the answer midway", hint="see: k3ctl logs"
                )

    def close(self) -> None:
        if "_client" in self.__dict__:
            self._client.close()

    def _bytes(self, path: str) -> bytes:
        run = self._run
        try:
            body = plain_get(run.http_host, run.http_port, path, self._token, self._timeout_s)
        except TimeoutError as error:
            raise self._timed_out() from error
        except OSError as error:
            raise self._lost(error) from error
        if body is not None:
            return body
        with self._sentences():
            response = self._client.get(path)
            self._check(response)
        return response.content

    def _get(self, path: str, schema: str) -> dict[str, Any]:
        document = self._decode(self._bytes(path))
        if document.get("schema") != schema:
            raise K3Error(
                f"{self.name} answered {path} with {document.get('schema')!r}, not {schema!r}",
                hint="k3ctl and k3d must be of one version: k3ctl pod down; k3ctl pod up",
            )
        return document

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._sentences():
            response = self._client.post(path, json=dict(body))
            self._check(response)
        return self._decode(response.content)

    def _check(self, response: httpx.Response) -> None:
        """Raise what an HTTP error response means."""
        if not response.is_error:
            return
        if response.status_code in (401, 403):
            raise Refused(
                f"{self.name} does not accept the secret of this home",
                hint="the pod was started with another pod.secret: k3ctl pod down; k3ctl pod up",
            )
        try:
            document = msgspec.json.decode(response.content, type=dict)
        except msgspec.MsgspecError:
            document = {}
        if document.get("type") == "error":
            raise error_from_document(document)
        raise K3Error(f"{self.name} answered with HTTP status {response.status_code}")

    def _decode(self, text: str | bytes) -> dict[str, Any]:
        try:
            return msgspec.json.decode(text, type=dict)
        except msgspec.MsgspecError as error:
            raise K3Error(
                f"{self.name} answered with something that is not JSON",
                hint="is that port really its own? see: k3ctl pod status",
            ) from error

    @contextlib.contextmanager
    def _sentences(self) -> Iterator[None]:
        """Turn transport errors into ours."""
        import httpx

        try:
            yield
        except httpx.TimeoutException as error:
            raise self._timed_out() from error
        except httpx.TransportError as error:
            raise self._lost(error) from error

    def _timed_out(self) -> TimedOut:
        return TimedOut(f"{self.name} did not answer in time", hint="see: k3ctl health")

    def _lost(self, error: Exception) -> NodeLost:
        return NodeLost(
            self.name, f"{self.name} cannot be reached: {error}", hint="see: k3ctl health"
        )

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cancelled() -> K3Error:
    """What a client is told whose request somebody else ended."""
    return K3Error(
        "the request was cancelled before its answer was whole",
        hint="ended in the console or with k3ctl lanes cancel; ask again",
    )


def error_from_document(document: Mapping[str, Any]) -> K3Error:
    """The error that a daemon described, with its code, node and hint."""
    message = str(document.get("message") or "the daemon reported an error without a sentence")
    hint = document.get("hint")
    node = document.get("node")
    error = NodeLost(str(node), message, hint=hint) if node else K3Error(message, hint=hint)
    try:
        error.code = ExitCode(document.get("code", ExitCode.FAILED))
    except ValueError:
        error.code = ExitCode.FAILED
    error.retryable = bool(document.get("retryable", False))
    return error
