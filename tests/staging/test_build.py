"""Building banks: every byte right, memory bounded, killed anywhere and gone on with."""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from k3d.errors import ExitCode
from k3d.experts import bank_writer
from k3d.experts.bank import Bank, bank_path, open_or_build, slice_of, station_source
from k3d.experts.bank_writer import BankWriter
from k3d.experts.source import ExpertSource
from k3d.main import _parser
from k3d.model.checkpoint import Checkpoint
from k3d.model.weights import load_weights
from k3d.staging import build as build_module
from k3d.staging.build import READ_AHEAD, build_banks
from k3d.staging.pod_banks import pod_banks
from tests.model import shard_editing as edit
from tests.staging.conftest import Make, PodHome, flip
from tests.tiny_checkpoint import TinyModel


def test_slices_are_the_parts_of_the_records_that_the_map_gives_sparks(built: PodHome) -> None:
    source = ExpertSource(Checkpoint(built.model))
    whole = Bank(built.whole())
    assert len(whole.order) == 128
    slices = [Bank(built.slice(number)) for number in (1, 2)]
    for index, bank in enumerate(slices):
        assert (bank.header.slice_index, bank.header.slice_count) == (index, 2)
        assert 0 < len(bank.order) < 128
        assert list(bank.order) == sorted(bank.order)
        assert bank.verify() == len(bank.order)
    assert slices[0].header.map_digest == slices[1].header.map_digest
    for layer, expert in whole.order:
        record = memoryview(source.record(layer, expert))
        assert whole.record(layer, expert) == record
        if slices[0].order.find(layer, expert) is not None:
            for index, bank in enumerate(slices):
                assert bank.record(layer, expert) == slice_of(record, index, 2)
    for bank in (whole, *slices):
        bank.close()


def test_the_station_serves_from_the_bank_that_was_built(built: PodHome) -> None:
    """Not built again: the same path, and the same memory of the other weights."""
    before = built.whole().stat().st_mtime_ns
    checkpoint = Checkpoint(built.model)
    load_weights(checkpoint)
    path = bank_path(built.banks, "k3-tiny", checkpoint.digest)
    assert path == built.whole()
    open_or_build(station_source(checkpoint, built.banks), path).close()
    assert path.stat().st_mtime_ns == before


def test_building_again_does_nothing(built: PodHome) -> None:
    before = {path: path.stat().st_mtime_ns for path in built.banks.glob("*.bank")}
    document = built.bank("build").document
    assert all(bank["ready_before"] for bank in document["banks"])
    assert {path: path.stat().st_mtime_ns for path in built.banks.glob("*.bank")} == before


def test_slices_are_cut_from_the_bank_that_is_there(built: PodHome) -> None:
    before = built.files()
    for number in (1, 2):
        built.slice(number).unlink()
    document = built.bank("build").document
    assert [bank["ready_before"] for bank in document["banks"]] == [True, False, False]
    assert built.files() == before


def test_a_plan_says_what_a_build_writes(pod_home: PodHome) -> None:
    plan = pod_home.bank("plan").document
    assert [bank["state"] for bank in plan["banks"]] == ["missing"] * 3
    assert list(pod_home.banks.iterdir()) == []
    pod_home.bank("build")
    for bank in plan["banks"]:
        assert (pod_home.banks / bank["file"]).stat().st_size == bank["size_bytes"]
    assert [b["state"] for b in pod_home.bank("plan").document["banks"]] == ["ready"] * 3
    assert pod_home.bank("plan", "--no-slices").document["banks"][0]["node"] == "station"


def test_an_mxfp4_release_is_recast_unless_told_otherwise(make_home: Make) -> None:
    pod = make_home(TinyModel(seed=1, release="mxfp4", expert_width=256))
    plan = pod.bank("plan").document["banks"]
    assert {(bank["format"], bank["recast_from"]) for bank in plan} == {("nvfp4", "mxfp4")}
    assert pod.bank("build").code == 0
    checkpoint = Checkpoint(pod.model)
    source = station_source(checkpoint, pod.banks)
    assert source.recast_from == "mxfp4"
    load_weights(checkpoint)
    path = bank_path(pod.banks, "k3-tiny", checkpoint.digest, recast=True)
    before = path.stat().st_mtime_ns
    bank = open_or_build(source, path)
    assert (bank.shape.format, path.stat().st_mtime_ns) == ("nvfp4", before)
    bank.close()
    released = pod.bank("plan", "--as-released").document["banks"]
    assert {(bank["format"], bank["state"]) for bank in released} == {("mxfp4", "missing")}


class Counted(bytearray):
    """A record that counts those alive."""

    alive = most = 0

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        Counted.alive += 1
        Counted.most = max(Counted.most, Counted.alive)

    def __del__(self) -> None:
        Counted.alive -= 1


class CountedRecords:
    def __init__(self, source: ExpertSource) -> None:
        self._source = source

    def record(self, layer: int, expert: int) -> memoryview:
        return memoryview(Counted(self._source.record(layer, expert)))


def test_few_records_are_in_memory_at_once(pod_home: PodHome) -> None:
    found = pod_banks(
        pod_home.home, _parser().parse_args(["bank", "plan", "--pod", str(pod_home.pod)])
    )
    source = ExpertSource(found.checkpoint)
    wanted = [bank.with_facts(source.shape, {}) for bank in found.wanted]
    Counted.most = 0
    build_banks(wanted, CountedRecords(source))  # type: ignore[arg-type]
    gc.collect()
    assert Counted.alive == 0
    assert 1 < Counted.most <= READ_AHEAD + 2


KILLER = """
import os, signal, sys
from k3d.experts import bank_writer
from k3d.main import main
at, torn = int(sys.argv[1]), float(sys.argv[2])
calls, write, written = 0, os.pwrite, 0
def killing(descriptor, data, offset):
    global calls, written
    calls += 1
    if calls == at:
        write(descriptor, bytes(data)[: int(len(data) * torn)], offset)
        open(sys.argv[3], "w").write(str(written))
        os.kill(os.getpid(), signal.SIGKILL)
    if offset and len(data) > 32:  # a record: neither a manifest nor a hash
        written += len(data)
    return write(descriptor, data, offset)
bank_writer.os.pwrite = killing
sys.exit(main(sys.argv[4:]))
"""


def run_killed(pod_home: PodHome, at: int, torn: float) -> int:
    """Build in a process that dies in its `at`th write, `torn` of which reaches the disk; HOME/
    written has the bytes of the records that it wrote whole."""
    arguments = ["bank", "build", "--home", str(pod_home.home), "--pod", str(pod_home.pod)]
    done = subprocess.run(
        [
            sys.executable, "-c", KILLER, str(at), str(torn), str(pod_home.home / "written"),
            *arguments,
        ],
        capture_output=True, timeout=60, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    return done.returncode


def kill_and_go_on(pod_home: PodHome, whole: dict[str, bytes], seed: int, kills: int) -> None:
    """Work repeated is bytes of records that were written whole and are written again."""
    source = random.Random(seed)
    planned = pod_home.bank("plan").document["banks"]
    records = sum(bank["records"] for bank in planned)
    sizes = {bank["file"]: bank["record_bytes"] for bank in planned}
    total_bytes = sum(bank["records"] * bank["record_bytes"] for bank in planned)
    writes = 2 * records + 2 * len(whole)  # each bank's manifest is written first and last
    repeated = 0
    for _ in range(kills):
        for path in pod_home.banks.iterdir():
            path.unlink()
        at, torn = source.randrange(1, writes), source.random()
        assert run_killed(pod_home, at, torn) == -signal.SIGKILL
        claimed = {p.name for p in pod_home.banks.glob("*.bank")}
        assert all(whole[name] == (pod_home.banks / name).read_bytes() for name in claimed)
        document = pod_home.bank("build").document
        assert pod_home.files() == whole
        kept = sum(bank["kept"] * sizes[bank["file"]] for bank in document["banks"])
        ready = sum(bank["ready_before"] for bank in document["banks"])
        written = sum(bank["written_bytes"] for bank in document["banks"])
        assert kept + written == total_bytes
        assert ready == len(claimed)
        before = int((pod_home.home / "written").read_text())
        again = max(0, before - kept)
        assert again <= 0.05 * total_bytes, (at, torn)
        repeated += again
    sys.stdout.write(f"repeated {repeated} of {kills * total_bytes} bytes\n")
    assert repeated <= 0.01 * kills * total_bytes


def test_killed_anywhere_a_build_goes_on(pod_home: PodHome, seed: int) -> None:
    assert pod_home.bank("build").code == 0
    kill_and_go_on(pod_home, pod_home.files(), seed, kills=4)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_killed_at_fifty_points_a_build_goes_on(pod_home: PodHome, seed: int) -> None:
    assert pod_home.bank("build").code == 0
    kill_and_go_on(pod_home, pod_home.files(), seed, kills=50)


def test_what_the_disk_lost_of_an_interrupted_build_is_written_again(
    pod_home: PodHome, seed: int
) -> None:
    assert pod_home.bank("build").code == 0
    whole = pod_home.files()
    for path in pod_home.banks.iterdir():
        path.unlink()
    assert run_killed(pod_home, 300, 0.5) == -signal.SIGKILL
    source = random.Random(seed)
    for partial in pod_home.banks.glob(".*.partial"):
        size = partial.stat().st_size
        for _ in range(5):
            flip(partial, source.randrange(size * 3 // 4, size))
    assert pod_home.bank("build").code == 0
    assert pod_home.files() == whole


def test_a_build_begun_from_other_shards_is_not_gone_on_with(pod_home: PodHome) -> None:
    assert run_killed(pod_home, 200, 0.0) == -signal.SIGKILL
    shard = sorted(pod_home.model.glob("*.safetensors"))[2]
    os.utime(shard)
    document = pod_home.bank("build").document
    assert {bank["discarded"] for bank in document["banks"]} == {
        "it was begun from other sources or for another slice"
    }
    assert sum(bank["kept"] for bank in document["banks"]) == 0


def test_two_builds_at_once_are_one(built: PodHome) -> None:
    whole = Bank(built.whole())
    built.whole().unlink()
    with BankWriter(whole.path, whole.header):
        ran = built.bank("build", "--no-slices")
    whole.close()
    assert (ran.code, ran.error["name"]) == (ExitCode.LOCKED, "LOCKED")
    assert "is being written by another process" in ran.error["message"]


def test_a_full_disk_is_one_sentence_and_the_build_goes_on(pod_home: PodHome) -> None:
    """A limit on the size of files stands for the disk."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    ran = pod_home.run("build", preexec_fn=limit)
    assert ran.code == ExitCode.FAILED
    assert "cannot be written: File too large" in ran.error["message"]
    assert list(pod_home.banks.glob("*.bank")) == []
    document = pod_home.bank("build").document
    assert sum(bank["kept"] for bank in document["banks"]) > 0
    assert pod_home.bank("verify").code == 0


def test_room_is_asked_for_before_anything_is_written(
    pod_home: PodHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "free_bytes", lambda _folder: 100_000)
    ran = pod_home.bank("build")
    assert ran.code == ExitCode.FAILED
    assert "has 100000 bytes free and the banks need" in ran.error["message"]
    assert list(pod_home.banks.iterdir()) == []


def test_a_folder_that_cannot_be_written(pod_home: PodHome) -> None:
    pod_home.banks.rmdir()
    pod_home.banks.write_text("a file")
    ran = pod_home.bank("build")
    assert ran.code == ExitCode.FAILED
    assert "cannot be written" in ran.error["message"]


def test_a_read_only_target(pod_home: PodHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's refusal is given by hand, since root may write anywhere."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(bank_writer.os, "open", refuse)
    ran = pod_home.bank("build")
    assert ran.code == ExitCode.FAILED
    assert "Read-only file system" in ran.error["message"]
    assert "writable" in ran.error["hint"]


@pytest.mark.parametrize("which", ["a shard", "the folder"])
def test_a_source_that_vanished(pod_home: PodHome, which: str) -> None:
    shards = sorted(pod_home.model.glob("*.safetensors"))
    if which == "a shard":
        shards[3].unlink()
    else:
        pod_home.model.rename(pod_home.model.with_name("elsewhere"))
    ran = pod_home.bank("build")
    assert ran.code != ExitCode.OK
    assert "is missing" in ran.error["message"] or "no checkpoint here" in ran.error["message"]
    assert list(pod_home.banks.iterdir()) == []


def test_a_source_that_vanishes_half_way(
    pod_home: PodHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = ExpertSource.record
    shard = sorted(pod_home.model.glob("*.safetensors"))[4]

    def vanishing(self: ExpertSource, layer: int, expert: int) -> bytes:
        if (layer, expert) == (4, 3):
            shard.unlink()
        return record(self, layer, expert)

    monkeypatch.setattr(ExpertSource, "record", vanishing)
    ran = pod_home.bank("build")
    assert ran.code == ExitCode.FAILED
    assert "cannot be read: No such file" in ran.error["message"]
    assert list(pod_home.banks.glob("*.bank")) == []


def sums_of(folder: Path) -> str:
    shards = sorted(folder.glob("*.safetensors"))
    return "".join(f"{hashlib.sha256(s.read_bytes()).hexdigest()}  {s.name}\n" for s in shards)


def test_a_shard_of_the_right_size_with_wrong_bytes_is_caught(pod_home: PodHome) -> None:
    (pod_home.model / "SHA256SUMS").write_text(sums_of(pod_home.model))
    name = "language_model.model.layers.5.block_sparse_moe.experts.7.w1.weight"
    shard = edit.shard_of(pod_home.model, name)
    flip(shard, Checkpoint(pod_home.model).entry(name.removeprefix("language_model.")).offset + 9)
    ran = pod_home.bank("build")
    assert ran.code == ExitCode.FAILED
    assert f"shard {shard.name} has the right size and wrong bytes" in ran.error["message"]
    assert list(pod_home.banks.iterdir()) == []
    flip(shard, Checkpoint(pod_home.model).entry(name.removeprefix("language_model.")).offset + 9)
    ran = pod_home.bank("build")
    assert ran.document["shards_checked"]


Damage = Callable[[str], str]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda text: text[:64] + "\n", "no line among the sums"),
        (lambda text: text + "nonsense\n", "is no line of sha256sum"),
    ],
)
def test_sums_that_are_none(pod_home: PodHome, damage: Damage, sentence: str) -> None:
    text = damage(sums_of(pod_home.model))
    sums = pod_home.home / "sums"
    sums.write_text(text if "nonsense" in text else text[:64] + "  other.safetensors\n")
    assert sentence in pod_home.bank("build", "--sums", str(sums)).error["message"]


def test_progress_is_json_lines_before_the_document(pod_home: PodHome) -> None:
    lines = pod_home.bank("build", "--progress").out.splitlines()
    found = [json.loads(line) for line in lines]
    assert found[-1]["schema"] == "k3d.bank-build/1"
    last = [line for line in found[:-1] if line["phase"] == "build"][-1]
    assert last["bytes"] == last["total_bytes"] > 0
    assert last["bytes_per_s"] > 0
