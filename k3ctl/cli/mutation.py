"""How a verb that changes something is carried out: asked about first, once for each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from k3ctl.cli import output as streams
from k3ctl.cli.options import Invocation, Question
from k3d.errors import ExitCode, Refused
from k3d.store.requests import RequestRecord, claimed

WAITING = frozenset({"wait", "deadline", "timeout"})
"""Parameters that say how long to look on, not what is done."""


@dataclass(frozen=True)
class Mutation:
    """One change that was asked for; `asks` is None where nothing is to be asked."""

    verb: str
    parameters: Mapping[str, Any]
    files: tuple[str, ...]
    names: tuple[str, ...]
    makes_home: bool
    request_id: str | None
    wait_s: float | None
    asks: Question | None

    @property
    def dry(self) -> bool:
        return bool(self.parameters.get("dry_run"))

    def arguments(self) -> dict[str, Any]:
        """What makes two requests the same: every parameter but those about waiting."""
        return {
            name: str(Path(value).absolute()) if self._is_file(name, value) else value
            for name, value in self.parameters.items()
            if name not in WAITING
        }

    def _is_file(self, name: str, value: Any) -> bool:
        if not isinstance(value, str) or not value:
            return False
        named = name in self.names and ("/" in value or value.endswith((".toml", ".json")))
        return name in self.files or named


def carry_out(invocation: Invocation, mutation: Mutation, effect: Callable[[], Any]) -> int:
    """Run the effect, unless another copy of the request has; the exit code.

    A request is done when its effect ended with 0. One that failed is free to be tried again.
    """
    if mutation.dry:
        return int(effect() or 0)
    nowhere = not mutation.makes_home and not invocation.home.is_dir()
    if mutation.request_id is None or nowhere:
        confirm(invocation, mutation)
        return int(effect() or 0)
    output = invocation.output
    with claimed(
        invocation.home,
        mutation.request_id,
        mutation.verb,
        mutation.arguments(),
        wait_s=mutation.wait_s,
        waits=output.note,
    ) as claim:
        if claim.before is not None:
            _say_again(invocation, claim.before)
            return ExitCode.OK
        if claim.left is not None:
            output.note(f"request {claim.record.id} was left undone by {claim.left.who}")
        confirm(invocation, mutation)
        invocation.request_id = mutation.request_id
        output.request = _request(claim.record, repeated=False)
        code = int(effect() or 0)
        if code == ExitCode.OK:
            claim.finish(output.told)
        return code


def confirm(invocation: Invocation, mutation: Mutation) -> None:
    """Ask about what would be lost. Raises Refused where nobody can be asked, or who is says no."""
    lost = None if mutation.asks is None else mutation.asks(invocation, mutation.parameters)
    if lost is None:
        return
    if not (streams.stdin_is_terminal() and streams.stderr_is_terminal()):
        raise Refused(
            f"{mutation.verb} {lost}; nobody can be asked whether that is meant",
            hint="say so with --yes",
        )
    answer = streams.ask(f"{mutation.verb} {lost}. Go on? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise Refused("nothing was done: the answer was not yes")


def _say_again(invocation: Invocation, before: RequestRecord) -> None:
    """Say that the request was carried out already, with the answer that its first copy gave."""
    output = invocation.output
    schema, content = before.document or ("k3ctl.request/1", {})
    output.request = _request(before, repeated=True)
    output.document(schema, content)
    output.record({"type": "done", "schema": schema, **content, "request": output.request})
    output.text(f"request {before.id} was done already by {before.who} at {_clock(before.done_ms)}")


def _request(record: RequestRecord, *, repeated: bool) -> dict[str, Any]:
    """A request as JSON carries it, after the answer's own keys."""
    return {
        "id": record.id,
        "repeated": repeated,
        "verb": record.verb,
        "user": record.user,
        "host": record.host,
        "pid": record.pid,
        "claimed_ms": record.claimed_ms,
        "done_ms": record.done_ms,
    }


def _clock(at_ms: int | None) -> str:
    """A moment in local time."""
    moment = datetime.fromtimestamp((at_ms or 0) / 1000, UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S")
