"""A terminal of 80 columns for commands of this process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Iterator

COLUMNS, LINES = 80, 24


class Terminal:
    """What was shown on it, once it is closed."""

    def __init__(self) -> None:
        self.shown = b""

    @property
    def text(self) -> str:
        return self.shown.decode().replace("\r\n", "\n")


@contextlib.contextmanager
def terminal(typed: str = "") -> Iterator[Terminal]:
    """Standard input, output and error of this process on a new terminal; `typed` is waiting on
    its keyboard."""
    controller, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    shown = Terminal()

    def read() -> None:
        with contextlib.suppress(OSError):
            while piece := os.read(controller, 65536):
                shown.shown += piece

    reader = threading.Thread(target=read)
    reader.start()
    os.write(controller, typed.encode())
    before = sys.stdin, sys.stdout, sys.stderr
    streams = [os.fdopen(os.dup(inner), mode, encoding="utf-8") for mode in ("r", "w", "w")]
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        yield shown
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for stream in streams:
            stream.close()
        os.close(inner)
        reader.join(10)
        os.close(controller)
