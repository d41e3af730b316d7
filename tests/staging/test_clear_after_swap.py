"""What gc keeps for a map that a swap made: no bank has its digest, and its sparks are filled from
those of other maps."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from k3d.experts.bank_file import Bank
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER, load_pod
from k3d.placement.swap_plan import plan_swap
from k3d.staging.bank_names import STATION
from k3d.staging.clear import Needs, plan_clearing
from k3d.staging.swapped_maps import SwappedMap
from k3d.store.state import StateStore
from k3d.store.swaps import SwapStore
from tests.staging.conftest import PodHome
from tests.staging.test_scrub_clear import placement_of

PLANNED = "layer-balanced"


def swap(built: PodHome, *names: str, sparks: list[str] | None = None) -> list[PlacementMap]:
    """Note the pod's own map as epoch 1, then a swap to each of the others; all maps of it. Banks
    that are there are older than any of them."""
    found = [placement_of(built, PLANNED)]
    store = StateStore.open_as_writer(built.home, holder="a test")
    store.record_placement_map(1, found[0].digest, PLANNED, found[0].to_json())
    swaps = SwapStore(store)
    for name in names:
        now, goal = found[-1], placement_of(built, name)
        intent = swaps.record_swap({"from_epoch": now.epoch, "returns": False})
        waves = plan_swap(now, goal, load_pod(str(built.pod)).slots, now.epoch + 1).waves
        for wave in waves:
            swaps.record_turn(
                intent.id, wave.placed.epoch, wave.placed.digest, name, wave.placed.to_json(),
                found[0].digest, sparks,
            )  # fmt: skip
        swaps.move(intent.id, "done")
        found.append(waves[-1].placed)
        assert set(spark_experts(found[-1])) == set(spark_experts(goal))
    store.close()
    for path in built.banks.rglob("*.bank"):
        os.utime(path, (1.0, 1.0))
    return found


def spark_experts(placement: PlacementMap) -> list[tuple[int, int]]:
    return [(layer, expert) for _, layer, expert in placement.experts_in(SPARK_TIER)]


def staged(built: PodHome, policy: str) -> set[Path]:
    """The slices of a map, built and sent to the sparks."""
    assert built.bank("build", "--placement", policy).code == 0
    assert built.bank("stage", "--placement", policy).code == 0
    digest = placement_of(built, policy).digest[:8]
    found = {path for path in built.banks.rglob("*.bank") if f".{digest}." in path.name}
    assert len(found) == 4
    return found


def reasons(built: PodHome, of: set[Path]) -> set[str]:
    """Remove what gc does; why it keeps some banks, which have to be there still."""
    ran = built.bank("gc")
    assert ran.code == 0
    assert all(path.exists() for path in of)
    found = {(file["node"], file["file"]): file["reason"] for file in ran.document["files"]}
    return {found[node_of(built, path), path.name] for path in of}


def node_of(built: PodHome, path: Path) -> str:
    return STATION if path.parent == built.banks else path.parent.name


def filled(placement: PlacementMap, count: int) -> str:
    return (
        f"map {placement.digest[:8]}, in force or the one before it, came by a swap: its sparks "
        f"have {count} of {len(spark_experts(placement))} experts from it"
    )


def test_what_fills_the_sparks_of_a_swapped_map_stays(built: PodHome) -> None:
    its_own = set(built.banks.glob("*of2*"))
    of_policy = staged(built, "contiguous")
    *_, now = swap(built, "contiguous")
    assert now.digest != placement_of(built, "contiguous").digest
    assert reasons(built, of_policy) == {filled(now, len(spark_experts(now)))}
    assert reasons(built, its_own) == {"a map in force, or the one before it, needs it"}


def test_banks_that_a_swapped_map_has_no_use_for_go(built: PodHome) -> None:
    """Though they hold some of its experts: another bank of the node holds them all."""
    unneeded = set(built.banks.glob("*of2*"))
    of_policy = staged(built, "contiguous")
    astray = built.banks / "spark-1" / built.slice(2).name
    shutil.copy(next(path for path in of_policy if ".2of2." in path.name), astray)
    *_, now = swap(built, "all-hbm", "contiguous")
    assert reasons(built, of_policy) == {filled(now, len(spark_experts(now)))}
    assert not any(path.exists() for path in {astray, *unneeded})


def test_banks_that_each_fill_a_part_of_a_swapped_map_stay(built: PodHome) -> None:
    some, others = set(built.banks.glob("*of2*")), staged(built, "contiguous")
    *_, now = swap(built, "all-hbm", "all-spark")
    count = len(spark_experts(placement_of(built, "contiguous")))
    assert count < len(spark_experts(now))
    assert reasons(built, some | others) == {filled(now, count)}


def test_the_way_back_to_a_swapped_map_stays(built: PodHome) -> None:
    of_policy = staged(built, "contiguous")
    _, *_, back, _ = swap(built, "contiguous", "all-hbm")
    assert reasons(built, of_policy) == {filled(back, len(spark_experts(back)))}


def test_slices_of_another_cut_fill_no_spark(built: PodHome) -> None:
    """The experts of the map in force are whole on one spark."""
    of_policy = staged(built, "contiguous")
    swap(built, "all-hbm", "contiguous", sparks=["spark-1"])
    assert built.bank("gc").code == 0
    assert not any(path.exists() for path in of_policy)


def test_a_bank_of_another_model_fills_no_spark(built: PodHome) -> None:
    placement = placement_of(built, PLANNED)
    swapped = SwappedMap("ab" * 32, frozenset(spark_experts(placement)), ("spark-1", "spark-2"))
    bank = Bank(built.whole())
    bank.close()
    for models, removable in ((frozenset({bank.header.model_digest}), 0), (frozenset({"00"}), 3)):
        needs = Needs(models, frozenset(), swapped=(swapped,))
        assert sum(each.removable for each in plan_clearing(built.banks, needs)) == removable
