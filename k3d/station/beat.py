"""Something done every so often, in a thread of its own, beside the pod's serving."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from k3d.errors import K3Error

CLOSE_S = 3.0

log = logging.getLogger(__name__)


class Beat:
    """Calls `step` every `every_s` seconds from `start` to `close`.

    What a step cannot do is logged, and the next one tries again. An error that is a bug is logged
    with its traceback and ends the beat: the pod serves on without it.
    """

    def __init__(self, name: str, every_s: float, step: Callable[[], None]) -> None:
        self._name = name
        self._every_s = every_s
        self._step = step
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=CLOSE_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._step()
            except K3Error as error:
                log.error("%s: %s", self._name, error)
            except Exception:
                log.exception("%s ends for a reason that is a bug; the pod serves on", self._name)
                return
