"""The whole terminal, lent to a verb that redraws it, and given back as it was."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Self

from k3ctl.cli.output import stdin_is_terminal, tame, write_data

ENTER = "\x1b[?1049h\x1b[?25l"
LEAVE = "\x1b[?25h\x1b[?1049l"
# A terminal that knows them shows what is between these two at once; others ignore them.
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class LiveScreen:
    """Draws lines over those before, line by line, so that nothing flickers.

    A context manager. `wait` sleeps until a key, a new size, `wake` from any thread, or a time.
    """

    def __init__(self) -> None:
        self._keys = sys.stdin.fileno() if stdin_is_terminal() else None
        self._before: Any = None
        self._handlers: dict[int, Any] = {}
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)

    def draw(self, lines: Sequence[str]) -> None:
        shown = f"{CLEAR_LINE}\r\n".join(tame(line) for line in lines)
        write_data(f"{BEGIN}{HOME}{shown}{CLEAR_LINE}{CLEAR_BELOW}{END}")

    def wait(self, timeout_s: float) -> str:
        """The keys pressed, empty when something else came first."""
        watched = [self._woken] if self._keys is None else [self._woken, self._keys]
        ready, _, _ = select.select(watched, [], [], max(0.0, timeout_s))
        if self._woken in ready:
            self._drain()
        if self._keys is None or self._keys not in ready:
            return ""
        return os.read(self._keys, 64).decode(errors="replace")

    def wake(self) -> None:
        try:
            os.write(self._waker, b"!")
        except BlockingIOError:
            return  # it will wake for those that wait in the pipe

    def _drain(self) -> None:
        try:
            while os.read(self._woken, 64):
                pass
        except BlockingIOError:
            return

    def __enter__(self) -> Self:
        self._take()
        self._handlers = {
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: self.wake()),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._pause),
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._give_back()
        os.close(self._woken)
        os.close(self._waker)

    def _take(self) -> None:
        if self._keys is not None:
            import termios
            import tty

            self._before = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
        write_data(ENTER)

    def _give_back(self) -> None:
        try:
            write_data(LEAVE)
        finally:
            if self._keys is not None and self._before is not None:
                import termios

                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

    def _pause(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its terminal, and after `fg` the screen is taken again."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self.wake()
