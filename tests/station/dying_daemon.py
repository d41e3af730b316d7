"""A daemon that kills itself at one step of a swap.

`python -m tests.station.dying_daemon STEP ...`: what follows STEP are the arguments of k3d. A
Station dies before it does a step, or with `recorded` once the turn is in state.db and nowhere
else; a spark dies of the frame's name.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from k3d.fabric.frames import Frame
from k3d.main import main
from k3d.node.serving import Serving
from k3d.store.swaps import SwapStore


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_step(step: str, begin: Callable[..., int]) -> Callable[..., int]:
    def begin_step(store: SwapStore, intent: str, wave: int, epoch: int, kind: str, node: str):
        if kind == step:
            die()
        return begin(store, intent, wave, epoch, kind, node)

    return begin_step


def dying_turn(record: Callable[..., None]) -> Callable[..., None]:
    def record_turn(*arguments: Any) -> None:
        record(*arguments)
        die()

    return record_turn


def dying_frame(answer: Callable[..., Any]) -> Callable[..., Any]:
    def handle(serving: Serving, frame: Frame) -> Any:
        if serving.holding is not None:
            die()
        return answer(serving, frame)

    return handle


if __name__ == "__main__":
    step = sys.argv.pop(1)
    if sys.argv[1] == "station":
        SwapStore.begin_step = dying_step(step, SwapStore.begin_step)
        if step == "recorded":
            SwapStore.record_turn = dying_turn(SwapStore.record_turn)
    else:
        name = {"FILL": "_fill", "LOAD": "_load", "COMMIT": "_commit", "RETIRE": "_retire"}[step]
        setattr(Serving, name, dying_frame(getattr(Serving, name)))
    main()
