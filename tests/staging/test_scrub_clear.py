"""Scrubbing by shares of a day, and clearing away only what nothing needs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from k3d.errors import ExitCode
from k3d.experts.bank_file import Bank
from k3d.main import _parser
from k3d.placement.placement_map import PlacementMap
from k3d.staging.bank_names import find_banks
from k3d.staging.examined_log import ExaminedLog
from k3d.staging.pace import Pace
from k3d.staging.pod_banks import pod_banks
from k3d.staging.progress import say_nothing
from k3d.staging.scrub import DAY_S, due_bytes, scrub
from k3d.store.state import StateStore
from k3d.store.swaps import SwapStore
from tests.staging.conftest import PodHome, flip


@pytest.mark.parametrize(
    ("since_s", "due"),
    [(None, 100), (DAY_S, 100), (DAY_S / 4, 25), (30 * DAY_S, 100), (0.0, 0), (-5.0, 0)],
)
def test_what_is_due(since_s: float | None, due: int) -> None:
    assert due_bytes(1000, 0.1, since_s) == due


def test_a_round_takes_as_many_days_as_its_share_says(built: PodHome) -> None:
    """Every record is read once a round, in whatever pieces."""
    placed = list(find_banks(built.banks))
    total = sum(row["records"] for row in built.bank("ls").document["banks"])
    read = 0
    for day in range(1, 6):
        clock = partial(float, day * DAY_S)
        done = scrub(built.banks, placed, 0.25, Pace(), say_nothing, None, now_s=clock)
        read += done.records
        notes = ExaminedLog.read(built.banks).banks.values()
        if len(notes) == len(placed) and all(note.rounds for note in notes):
            break
    assert day in (4, 5)
    assert total <= read < 1.5 * total


def test_a_scrub_repairs_what_it_meets(built: PodHome) -> None:
    sound, path = built.files(), built.slice(2)
    flip(path, path.stat().st_size - 10)
    look = built.bank("scrub", "--share", "1", "--no-repair")
    assert look.code == ExitCode.FAILED
    assert [d["repaired"] for d in look.document["damages"]] == [False]
    log = json.loads((built.banks / ".examined.json").read_text())
    log["scrubbed_s"] -= DAY_S
    (built.banks / ".examined.json").write_text(json.dumps(log))
    ran = built.bank("scrub", "--share", "1")
    assert (ran.code, [d["repaired"] for d in ran.document["damages"]]) == (0, [True])
    assert built.files() == sound


def test_a_second_scrub_at_once_has_nothing_due(built: PodHome) -> None:
    first = built.bank("scrub", "--share", "0.5").document
    assert 0 < first["bytes"] < first["total_bytes"]
    assert built.bank("scrub", "--share", "0.5", "--dry-run").document["due_bytes"] < 10_000
    assert built.bank("scrub", "--share", "0.5").document["bytes"] < first["bytes"] / 2


def test_a_cursor_that_is_damaged_only_begins_again(built: PodHome) -> None:
    built.bank("scrub", "--share", "0.5")
    (built.banks / ".examined.json").write_bytes(b"\xff\x00nonsense")
    assert built.bank("scrub", "--share", "1").code == ExitCode.OK
    assert {row["state"] for row in built.bank("ls").document["banks"]} == {"sound"}


@pytest.mark.parametrize("share", ["0", "1.1", "nan", "much"])
def test_shares_that_are_none(
    built: PodHome, share: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        built.bank("scrub", "--share", share)
    assert "is no share above 0" in capsys.readouterr().err


def in_force(pod_home: PodHome, *placements: PlacementMap) -> None:
    """Note maps as a Station does, the last one in force."""
    store = StateStore.open_as_writer(pod_home.home, holder="a test")
    for epoch, placement in enumerate(placements, start=1):
        store.record_placement_map(epoch, placement.digest, "test", placement.to_json())
    store.close()


def placement_of(pod_home: PodHome, policy: str) -> PlacementMap:

    arguments = ["bank", "plan", "--pod", str(pod_home.pod), "--placement", policy]
    return pod_banks(pod_home.home, _parser().parse_args(arguments)).placement


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.bank*") if path.is_file()}


def test_without_a_map_in_force_nothing_is_removed(built: PodHome) -> None:
    before = names(built.banks)
    ran = built.bank("gc")
    assert ran.code == ExitCode.NOT_FOUND  # no state.db at all
    StateStore.open_as_writer(built.home, holder="a test").close()
    ran = built.bank("gc")
    assert (ran.code, "no placement map" in ran.error["message"]) == (ExitCode.REFUSED, True)
    assert names(built.banks) == before


def test_only_slices_of_no_map_in_force_go(built: PodHome) -> None:
    assert built.bank("build", "--placement", "all-spark").code == 0
    assert built.bank("build", "--placement", "contiguous").code == 0
    maps = {name: placement_of(built, name)
            for name in ("layer-balanced", "all-spark", "contiguous")}  # fmt: skip
    before = names(built.banks)
    in_force(built, maps["layer-balanced"], maps["all-spark"], maps["contiguous"])
    gone = {name for name in before if f".{maps['layer-balanced'].digest[:8]}." in name}
    assert len(gone) == 2
    look = built.bank("gc", "--dry-run").document
    assert {file["file"] for file in look["files"] if file["remove"]} == gone
    assert names(built.banks) == before
    ran = built.bank("gc")
    assert ran.document["freed_bytes"] > 0
    assert names(built.banks) == before - gone
    assert built.bank("gc").document["freed_bytes"] == 0


def test_a_change_under_way_keeps_everything(built: PodHome) -> None:
    in_force(built, placement_of(built, "all-hbm"))
    store = StateStore.open_as_writer(built.home, holder="a test")
    store.record_intent("swap", {})
    store.close()
    before = names(built.banks)
    ran = built.bank("gc")
    assert (ran.code, "under way" in ran.error["message"]) == (ExitCode.REFUSED, True)
    assert names(built.banks) == before


def test_damaged_banks_and_work_to_go_on_with_stay(built: PodHome) -> None:
    in_force(built, placement_of(built, "layer-balanced"))
    flip(built.slice(1), 60)
    begun = built.banks / ".k3-other-000000000000.bank.partial"
    begun.write_bytes(bytes(5000))
    done = built.banks / f".{built.whole().name}.partial"
    done.write_bytes(bytes(5000))
    before = names(built.banks)
    files = {file["file"]: file for file in built.bank("gc").document["files"]}
    assert names(built.banks) == before - {done.name}
    assert "cannot be told" in files[built.slice(1).name]["reason"]
    assert "go on" in files[begun.name]["reason"]


def test_a_model_that_cannot_be_told_keeps_everything(built: PodHome) -> None:
    in_force(built, placement_of(built, "layer-balanced"))
    built.model.rename(built.model.with_name("away"))
    before = names(built.banks)
    ran = built.bank("gc")
    assert (ran.code, "cannot be told" in ran.error["message"]) == (ExitCode.REFUSED, True)
    assert names(built.banks) == before


def test_slices_of_the_next_map_stay(built: PodHome) -> None:
    """Built, or staged to a spark of this machine, since the map in force came."""
    in_force(built, placement_of(built, "all-spark"))
    assert built.bank("build", "--placement", "contiguous").code == 0
    assert built.bank("stage", "--placement", "contiguous").code == 0
    next_map = placement_of(built, "contiguous").digest[:8]
    ahead = {path for path in built.banks.rglob("*.bank") if f".{next_map}." in path.name}
    assert len(ahead) == 4
    files = {file["file"]: file for file in built.bank("gc").document["files"]}
    assert all("may be the next one's" in files[path.name]["reason"] for path in ahead)
    assert all(path.exists() for path in ahead)
    assert len(list(built.banks.glob("*of2*"))) == 2  # those of no map went
    store = StateStore.open_as_writer(built.home, holder="a test")
    latest = placement_of(built, "all-hbm")
    store.record_placement_map(2, latest.digest, "test", latest.to_json())
    latest = placement_of(built, "all-grace")
    store.record_placement_map(3, latest.digest, "test", latest.to_json())
    store.close()
    assert built.bank("gc").code == ExitCode.OK
    assert not any(path.exists() for path in ahead)


def test_the_way_back_from_a_swap_of_several_waves_stays(built: PodHome) -> None:
    """Its maps in between have epochs of their own; rollback goes to the one before all of them."""
    before = placement_of(built, "layer-balanced")
    store = StateStore.open_as_writer(built.home, holder="a test")
    store.record_placement_map(1, before.digest, "test", before.to_json())
    swaps = SwapStore(store)
    intent = swaps.record_swap({"from_epoch": 1, "returns": False})
    for epoch, name in ((3, "all-rtx"), (7, "all-hbm")):
        wave = placement_of(built, name)
        swaps.record_turn(intent.id, epoch, wave.digest, "test", wave.to_json(), before.digest)
    swaps.move(intent.id, "done")
    store.close()
    for path in built.banks.glob("*.bank"):
        os.utime(path, (1.0, 1.0))
    assert built.bank("gc").document["freed_bytes"] == 0
    assert len(list(built.banks.glob("*of2*"))) == 2


SCRUB_KILLER = """
import os, signal, sys
from k3d.staging import scrub, verify
from k3d.main import main
scrub.STEP_BYTES = int(sys.argv[2])
left, read = int(sys.argv[1]), verify.damages
def killing(bank, first, count):
    global left
    left -= count
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(bank, first, count)
verify.damages = killing
sys.exit(main(sys.argv[3:]))
"""


def kill_scrubs(built: PodHome, seed: int, kills: int) -> None:
    """Scrubs of all that is due, each killed somewhere; together they read everything once, and
    again only what was read since the last note before a kill."""
    source = random.Random(seed)
    layout = Bank(built.whole())
    layout.close()
    size, step = layout.header.record_bytes, 8
    counts = {row["file"]: row["records"] for row in built.bank("ls").document["banks"]}
    total = sum(counts.values())
    read = 0
    for killed in range(1, kills + 1):
        before = source.randrange(0, 40)
        arguments = ["bank", "scrub", "--home", str(built.home), "--pod", str(built.pod)]
        done = subprocess.run(
            [sys.executable, "-c", SCRUB_KILLER, str(before), str(step * size), *arguments,
             "--share", "1"],
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL
        read += before  # at most: a few are read at once
        assert {row["state"] for row in built.bank("ls").document["banks"]} <= {
            "unverified", "sound"
        }  # fmt: skip
        notes = ExaminedLog.read(built.banks).banks
        noted = sum(note.rounds * counts[file] + note.cursor for file, note in notes.items())
        # Slices have half the record: twice as many of them make a step.
        assert read - 2 * step * killed <= noted <= read
    ran = built.bank("scrub", "--share", "1")
    assert ran.code == ExitCode.OK
    assert total <= read + ran.document["records"] <= total + 2 * step * kills
    assert {row["state"] for row in built.bank("ls").document["banks"]} == {"sound"}
    assert built.bank("scrub", "--share", "1", "--dry-run").document["due_bytes"] < 10_000


def test_a_scrub_that_is_killed_is_gone_on_with(built: PodHome, seed: int) -> None:
    kill_scrubs(built, seed, kills=2)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_scrubs_killed_often_read_everything_once(built: PodHome, seed: int) -> None:
    kill_scrubs(built, seed, kills=7)
