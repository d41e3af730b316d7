"""A spark in a swap: both epochs served until one is retired, and what a lost Station leaves."""

from __future__ import annotations

import hashlib

import pytest

from k3d.errors import FabricError
from k3d.fabric import Link, Record
from k3d.fabric.control import Commit, encode
from k3d.fabric.frames import Frame, Kind
from k3d.fabric.records import batches, slots_part
from tests.fabric.summing_spark import (
    CAPACITY_BYTES,
    LAYER_SUM,
    Running,
    station_facts,
    thread_spark,
    values_of,
)
from tests.node.test_spark import dispatch, fill, request, station_link

STAGED = 5000


def stage(link: Link) -> None:
    """One more number for layer 3, in a free slot, for epoch 6."""
    body = STAGED.to_bytes(8, "little")
    record = Record(6, 3, 6, hashlib.sha256(body).digest(), body)
    (batch,) = batches([record], 8, CAPACITY_BYTES)
    request(link, Kind.LOAD, Kind.LOADED, epoch=6, rows=1, parts=tuple(batch.parts))


def commit(link: Link, count: int = 7) -> Frame:
    parts = (encode(Commit("p2", count)),)
    return request(link, Kind.COMMIT, Kind.COMMITTED, epoch=6, parts=parts)


def retire(link: Link, epoch: int, *slots: int) -> Frame:
    parts = (slots_part(slots),)
    return request(link, Kind.RETIRE, Kind.RETIRED, epoch=epoch, rows=len(slots), parts=parts)


def held(spark: Running, epoch: int) -> tuple[int, str, int, int]:
    with station_link(spark, station_facts(epoch=epoch)) as (_, facts):
        holding = facts.holding
        assert holding is not None
        return holding.epoch, holding.placement_digest, holding.records, holding.staged


def test_both_epochs_are_served_until_the_old_one_is_retired() -> None:
    with thread_spark() as spark:
        with station_link(spark) as (link, _):
            fill(link)
            stage(link)
            assert dispatch(link, 0, epoch=5).kind is Kind.PARTIAL
            assert commit(link).rows == 7
            for epoch in (5, 6):
                assert values_of(dispatch(link, 0, epoch=epoch).payload) == [LAYER_SUM + STAGED]
            assert retire(link, 6, 0).rows == 6
            assert values_of(dispatch(link, 0, epoch=6).payload) == [LAYER_SUM + STAGED - 1000]
        assert held(spark, 6) == (6, "p2", 6, 0)


def test_a_dispatch_of_a_retired_epoch_is_refused() -> None:
    with thread_spark() as spark, station_link(spark) as (link, _):
        fill(link)
        stage(link)
        commit(link)
        retire(link, 6)
        assert dispatch(link, 0, epoch=5).kind is Kind.ERROR


@pytest.mark.parametrize("committed", [False, True])
def test_what_a_lost_station_staged_is_told_to_the_next_and_dropped(committed: bool) -> None:
    with thread_spark() as spark:
        with station_link(spark) as (link, _):
            fill(link)
            stage(link)
            if committed:
                commit(link)
        assert held(spark, 5) == (5, "p1", 6, 1)
        with station_link(spark) as (link, _):
            assert retire(link, 5).rows == 6
            assert values_of(dispatch(link, 0, epoch=5).payload) == [LAYER_SUM]
            with pytest.raises(FabricError, match="keep epoch 6 and holds epoch 5"):
                retire(link, 6)
        assert held(spark, 5) == (5, "p1", 6, 0)


def test_an_epoch_that_is_not_complete_is_not_committed() -> None:
    with thread_spark() as spark, station_link(spark) as (link, _):
        fill(link)
        stage(link)
        with pytest.raises(FabricError, match="holds 7 expert slices, epoch 6 needs 8"):
            commit(link, 8)
        with pytest.raises(FabricError, match="3 bytes as 1 slots"):
            request(link, Kind.RETIRE, Kind.RETIRED, epoch=6, rows=1, parts=(b"abc",))
