"""A program in a tmux of its own, driven and heard over one control connection.

Control mode tells what the program writes as it is written, so the time from a key to its paint is
that of the program and tmux alone, with no process started in between.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

DEADLINE_S = 60.0
_OCTAL = re.compile(rb"\\([0-7]{3})")


class TmuxSession:
    """One pane. Use `started` to make one."""

    def __init__(self, socket: str, width: int, height: int, command: list[str]) -> None:
        self._tmux = ["tmux", "-f", "/dev/null", "-L", socket]
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment.pop("TMUX", None)
        self._control = subprocess.Popen(
            [*self._tmux, "-C", "new-session", "-x", str(width), "-y", str(height),
             "exec " + shlex.join(command)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        self._heard: queue.Queue[tuple[float, bytes]] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.resize(width, height)

    def _listen(self) -> None:
        assert self._control.stdout is not None
        for line in self._control.stdout:
            if line.startswith(b"%output"):
                text = line.rstrip(b"\n").split(b" ", 2)[2]
                raw = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), text)
                self._heard.put((time.monotonic(), raw))

    def _say(self, command: str) -> None:
        assert self._control.stdin is not None
        self._control.stdin.write(command.encode() + b"\n")
        self._control.stdin.flush()

    def _asked(self, *command: str) -> str:
        done = subprocess.run(
            [*self._tmux, *command], capture_output=True, text=True, check=True, timeout=DEADLINE_S
        )
        return done.stdout

    @property
    def pid(self) -> int:
        """Of the program."""
        return int(self._asked("display-message", "-p", "#{pane_pid}").strip())

    @property
    def lines(self) -> list[str]:
        """The screen as text."""
        return self._asked("capture-pane", "-p").rstrip("\n").split("\n")

    def resize(self, width: int, height: int) -> None:
        self._say(f"refresh-client -C {width}x{height}")

    def press(self, key: str) -> None:
        self._say(f"send-keys {key}")

    def until_shown(self, text: str) -> list[str]:
        """The screen once a text is on it."""
        deadline = time.monotonic() + DEADLINE_S
        lines: list[str] = []
        while not any(text in line for line in lines):
            assert time.monotonic() < deadline, "\n".join(lines)
            with contextlib.suppress(subprocess.CalledProcessError):  # tmux is not up yet
                lines = self.lines
        return lines

    def painted_after(self, key: str, pattern: str) -> float:
        """Milliseconds from a key to the output that a regular expression is found in."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._heard.get_nowait()
        heard = b""  # a character may come in two pieces
        wanted = re.compile(pattern.encode(), re.DOTALL)
        begun = time.monotonic()
        self.press(key)
        while True:
            at, text = self._heard.get(timeout=DEADLINE_S)
            heard += text
            if wanted.search(heard):
                return (at - begun) * 1000

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._asked("kill-server")
        self._control.terminate()
        self._control.wait()
        self._listener.join(DEADLINE_S)
        for pipe in (self._control.stdin, self._control.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def started(folder: Path, width: int, height: int, command: list[str]) -> Iterator[TmuxSession]:
    """A session that is gone afterwards; its socket's name is the folder's."""
    session = TmuxSession(f"k3-{os.getpid()}-{folder.name}", width, height, command)
    try:
        yield session
    finally:
        session.close()
