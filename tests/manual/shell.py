"""Lines of a document, run as its reader would: by a shell, in a home with a small pod."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DESCRIPTION = REPOSITORY / "policies" / "pods" / "embedded-1.toml"
LONGEST_S = 300.0


@dataclass(frozen=True)
class Ran:
    """What a line did."""

    line: str
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"$ {self.line}\n{self.out}{self.err}[{self.code}]"


class Shell:
    """A shell in a directory of its own. `embedded` is the smallest pod there."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.work = directory / "work"
        self.work.mkdir(parents=True)
        pods = self.home / "policies" / "pods"
        pods.mkdir(parents=True)
        shutil.copy(DESCRIPTION, pods / "embedded.toml")
        (self.work / "banks").symlink_to(REPOSITORY / "banks")

    @property
    def environment(self) -> dict[str, str]:
        programs = Path(sys.executable).parent
        names = ("HOME", "LANG", "TMPDIR", "PYTHONPATH")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **kept,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "K3_HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, line: str) -> Ran:
        """Run a line to its end."""
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        return Ran(line, done.returncode, done.stdout, done.stderr)

    def interrupt_after_a_line(self, line: str) -> Ran:
        """Run a line that does not end, and interrupt it after the first line it writes."""
        with subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        ) as child:
            assert child.stdout is not None
            first = child.stdout.readline()
            child.send_signal(signal.SIGINT)
            first += child.stdout.read()
        return Ran(line, child.returncode, first, "")

    def on_a_terminal(self, line: str, prompt: bytes, typed: Sequence[bytes]) -> Ran:
        """Run a line on a terminal of its own; type to it, each time once it has prompted."""
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (40, 120))
        rest, said, heard = list(typed), b"", 0
        child = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.work,
            env={**self.environment, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        ended = time.monotonic() + LONGEST_S
        with child, suppress(OSError):  # how Linux says that the other side is closed
            while time.monotonic() < ended:
                if select.select([ours], [], [], 1.0)[0]:
                    said += os.read(ours, 4096)
                if rest and prompt in said[heard:]:
                    heard = len(said)
                    os.write(ours, rest.pop(0))
            child.kill()
        os.close(ours)
        return Ran(line, child.returncode, said.decode(errors="replace"), "")

    def pod_up(self) -> None:
        up = self.run("k3ctl pod up embedded-1")
        assert up.code == 0, up

    def pid(self, node: str) -> int:
        return json.loads((self.home / "run" / f"{node}.json").read_text())["pid"]
