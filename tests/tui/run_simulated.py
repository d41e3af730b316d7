"""The console on a simulated pod, as a program: python -m tests.tui.run_simulated --sparks 200."""

from __future__ import annotations

import argparse
import time

import msgspec

from k3ctl.tui.run import run_console
from k3d.store.frame import Frame, decode, encode
from tests.tui.simulated_pod import SimulatedPod

FRAMES = 60


class EncodedSource:
    """A minute of frames over and over, decoded for every question as those of a Station are."""

    def __init__(self, pod: SimulatedPod) -> None:
        self._frames = [encode(pod.made(number)) for number in range(FRAMES)]
        self._asked = 0

    def latest(self) -> Frame:
        frame = decode(self._frames[self._asked % FRAMES])
        self._asked += 1
        return msgspec.structs.replace(frame, sequence=self._asked, at_ms=round(time.time() * 1000))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sparks", type=int, default=8)
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--interval", type=float, default=1.0)
    given = parser.parse_args()
    source = EncodedSource(SimulatedPod(sparks=given.sparks, lanes=given.lanes))
    run_console(source, interval_s=given.interval)


if __name__ == "__main__":
    main()
