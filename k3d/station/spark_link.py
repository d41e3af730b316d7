"""The Station's link to one spark, kept up by a thread of its own.

The thread connects, shakes hands, fills the spark, commits the epoch and then pings while nothing
else travels. The engine's thread sends dispatches and collects partials on the same link. Whoever
finds the link broken says why, once; then the thread connects and fills again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic, monotonic_ns
from typing import TypeVar

import msgspec

from k3d.errors import FabricError, HandshakeRefused, K3Error, NodeLost, Refused, TimedOut
from k3d.fabric.control import Commit, Counters, decode, encode
from k3d.fabric.facts import Facts
from k3d.fabric.frames import Buffer, Frame, Kind
from k3d.fabric.handshake import call
from k3d.fabric.link import Link
from k3d.fabric.records import Record, read_lacking
from k3d.fabric.request import ask
from k3d.station.hop import Hop
from k3d.station.hop_gap import HopGap
from k3d.station.hop_ring import HopRing
from k3d.station.link_figures import LinkFigures
from k3d.station.link_standing import LinkStanding
from k3d.station.link_state import Cut, LinkSnapshot, LinkTimes
from k3d.station.spark_fill import SliceSource, SparkFill

GOODBYE_S = 1.0
HOP_CHECK_S = 0.05
"""How often to look whether a hop is over, should its end have been missed."""

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class SparkLink:
    """One spark as its Station sees it.

    `facts` are the Station's for this spark; `facts.calling` is its name. `connect` takes a
    timeout in seconds and gives a new link; it looks the address up each time, since a restarted
    spark may have another. `records` gives the spark's expert slices in any order and is called at
    every refill, in this link's thread; with a `source`, a spark that has a bank of its own is
    given names, and the bytes of what that lacks. `begin`, `finish` and `settle` belong to one
    thread, the engine's; the rest is for any.
    """

    def __init__(
        self,
        facts: Facts,
        connect: Callable[[float], Link],
        secret: bytes,
        records: Callable[[], Iterable[Record]],
        *,
        times: LinkTimes | None = None,
        source: SliceSource | None = None,
    ) -> None:
        self.node = facts.calling or ""
        self._facts = facts
        self._connect = connect
        self._secret = secret
        self._records = records
        self._source = source
        self._times = times or LinkTimes()
        self._turn = threading.Lock()  # who uses the link; free whenever the engine wants it
        self._standing = LinkStanding(self.node)
        self._link: Link | None = None
        self._stopping = threading.Event()
        self._sequence = 0
        self._known = LinkFigures(self.node)
        self._gap = HopGap()
        self._hop: Hop | None = None  # the dispatch without an answer
        self.hops = HopRing()
        """What the dispatches to this spark took."""
        self._thread = threading.Thread(target=self._run, name=f"link-{self.node}", daemon=True)

    # For the Station

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Say goodbye to the spark and end the thread."""
        self._stopping.set()
        idle = self._turn.acquire(timeout=GOODBYE_S)
        try:
            link = self._link
            if link is not None:
                if idle and self.ready and self._hop is None:
                    self._say_bye(link)
                link.shutdown()
        finally:
            if idle:
                self._turn.release()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def ready(self) -> bool:
        return self._standing.ready

    def wait_ready(self, timeout_s: float) -> None:
        """Return once dispatches can be sent.

        Raises Refused as soon as the link is, and TimedOut with the state when the spark is not
        ready in time.
        """
        self._standing.wait_ready(timeout_s)

    def snapshot(self) -> LinkSnapshot:
        """What is known of the spark now."""
        return self._known.snapshot(self._facts, self._standing.now, self._hop, self._times)

    # For a swap: what travels between hops

    @property
    def joins(self) -> int:
        """How often the spark has become ready. What was staged at another number is gone."""
        return self._known.joins

    def between_hops(
        self,
        kind: Kind,
        answer: Kind,
        *,
        joins: int,
        epoch: int,
        rows: int = 0,
        parts: Sequence[Buffer] = (),
    ) -> Frame:
        """Ask one thing while no dispatch is outstanding. One thread at a time.

        Raises NodeLost when the spark is not ready, has joined again since `joins`, or does not
        do what it is asked.
        """

        def link_of_this_join() -> Link:
            link, standing = self._link, self._standing.now
            if link is None or standing.state != "ready" or self._known.joins != joins:
                raise self._standing.lost(standing.reason or f"{self.node} had to join again")
            return link

        def exchange(link: Link) -> Frame:
            try:
                frame = self._ask(
                    link, kind, answer, epoch=epoch, rows=rows, parts=parts,
                    timeout_s=self._times.hop_s,
                )  # fmt: skip
            except (FabricError, TimedOut) as error:
                raise self._lose(error.message) from None
            payload = memoryview(bytes(frame.payload))  # the next frame may overwrite it
            if kind is Kind.LOAD:
                self._known.loaded += rows
            elif kind is Kind.FILL:
                self._known.loaded += rows - len(read_lacking(payload, rows, self.node))
            else:
                self._known.loaded = frame.rows
            return msgspec.structs.replace(frame, payload=payload)

        frame = self._in_a_gap(link_of_this_join, exchange)
        assert frame is not None
        return frame

    def _in_a_gap(
        self,
        link_to_use: Callable[[], Link | None],
        act: Callable[[Link], Answer],
        within_s: float = math.inf,
    ) -> Answer | None:
        """What `act` makes of the link as soon as no dispatch is outstanding; None when there is
        no link to use any more, or no gap in time."""
        until_s = monotonic() + within_s
        with self._gap.awaited() as opened:
            while monotonic() < until_s:
                with self._turn:
                    link = link_to_use()
                    if link is None:
                        return None
                    if self._hop is None:
                        return act(link)
                opened.wait(HOP_CHECK_S)
                opened.clear()
        return None

    def turn_to(
        self, epoch: int, placement_digest: str, *, held: bool = True, cut: Cut | None = None
    ) -> None:
        """Dispatch for this epoch from now on, and fill a spark that joins for it, by another
        `cut` if there is one. One that is ready without having `held` it joins again. Between two
        passes, in the engine's thread."""
        with self._turn:
            self._facts = msgspec.structs.replace(
                self._facts,
                epoch=epoch,
                placement_digest=placement_digest,
                **({} if cut is None else cut._asdict()),
            )
            link = self._link
            if link is not None and self.ready and not held:
                self._hop = None
                self._standing.become("loading", f"{self.node} joins again for epoch {epoch}")
                link.shutdown()

    # For the engine: one hop

    def begin(self, layer: int, rows: int, parts: Sequence[Buffer]) -> None:
        """Send a dispatch. An answer that nobody collected before is waited for and dropped.

        Raises NodeLost when the spark is not ready or the link breaks, Refused at once when the
        link will not be ready until somebody mends something.
        """
        if self._hop is not None:
            self.finish()
        with self._turn:
            link = self._usable()
            self._sequence += 1
            epoch = self._facts.epoch
            self._hop = Hop(self._sequence, epoch, layer, rows, monotonic_ns())
            self._known.hop_layer = layer
            try:
                link.send(
                    Kind.DISPATCH,
                    epoch=epoch,
                    sequence=self._sequence,
                    layer=layer,
                    rows=rows,
                    parts=parts,
                )
            except FabricError as error:
                raise self._lose(error.message) from None

    def finish(self, timeout_s: float | None = None) -> Frame:
        """The partial of the dispatch that `begin` sent; its payload holds until the next `begin`.

        The deadline counts from this call: `times.hop_s` and `times.hop_row_s` a row, unless
        given. Raises NodeLost when no answer comes, or one that is not this dispatch's, and Refused
        as `begin` does.
        """
        with self._turn:
            hop, link = self._hop, self._usable()
            if hop is None:
                loss = f"the dispatch of layer {self._known.hop_layer}: {self._standing.loss}"
                raise self._standing.lost(f"{self.node} lost {loss}")
            if timeout_s is None:
                timeout_s = hop.left_s(self._times)
            try:
                frame = link.receive(timeout_s)
            except TimedOut:
                raise self._lose(
                    f"{self.node} did not answer layer {hop.layer} ({hop.rows} rows) "
                    f"within {timeout_s:.1f} s"
                ) from None
            except FabricError as error:
                raise self._lose(error.message) from None
            if not hop.is_answered_by(frame):
                raise self._lose(hop.wrong_answer(frame, self.node))
            self._hop = None
            known, took_ns = self._known, hop.age_ns
            known.hop_ns, known.compute_ns = took_ns, frame.compute_ns
            known.progress_s = monotonic()
            self.hops.note(took_ns, frame.compute_ns, hop.rows)
            self._gap.opened()
            return frame

    def settle(self) -> None:
        """Drop the answer of a dispatch that will not be finished, after a pass that failed."""
        if self._hop is not None:
            try:
                self.finish()
            except (NodeLost, Refused) as error:
                log.info("%s was lost while a failed pass was cleared: %s", self.node, error)

    @property
    def hop_ns(self) -> int | None:
        """Nanoseconds from `begin` to the end of `finish` in the last hop; None before any."""
        return self._known.hop_ns

    def _usable(self) -> Link:
        """The link, if dispatches may travel. Raises NodeLost or Refused with why not."""
        link = self._link
        if link is None or not self.ready:
            self._hop = None
            raise self._standing.error()
        return link

    def _lose(self, reason: str) -> NodeLost:
        """Mark the link lost, wake its thread, and return the error to raise."""
        self._hop = None
        self._standing.become("lost", reason)
        link = self._link
        if link is not None:
            link.shutdown()
        return self._standing.lost(self._standing.loss)

    # The link's own thread

    def _run(self) -> None:
        try:
            self._keep_up()
        finally:
            if not self._stopping.is_set():
                # A bug, or records that could not be read; the traceback is in the Station's log.
                self._standing.become("lost", f"the Station's thread for {self.node} failed")

    def _keep_up(self) -> None:
        retry_s = self._times.retry_first_s
        while not self._stopping.is_set():
            most_s = self._times.retry_most_s
            try:
                link = self._join()
                retry_s = self._times.retry_first_s
                self._watch(link)
            except K3Error as error:
                self._standing.after(error)
                if not (error.retryable or isinstance(error, HandshakeRefused)):
                    # A handshake is cheap to ask for again; a spark filled in vain is not.
                    retry_s = most_s = self._times.refill_s
            finally:
                self._drop()
            self._stopping.wait(retry_s)
            retry_s = min(2 * retry_s, most_s)

    def _join(self) -> Link:
        """Connect, shake hands, fill and commit. Raises K3Error, leaving the link to `_drop`."""
        link = self._connect(self._times.connect_s)
        with self._turn:
            self._link, self._hop = link, None
        facts = self._facts
        spark = call(link, self._secret, facts, self._times.handshake_s)
        link.peer = self.node
        known = self._known
        known.version, known.staged, known.fill = spark.version, spark.staged, None
        held = spark.holding
        if (
            held is not None
            and held.epoch == facts.epoch
            and held.placement_digest == facts.placement_digest
        ):
            self._known.loaded = held.records
            if held.staged:
                # Of a swap that was not carried out, or will begin again.
                self._ask(link, Kind.RETIRE, Kind.RETIRED)
            log.info("%s still holds its %d expert slices", self.node, held.records)
        else:
            self._fill(link, min(facts.capacity_bytes, spark.capacity_bytes))
        self._ping(link)
        with self._turn:
            self._check_running()
            if self._facts is not facts:
                raise FabricError(f"the epoch turned while {self.node} was joining")
            self._known.joins += 1
            self._standing.become("ready")
        return link

    def _fill(self, link: Link, limit_bytes: int) -> None:
        facts = self._facts
        if self._standing.now.state != "refused":
            self._standing.become("loading")
        self._known.loaded = 0
        self._ask(link, Kind.RESET, Kind.LOADED)

        def exchange(kind: Kind, answer: Kind, rows: int, parts: list[Buffer]) -> Frame:
            self._check_running()
            self._known.loaded = fill.count.records
            return self._ask(link, kind, answer, rows=rows, parts=parts)

        fill = SparkFill(exchange, self.node, facts.slice_bytes or 0, limit_bytes)
        self._known.fill = fill
        source, staged = self._source, self._known.staged
        if source is not None and staged is not None and staged.records:
            fill.send(source.records(fill.name(source.names())))
        else:
            fill.send(self._records())
        self._known.loaded = fill.count.records
        commit = encode(Commit(facts.placement_digest or "", self._known.loaded))
        self._ask(link, Kind.COMMIT, Kind.COMMITTED, parts=(commit,))
        log.info(
            "%s was filled with %d expert slices, %d of them from its own bank",
            self.node, self._known.loaded, fill.count.filled,
        )  # fmt: skip

    def _watch(self, link: Link) -> None:
        """Ping while the engine is silent and now and then while it is not, until the link is
        lost."""
        every_s = self._times.ping_every_s
        while not self._stopping.is_set():
            idle_s = self._known.idle_s
            # While a hop is under way there is nothing to do but to notice the end of the link.
            shortest_s = every_s / 2 if self._hop is not None else 0.01
            if link.wait_gone(max(every_s - idle_s, shortest_s)) or not self.ready:
                break
            if self._known.idle_s < every_s:
                if self._known.counters_age_s > self._times.count_every_s:
                    self._in_a_gap(
                        lambda: link if self.ready and not self._stopping.is_set() else None,
                        self._ping,
                        every_s,
                    )
                continue
            if self._turn.acquire(timeout=every_s):
                try:
                    if self._hop is None and self.ready:
                        self._ping(link)
                finally:
                    self._turn.release()
        if self.ready and not self._stopping.is_set():
            self._standing.become("lost", f"{self.node} ended the link; its process may have ended")

    def _ping(self, link: Link) -> None:
        begun_ns = monotonic_ns()
        frame = self._ask(link, Kind.PING, Kind.PONG, timeout_s=self._times.ping_s)
        took_ns = monotonic_ns() - begun_ns
        self._known.count(decode(frame, Counters, self.node), took_ns)

    def _ask(
        self,
        link: Link,
        kind: Kind,
        answer: Kind,
        *,
        epoch: int | None = None,
        rows: int = 0,
        parts: Sequence[Buffer] = (),
        timeout_s: float | None = None,
    ) -> Frame:
        self._sequence += 1
        frame = ask(
            link,
            kind,
            answer,
            epoch=self._facts.epoch if epoch is None else epoch,
            sequence=self._sequence,
            timeout_s=timeout_s or self._times.load_s,
            rows=rows,
            parts=parts,
        )
        self._known.progress_s = monotonic()
        return frame

    def _check_running(self) -> None:
        if self._stopping.is_set():
            raise TimedOut(f"the Station closed before {self.node} was ready")

    def _drop(self) -> None:
        with self._turn:
            link, self._link = self._link, None
            if link is not None:
                link.close()

    def _say_bye(self, link: Link) -> None:
        try:
            link.send(Kind.BYE)
        except FabricError:
            log.info("%s was gone before the goodbye", self.node)
