"""Work on banks, done by a `k3d bank` child: its progress as it comes, and its document."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import IO, Any

import msgspec

from k3ctl.client.daemon_log import last_sentence
from k3ctl.client.processes import daemon_command
from k3d.errors import ExitCode, K3Error

Progress = Callable[[dict[str, Any]], None]
END_S = 10.0
"""How long a child that is told to end may take."""


def run_bank_work(
    verb: str, arguments: Sequence[str], progress: Progress
) -> tuple[int, dict[str, Any]]:
    """Run one verb of k3d bank: its exit code and document. Raises the error it ended with.

    A code that is not 0 comes with a document where the work was done and found something. The
    child ends with this call, however that ends.
    """
    command = [*daemon_command(), "bank", verb, "--json", "--progress", *arguments]
    with tempfile.TemporaryFile() as words:
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words
            )
        except OSError as error:
            raise K3Error(
                f"k3d cannot be started: {error.strerror}",
                hint="install the node extra: pip install 'k3pod[node]'",
            ) from error
        document: dict[str, Any] | None = None
        try:
            assert child.stdout is not None
            for line in child.stdout:
                found = _decoded(line, verb)
                if found.get("type") == "progress":
                    progress(found)
                else:
                    document = found
            code = child.wait()
        finally:
            _end(child)
        if document is None:
            raise _failure(verb, code, words)
        return code, document


def _decoded(line: bytes, verb: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict)
    except msgspec.MsgspecError as error:
        raise K3Error(f"k3d bank {verb} answered with something that is not JSON") from error


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.stdout is not None:
        child.stdout.close()
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _failure(verb: str, code: int, words: IO[bytes]) -> K3Error:
    """The error that a child wrote as its last line, or what can be said of one that did not."""
    words.seek(0)
    text = words.read().decode(errors="replace")
    try:
        told = msgspec.json.decode((text.splitlines() or [""])[-1], type=dict)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        told = {}
    if told.get("type") == "error":
        error = K3Error(str(told.get("message")), hint=told.get("hint"))
        error.retryable = bool(told.get("retryable"))
    elif code < 0:
        error = K3Error(
            f"k3d bank {verb} was ended by signal {-code}",
            hint="run it again: it goes on where it stopped",
        )
    elif code == ExitCode.USAGE and ": error: " in text:
        said = text.rpartition(": error: ")[2].strip()
        error = K3Error(said, hint=f"see: k3ctl bank {verb} --help")
    else:
        error = K3Error(f"k3d bank {verb} failed: {last_sentence(text) or 'it said nothing'}")
    known = code in set(ExitCode) and code != ExitCode.OK
    error.code = ExitCode(code) if known else ExitCode.FAILED
    return error
