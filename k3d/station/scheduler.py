"""The engine's thread: commands in, events out to whoever asked, one pass at a time."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from time import monotonic

from k3d.engine.engine import Engine, EngineCounts
from k3d.engine.request import ErrorEvent, Event, FinishEvent, Request, Timing
from k3d.errors import ExitCode, K3Error, Refused

IDLE_S = 0.5
LOST_POLL_S = 0.05
CLOSE_S = 2.0
NO_TIMING = Timing(0.0, 0.0, 0.0, 0, 0)

log = logging.getLogger(__name__)


class Scheduler:
    """Runs an engine. Every method but `run` may be called from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._deliver: dict[str, Callable[[Event], None]] = {}
        self._asked: set[Future[None]] = set()
        self._closing = False
        self._costs_known = False
        self._counts = engine.counts()
        self._progress_s = monotonic()
        self._waiting_for: str | None = None
        self._thread = threading.Thread(target=self._run_or_end, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: Request, deliver: Callable[[Event], None]) -> Future[None]:
        """Queue a request; `deliver` gets its events in the engine's thread. The future carries
        the refusal, if there is one."""

        def enter() -> None:
            self._engine.submit(request)
            self._deliver[request.id] = deliver

        return self.between_passes(enter)

    def cancel(self, request_id: str) -> None:
        """End a request before its next pass; an unknown one is already gone."""
        self._commands.put(lambda: self._send(self._engine.cancel(request_id)))

    def between_passes(self, action: Callable[[], None]) -> Future[None]:
        """Do something in the engine's thread while no pass is under way; what it raises is the
        future's. Refused once the Station is shutting down."""
        done: Future[None] = Future()
        self._asked.add(done)

        def act() -> None:
            if done not in self._asked:
                return  # refused already
            self._asked.discard(done)
            if not done.set_running_or_notify_cancel():
                return
            try:
                if self._closing:
                    raise Refused("the Station is shutting down")
                action()
            except K3Error as error:
                done.set_exception(error)
                return
            done.set_result(None)

        self._commands.put(act)
        return done

    def counts(self) -> EngineCounts:
        """The engine's totals after its last step."""
        return self._counts

    @property
    def progress_age_s(self) -> float:
        """Seconds since the engine last finished a pass or looked for work."""
        return monotonic() - self._progress_s

    @property
    def waiting_for(self) -> str | None:
        """The lost node that the pass in hand waits for."""
        return self._waiting_for

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """End every request and the thread."""

        def end() -> None:
            self._closing = True
            self._send(self._engine.fail_all(Refused("the Station is shutting down")))

        self._commands.put(end)
        if self._thread.ident is None:
            return
        self._thread.join(timeout=CLOSE_S)
        for done in list(self._asked):
            self._asked.discard(done)
            if done.set_running_or_notify_cancel():
                done.set_exception(Refused("the Station is shutting down"))
        # A pass that still waits for a spark cannot end its requests; their streams end here.
        for request_id, deliver in list(self._deliver.items()):
            self._deliver.pop(request_id, None)
            deliver(ErrorEvent(request_id, Refused("the Station is shutting down"), NO_TIMING))

    def _run_or_end(self) -> None:
        """A bug ends the process: a Station that cannot decode must not look alive."""
        try:
            self._run()
        except Exception:
            log.exception("the engine failed; the Station ends")
            os._exit(int(ExitCode.FAILED))

    def _run(self) -> None:
        while not self._closing:
            self._take_commands(self._patience_s())
            self._measure_costs()
            self._send(self._engine.step())
            self._counts = self._engine.counts()
            lost = self._engine.lost
            self._waiting_for = lost.node if lost else None
            if lost is None:
                self._note_progress()

    def _note_progress(self) -> None:
        self._progress_s = monotonic()

    def _measure_costs(self) -> None:
        """Once, when nobody waits and every node answers."""
        if self._costs_known or not self._engine.idle or self._closing:
            return
        try:
            self._engine.measure_costs(self._note_progress)
        except K3Error:
            return  # a node is not there yet
        self._costs_known = True
        line = self._engine.curve.line
        log.info(
            "a pass of r rows takes %.1f + %.2f r ms, a block of drafts %.1f ms",
            1e3 * line.fixed_s, 1e3 * line.row_s, 1e3 * line.draft_s,
        )  # fmt: skip

    def _patience_s(self) -> float:
        """How long to wait for a command: not at all while there is a pass to run."""
        if self._engine.idle:
            return IDLE_S
        return LOST_POLL_S if self._engine.lost else 0.0

    def _take_commands(self, patience_s: float) -> None:
        try:
            command = (
                self._commands.get(timeout=patience_s)
                if patience_s
                else self._commands.get_nowait()
            )
            while True:
                command()
                command = self._commands.get_nowait()
        except Empty:
            return

    def _send(self, events: list[Event]) -> None:
        for event in events:
            final = isinstance(event, FinishEvent | ErrorEvent)
            find = self._deliver.pop if final else self._deliver.get
            deliver = find(event.request_id, None)
            if deliver is not None:
                deliver(event)
