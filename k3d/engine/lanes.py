"""Who waits, who has a lane, who gives way when memory is short."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from k3d.engine.lane_memory import LaneMemory
from k3d.engine.sequence import Sequence
from k3d.errors import Refused


class Lanes:
    """The sequences of one engine. `running` is in order of arrival."""

    def __init__(
        self, memory: LaneMemory, most: int, queue: int, clock: Callable[[], float]
    ) -> None:
        self.memory = memory
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.preempted = 0
        self.refused = 0
        self._most = most
        self._queue = queue
        self._clock = clock

    @property
    def empty(self) -> bool:
        return not self.running and not self.waiting

    def seen(self) -> tuple[tuple[Sequence, ...], tuple[Sequence, ...]]:
        """Who runs and who waits. Any thread: both are copied at once, in the order they have."""
        return tuple(self.running), tuple(self.waiting)

    def enter(self, sequence: Sequence) -> None:
        """Raises Refused when as many wait as may."""
        if len(self.waiting) >= self._queue:
            self.refused += 1
            raise Refused(f"{len(self.waiting)} requests are waiting", hint="try again later")
        self.waiting.append(sequence)

    def admit(self) -> None:
        """Waiting sequences get lanes, in order of arrival, as long as their tokens would fit and
        every lane could still grow by a page."""
        while self.waiting and len(self.running) < self._most:
            sequence = self.waiting[0]
            if self.running and not self.memory.admits(sequence, spare=len(self.running)):
                return
            self.waiting.popleft()
            self.memory.open(sequence)
            if sequence.started is None:
                sequence.started = self._clock()
            self.running.append(sequence)
            self.running.sort(key=lambda each: each.arrival)

    def reserve(self, sequence: Sequence, positions: int) -> bool:
        """Pages for a lane. The lane that arrived last gives way, and starts over later with the
        tokens it has; False when that is this one."""
        while not self.memory.reserve(sequence, positions):
            victim = self.running.pop()
            self.memory.close(victim)
            self.waiting.appendleft(victim)
            self.preempted += 1
            victim.preempted += 1
            if victim is sequence:
                return False
        return True

    def remove(self, sequence: Sequence) -> None:
        """The sequence is over, wherever it is."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self.memory.close(sequence)

    def find(self, request_id: str) -> Sequence | None:
        return next(
            (each for each in (*self.running, *self.waiting) if each.request.id == request_id), None
        )
