"""LOAD payloads: records in, the same records out, and payloads that are none."""

from __future__ import annotations

import pytest

from k3d.errors import FabricError
from k3d.fabric import records as records_module
from k3d.fabric.records import (
    Name,
    Record,
    batches,
    lacking_part,
    name_batches,
    names_part,
    read_lacking,
    read_names,
    read_records,
)
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


NAMES = [Name(slot, 3, slot, bytes([slot]) * 32) for slot in range(9)]


def test_names_travel_in_batches_of_so_many_bytes_of_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records_module, "FILL_BYTES", 40)
    found = list(name_batches(NAMES, 10))
    assert [len(batch) for batch in found] == [4, 4, 1]
    assert [len(batch) for batch in name_batches(NAMES, 1000)] == [1] * 9
    assert [len(batch) for batch in name_batches(NAMES, 1, 5)] == [5, 4]
    read = [read_names(memoryview(names_part(batch)), len(batch), "station") for batch in found]
    assert read == found


@pytest.mark.parametrize("lacking", [[], [0], [8], [1, 7, 8], list(range(9))])
def test_bits_say_which_names_are_lacking(lacking: list[int]) -> None:
    payload = memoryview(lacking_part(9, lacking))
    assert len(payload) == 2
    assert read_lacking(payload, 9, "spark-1") == lacking


def test_names_and_bits_that_are_none_are_refused() -> None:
    with pytest.raises(FabricError, match="station sent 41 bytes as the names of 1 slices"):
        read_names(memoryview(bytes(41)), 1, "station")
    with pytest.raises(FabricError, match="spark-1 sent 1 bytes as bits of 9 slices"):
        read_lacking(memoryview(bytes(1)), 9, "spark-1")
    with pytest.raises(FabricError, match="2 bytes as bits of 9"):
        read_lacking(memoryview(b"\0\x02"), 9, "spark-1")
