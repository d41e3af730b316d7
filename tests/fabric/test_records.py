"""LOAD payloads: records in, the same records out, and payloads that are none."""

from __future__ import annotations

import pytest

from k3d.errors import FabricError
from k3d.fabric.records import Record, batches, read_records
from tests.fabric.summing_spark import records


def test_batches_fill_frames_and_read_back() -> None:
    given = list(records(7))
    found: list[Record] = []
    counts = []
    for count, parts in batches(given, 8, 3 * 48 + 5):
        counts.append(count)
        found += read_records(memoryview(b"".join(parts)), count, 8, "station")
    assert counts == [3, 3, 1]
    assert [record._replace(slice_bytes=bytes(record.slice_bytes)) for record in found] == given


def test_records_of_another_size_are_refused() -> None:
    with pytest.raises(FabricError, match="layer 3 expert 0 comes with 8 bytes"):
        list(batches(records(1), 9, 1000))
    with pytest.raises(FabricError, match="does not fit a frame of 20 bytes"):
        list(batches(records(1), 8, 20))


@pytest.mark.parametrize(("size", "count"), [(47, 1), (49, 1), (48, 2), (0, 1), (48, 2**32 - 1)])
def test_payloads_that_are_no_records_are_refused(size: int, count: int) -> None:
    with pytest.raises(FabricError, match=f"station sent {size} bytes as {count}"):
        list(read_records(memoryview(bytes(size)), count, 8, "station"))
