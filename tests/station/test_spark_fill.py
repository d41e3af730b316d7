"""A spark with a bank of its own gets names, and the bytes of what it lacks; others get bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from k3d.fabric import Link, Record, connect
from k3d.fabric.records import Name
from k3d.station.membership import SparkLink
from tests.fabric.summing_spark import (
    CAPACITY_BYTES,
    LAYER_SUM,
    QUICK,
    SECRET,
    Running,
    hop,
    records,
    station_facts,
    thread_spark,
    until,
)


class Source:
    """The records of a spark, and which of them were read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def names(self) -> Iterator[Name]:
        return (Name(*record[:4]) for record in records())

    def records(self, names: Iterable[Name]) -> Iterator[Record]:
        wanted = {name.slot for name in names}
        for record in records():
            if record.slot in wanted:
                self.read.append(record.slot)
                yield record


def link_to(spark: Running, source: Source, epoch: int = 5) -> SparkLink:
    def at(timeout_s: float) -> Link:
        return connect(spark.transport, spark.address, timeout_s, capacity_bytes=CAPACITY_BYTES)

    facts = station_facts(epoch=epoch, placement_digest=f"p{epoch}")
    return SparkLink(facts, at, SECRET, records, times=QUICK, source=source)


def put_on_disk(spark: Running, slots: Iterable[int]) -> None:
    """What the spark's worker can fill from; it is made at the first handshake."""
    disk = {record.digest: bytes(record.slice_bytes) for record in records()}
    keep = {record.digest for record in records() if record.slot in set(slots)}
    spark.workers[0].disk = {digest: disk[digest] for digest in keep}


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("slots", [range(6), (0, 2, 5), ()])
def test_only_what_a_spark_lacks_is_sent(transport: str, slots: Iterable[int]) -> None:
    slots = set(slots)
    with thread_spark(transport) as spark:
        first = link_to(spark, Source())
        first.start()
        first.wait_ready(5.0)
        filling = first.snapshot().filling
        assert filling is not None
        assert (filling.filled, filling.sent) == (0, 6)
        first.close()
        put_on_disk(spark, slots)
        source = Source()
        again = link_to(spark, source, epoch=6)
        again.start()
        again.wait_ready(5.0)
        assert hop(again, 7) == [7 + LAYER_SUM]
        found = again.snapshot()
        assert found.filling is not None
        assert (found.filling.filled, found.filling.sent) == (len(slots), 6 - len(slots))
        assert found.staged is None or found.staged.records == len(slots)
        if slots:
            assert source.read == sorted(set(range(6)) - slots)
            sent = 0 if len(slots) == 6 else 64 + (6 - len(slots)) * 48
            assert found.filling.sent_bytes == 64 + 6 * 40 + sent
        again.close()


def test_a_spark_that_holds_its_slices_is_not_filled_again() -> None:
    with thread_spark() as spark:
        first = link_to(spark, Source())
        first.start()
        first.wait_ready(5.0)
        first.close()
        again = link_to(spark, Source())
        again.start()
        again.wait_ready(5.0)
        assert again.snapshot().filling is None
        again.close()


def test_a_link_that_breaks_while_it_fills_begins_again() -> None:
    class Breaking(Source):
        tries = 0

        def names(self) -> Iterator[Name]:
            Breaking.tries += 1
            for name in super().names():
                if Breaking.tries == 1 and name.slot == 3:
                    spark.server._link.shutdown()  # type: ignore[union-attr]
                yield name

    with thread_spark() as spark:
        first = link_to(spark, Source())
        first.start()
        first.wait_ready(5.0)
        first.close()
        put_on_disk(spark, range(4))
        again = link_to(spark, Breaking(), epoch=6)
        again.start()
        until(lambda: Breaking.tries >= 2 and again.ready, "it is filled at the second try")
        assert hop(again, 0) == [LAYER_SUM]
        again.close()
