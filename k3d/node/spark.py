"""The spark daemon's fabric loop: one Station at a time, frames in, partials out.

Callers are greeted in threads of their own, so that a slow or hostile one never delays serving.
A Station that proves the secret and fits replaces the one being served, unless that one was
started later: a restarted Station is never locked out by a dead connection. What was loaded stays
when the Station goes, and the next handshake says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from k3d.errors import ConfigError, FabricError, HandshakeRefused, K3Error, Refused, TimedOut
from k3d.fabric.control import failure_reply, refusal_reply
from k3d.fabric.facts import Facts
from k3d.fabric.frames import Frame, Kind, Reply
from k3d.fabric.handshake import Greeting, agreed_limit, check_fit, refused
from k3d.fabric.inproc import InprocLink
from k3d.fabric.link import Caller, Link, Listener
from k3d.node.door import Door
from k3d.node.serving import Serving, Worker
from k3d.store.frame import Sensors

TICK_S = 0.5
"""Longest time between two ticks of an idle loop."""
GREETING_S = 2.0
"""How long a caller may take to open its link, and then for its two frames together."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """What the loop last did. Times are of the monotonic clock, in seconds."""

    tick_s: float
    busy_since_s: float | None
    served_dispatches: int
    served_rows: int
    compute_ns: int
    loaded: int
    slots: int | None
    epoch: int | None
    peer: str | None
    last_error: str | None


class Arrival(NamedTuple):
    """A Station that proved itself and waits to be served."""

    link: Link
    greeting: Greeting
    sequence: int
    station: Facts


class SparkServer:
    """Serves one Station with a worker made by `worker_factory` from that Station's facts.

    `facts` are what this spark was started with; what it leaves None, the Station decides.
    `listener` is None for a spark inside the Station's process, which is reached by `inproc_link`.
    """

    def __init__(
        self,
        worker_factory: Callable[[Facts], Worker],
        listener: Listener | None,
        secret: bytes,
        facts: Facts,
        sensors: Callable[[], Sensors | None] = lambda: None,
    ) -> None:
        self._listener = listener
        self._secret = secret
        self._facts = facts
        self._name = facts.node
        self._serving = Serving(worker_factory, facts, sensors)
        # Guards who is served now and next. The loop takes it once a link, not once a frame.
        self._turn = threading.Condition()
        self._link: Link | None = None
        self._served: Facts | None = None
        self._arrival: Arrival | None = None
        self._stopping = threading.Event()
        self._peer: str | None = None
        self._tick_s = monotonic()

    def progress(self) -> Progress:
        """A snapshot for the health endpoint. Any thread."""
        serving = self._serving
        holding = serving.holding
        return Progress(
            tick_s=self._tick_s,
            busy_since_s=serving.busy_since_s,
            served_dispatches=serving.served_dispatches,
            served_rows=serving.served_rows,
            compute_ns=serving.compute_ns,
            loaded=serving.loaded,
            slots=serving.slots,
            epoch=holding.epoch if holding is not None else None,
            peer=self._peer,
            last_error=serving.last_error,
        )

    def stop(self) -> None:
        """End `run` soon. Any thread, and signal handlers: it takes no lock."""
        self._stopping.set()
        link = self._link
        if link is not None:
            link.shutdown()

    def run(self) -> None:
        """Serve until `stop`. What a worker raises beyond K3Error is a bug and ends the spark."""
        listener = self._listener
        if listener is None:
            raise ConfigError(f"{self._name} was made without a listener and cannot run")
        door = Door(listener, self._name, self._stopping, self._greet)
        door.open()
        try:
            while not self._stopping.is_set():
                if not door.kept:
                    raise RuntimeError("nobody keeps the door; its traceback is in the log above")
                arrival = self._next_arrival()
                if arrival is not None:
                    self._serve(arrival)
        finally:
            self._stopping.set()
            door.close()
            with self._turn:
                waiting, self._arrival = self._arrival, None
            if waiting is not None:
                waiting.link.close()

    def inproc_link(self) -> InprocLink:
        """A link for a Station in this process; the worker runs in the thread that receives."""
        greeting = Greeting(self._secret, self._name, f"caller of {self._name}")
        admitted = False

        def answer(frame: Frame) -> Reply:
            nonlocal admitted
            self._tick_s = monotonic()
            if admitted:
                return self._serving.answer(frame)
            try:
                if frame.kind is Kind.HELLO:
                    return greeting.challenge(frame)
                station = greeting.prove(frame)
                self._serving.admit(station)
            except HandshakeRefused as error:
                self._serving.note(error)
                return refusal_reply(error)
            admitted = True
            self._peer = station.node
            return greeting.welcome(self._serving.own_facts())

        return InprocLink(answer, self._name, capacity_bytes=self._facts.capacity_bytes)

    # The loop

    def _next_arrival(self) -> Arrival | None:
        with self._turn:
            self._tick_s = monotonic()
            if self._arrival is None:
                self._turn.wait(TICK_S)
            arrival, self._arrival = self._arrival, None
            if arrival is not None:
                self._link, self._served = arrival.link, arrival.station
            return arrival

    def _serve(self, arrival: Arrival) -> None:
        """Serve one Station until its link ends or a newer Station takes over."""
        link, station = arrival.link, arrival.station
        farewell: Reply | None = None
        ended: K3Error | None = None
        try:
            self._serving.admit(station)
            welcome = arrival.greeting.welcome(self._serving.own_facts())
            link.widen(agreed_limit(station, self._facts))
            link.send(welcome.kind, sequence=arrival.sequence, parts=welcome.parts)
            link.peer = self._peer = station.node
            log.info("%s serves %s", self._name, link.peer)
            self._answer_frames(link)
        except FabricError as error:
            ended, farewell = error, failure_reply(error)
        except K3Error as error:
            ended, farewell = error, refusal_reply(error)
        finally:
            with self._turn:
                self._link = self._served = None
                replaced = self._arrival is not None
            self._peer = None
            if replaced:
                ended = Refused(f"{self._name} turned to a newer Station")
                farewell = failure_reply(ended)
            if ended is not None:
                self._serving.note(ended)
            if farewell is not None:
                _tell(link, farewell)
            link.close()
            log.info("%s no longer serves %s", self._name, link.peer)

    def _answer_frames(self, link: Link) -> None:
        serving = self._serving
        while not self._stopping.is_set():
            self._tick_s = monotonic()
            try:
                frame = link.receive(TICK_S)
            except TimedOut:
                continue
            if frame.kind is Kind.BYE:
                return
            if frame.kind is Kind.REFUSE:
                serving.note(refused(frame, link.peer, f"{link.peer} refused {self._name}"))
                return
            reply = serving.answer(frame)
            link.send(
                reply.kind,
                epoch=reply.epoch,
                sequence=frame.sequence,
                layer=reply.layer,
                rows=reply.rows,
                compute_ns=reply.compute_ns,
                parts=reply.parts,
            )

    # Callers

    def _greet(self, caller: Caller, let_go: Callable[[], None]) -> None:
        """Let one caller prove itself, then hand it to the loop."""
        try:
            link = caller.open(GREETING_S)
        except FabricError as error:
            log.warning("%s turned a caller away: %s", self._name, error)
            let_go()
            return
        greeting = Greeting(self._secret, self._name, link.peer)
        deadline = monotonic() + GREETING_S
        try:
            hello = link.receive(max(0.0, deadline - monotonic()))
            challenge = greeting.challenge(hello)
            link.send(challenge.kind, sequence=hello.sequence, parts=challenge.parts)
            proof = link.receive(max(0.0, deadline - monotonic()))
            station = greeting.prove(proof)
            check_fit(station, self._serving.own_facts())
            let_go()
            self._hand_over(Arrival(link, greeting, proof.sequence, station))
        except HandshakeRefused as error:
            let_go()
            self._serving.note(error)
            _tell(link, refusal_reply(error))
            link.close()
        except (FabricError, TimedOut) as error:
            # A stranger's bytes are worth a line in the log, not a place in the health answer.
            log.warning("%s dropped a caller: %s", self._name, error)
            let_go()
            link.close()

    def _hand_over(self, arrival: Arrival) -> None:
        """Make `arrival` the next one served and end the link served now."""
        with self._turn:
            served = self._served
            if served is not None and served.incarnation > arrival.station.incarnation:
                raise HandshakeRefused(
                    f"{self._name} serves {served.node}, which was started later than its caller",
                    hint="two Stations run for this pod; stop one of them",
                )
            waiting, self._arrival = self._arrival, arrival
            if self._link is not None:
                self._link.stop_receiving()
            self._turn.notify()
        if waiting is not None:
            waiting.link.close()


def _tell(link: Link, reply: Reply) -> None:
    """Send the last frame of a link, if the other end still listens."""
    with suppress(FabricError):
        link.send(reply.kind, parts=reply.parts)
