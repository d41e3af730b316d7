"""Work on banks: one at a time, only from the state that was shown, and seen while it runs."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from k3d.errors import ExitCode, StoreError
from k3d.staging import commands_check, progress
from k3d.staging.progress_file import FOLDER, WorkFile, bank_work, telling
from k3d.staging.verify import verify_bank
from k3d.staging.work_lock import scrub_lock, work_lock
from k3d.store.frame import BankWorkFrame
from k3d.store.lock import FileLock
from k3d.store.start_ticks import process_start_ticks
from tests.staging.conftest import PodHome, flip
from tests.staging.test_scrub_clear import in_force, placement_of

LINE = {
    "type": "progress", "phase": "verify", "what": "spark-1/x.bank", "bytes": 5,
    "total_bytes": 70, "bytes_per_s": 2.5, "eta_s": 26.0, "found": 2,
}  # fmt: skip
WORK = BankWorkFrame(
    kind="verify", node="spark-1", bank="x.bank", done_bytes=5, size_bytes=70, bytes_per_s=2.5,
    left_s=26.0, found=2,
)  # fmt: skip


def test_work_is_seen_while_it_runs(home: Path) -> None:
    assert bank_work(home) == []
    with telling(home, "verify", "station") as told:
        told(LINE)
        assert bank_work(home) == [WORK]
        node = {"node": "spark-2", "file": "y.bank", "phase": "sending", **{
            key: LINE[key] for key in ("bytes", "total_bytes", "bytes_per_s", "eta_s")
        }}  # fmt: skip
        told({"phase": "stage", "nodes": [node, {**node, "phase": "done"}]})
        (work,) = bank_work(home)
        assert (work.node, work.bank, work.done_bytes) == ("spark-2", "y.bank", 5)
        told({**LINE, "what": None, "phase": "build"})
        assert [(work.node, work.bank) for work in bank_work(home)] == [("station", "build")]
    assert bank_work(home) == []


def test_what_a_killed_process_left_counts_for_nothing(home: Path) -> None:
    folder = home / "run" / FOLDER
    folder.mkdir(parents=True)
    gone = WorkFile(os.getpid(), 1 + (process_start_ticks(os.getpid()) or 0), (WORK,))
    (folder / "1.json").write_bytes(msgspec.json.encode(gone))
    (folder / "2.json").write_bytes(b"\xff nonsense")
    assert bank_work(home) == []
    with telling(home, "build", "station"):
        assert list(folder.iterdir()) == []


def test_a_home_that_takes_no_file_goes_without(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with telling(tmp_path, "verify", "station") as told:
        told(LINE)
    assert bank_work(tmp_path) == []


def test_verifying_tells_how_far_it_is_and_what_it_found(
    built: PodHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[BankWorkFrame] = []

    def looking(*arguments: Any) -> Any:
        examined = verify_bank(*arguments)
        seen.extend(bank_work(built.home))
        return examined

    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    monkeypatch.setattr(commands_check, "verify_bank", looking)
    flip(built.slice(1), built.slice(1).stat().st_size - 10)
    assert built.bank("verify").code == ExitCode.FAILED
    assert [work.kind for work in seen] == ["verify"] * 3
    assert {work.bank for work in seen} == set(built.files())
    assert max(work.found for work in seen) == 1
    last = seen[-1]
    assert last.done_bytes <= last.size_bytes == sum(map(len, built.files().values()))
    assert bank_work(built.home) == []


def test_a_change_is_made_only_from_the_state_that_was_shown(pod_home: PodHome) -> None:
    def token() -> str:
        return pod_home.bank("plan", "--no-slices").document["token"]

    before = token()
    assert token() == before
    assert pod_home.bank("build", "--if-token", before).code == ExitCode.OK
    for verb in ("build", "stage"):
        ran = pod_home.bank(verb, "--if-token", before)
        assert (ran.code, ran.out) == (ExitCode.STALE, "")
        assert "is not of the state" in ran.error["message"]
    assert not list(pod_home.banks.glob("spark-*"))
    look = pod_home.bank("stage", "--dry-run").document
    assert look["token"] == token() != before
    assert pod_home.bank("stage", "--if-token", look["token"]).code == ExitCode.OK


def test_gc_removes_only_what_its_token_showed(built: PodHome) -> None:
    in_force(built, placement_of(built, "all-hbm"))
    token = built.bank("gc", "--dry-run").document["token"]
    built.slice(1).unlink()
    ran = built.bank("gc", "--if-token", token)
    assert ran.code == ExitCode.STALE
    assert built.slice(2).exists()
    token = built.bank("gc", "--dry-run").document["token"]
    assert built.bank("gc", "--if-token", token).code == ExitCode.OK
    assert not list(built.banks.glob("*of2*"))


@pytest.mark.parametrize("verb", ["build", "stage", "gc"])
def test_one_work_at_a_time(built: PodHome, verb: str) -> None:
    in_force(built, placement_of(built, "layer-balanced"))
    with work_lock(built.home, "build", 0.0):
        ran = built.bank(verb)
        assert (ran.code, ran.out) == (ExitCode.LOCKED, "")
        assert f"k3d bank build (pid {os.getpid()})" in ran.error["message"]
        if verb != "build":  # looking waits for nobody
            assert built.bank(verb, "--dry-run").code == ExitCode.OK
    assert built.bank(verb).code == ExitCode.OK


def test_one_scrub_at_a_time(built: PodHome) -> None:
    with scrub_lock(built.home, 0.0):
        ran = built.bank("scrub")
        assert (ran.code, ran.out) == (ExitCode.LOCKED, "")
        assert built.bank("scrub", "--dry-run").code == ExitCode.OK
        assert built.bank("build").code == ExitCode.OK  # another kind of work
    assert built.bank("scrub").code == ExitCode.OK


def test_a_home_that_takes_no_lock_is_scrubbed_without(
    built: PodHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FileLock) -> None:
        raise StoreError("the lock cannot be opened: Read-only file system")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    assert built.bank("scrub", "--share", "1").document["records"] > 0
    ran = built.bank("build")
    assert ran.code == ExitCode.FAILED
    assert "writable" in ran.error["hint"]


def test_work_waits_for_other_work(built: PodHome) -> None:
    ran: list[int] = []
    with work_lock(built.home, "gc", 0.0):
        process = built.process("build", "--lock-wait", "60")
        thread = threading.Thread(target=lambda: ran.append(process.wait(60)))
        thread.start()
        thread.join(1.0)
        assert not ran
    out, err = process.communicate(timeout=60)
    thread.join()
    assert ran == [0], err
    assert json.loads(out.splitlines()[-1])["schema"] == "k3d.bank-build/1"


@pytest.mark.parametrize("wait", ["-1", "nan", "soon", "1e30"])
def test_waits_that_are_none(built: PodHome, wait: str, capsys: Any) -> None:
    with pytest.raises(SystemExit, match="2"):
        built.bank("build", "--lock-wait", wait)
    assert "is no number of seconds" in capsys.readouterr().err
