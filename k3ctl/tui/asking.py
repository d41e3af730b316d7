"""Questions that take time, asked in threads that nothing waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from textual.message import Message

from k3d.errors import K3Error


class Answered(Message):
    """What came of a question; handled by running `deliver` in the thread that draws."""

    def __init__(self, deliver: Callable[[], None]) -> None:
        super().__init__()
        self.deliver = deliver


class Asker:
    """One question of a key at a time; threads end with the program, answered or not."""

    def __init__(self, post: Callable[[Message], object]) -> None:
        self._post = post
        self._open: set[str] = set()

    def ask(
        self,
        key: str,
        call: Callable[[], Any],
        then: Callable[[Any], None],
        failed: Callable[[K3Error], None],
    ) -> bool:
        """Run `call` in a thread; False when one of this key is open."""
        if key in self._open:
            return False
        self._open.add(key)

        def run() -> None:
            try:
                answer = call()
            except K3Error as error:
                self._post(Answered(self._closing(key, failed, error)))
            except OSError as error:
                said = K3Error(error.strerror or str(error))
                self._post(Answered(self._closing(key, failed, said)))
            else:
                self._post(Answered(self._closing(key, then, answer)))

        threading.Thread(target=run, name=f"console-{key}", daemon=True).start()
        return True

    def _closing(self, key: str, deliver: Callable[[Any], None], what: Any) -> Callable[[], None]:
        def close() -> None:
            self._open.discard(key)
            deliver(what)

        return close
