"""Lines of `k3d check`, which answers requests in pods of its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from k3ctl.client.daemon_log import last_sentence
from k3ctl.client.processes import daemon_command
from k3d.errors import ExitCode, K3Error

END_S = 15.0


def pod_answers(
    home: Path, pod: str, flags: Sequence[str], asked: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """The lines as they come; `asked` is what --cases takes. Raises K3Error when k3d fails."""
    with tempfile.TemporaryDirectory(prefix="k3-check-") as folder:
        cases = Path(folder) / "cases.json"
        cases.write_bytes(msgspec.json.encode(asked))
        words = Path(folder) / "stderr"
        command = [*daemon_command(), "check", "--home", str(home), "--pod", pod]
        command += ["--cases", str(cases), *flags]
        with _running(command, words) as child:
            assert child.stdout is not None
            for line in child.stdout:
                yield _decoded(line)
            code = child.wait()
        if code != 0:
            raise _failure(code, words.read_text(errors="replace"))


@contextmanager
def _running(command: list[str], words: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the context, and with it what it started."""
    with words.open("wb") as stderr:
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise K3Error(
                f"k3d cannot be started: {error.strerror}",
                hint="install the node extra: pip install 'k3pod[node]'",
            ) from error
    with child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(END_S)
                except subprocess.TimeoutExpired:
                    child.kill()


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict)
    except msgspec.MsgspecError as error:
        raise K3Error("k3d check wrote a line that is not JSON") from error


def _failure(code: int, words: str) -> K3Error:
    error = K3Error(f"k3d check failed: {last_sentence(words) or 'it said nothing'}")
    error.code = ExitCode(code) if code in set(ExitCode) and code else ExitCode.FAILED
    return error
