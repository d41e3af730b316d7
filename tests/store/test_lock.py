"""Locks between processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from k3d.errors import ExitCode, Locked, StoreError
from k3d.store.lock import FileLock


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, "state.db", "k3d station"):
        with pytest.raises(Locked, match=r"state.db is held by k3d station \(pid \d+\)") as caught:
            FileLock(path, "state.db", "k3ctl init").acquire()
        assert caught.value.code is ExitCode.LOCKED
        assert caught.value.retryable
    FileLock(path, "state.db", "k3ctl init").acquire()


def test_waiting_gets_it_when_the_holder_lets_go(tmp_path: Path) -> None:
    holder = FileLock(tmp_path / "lock", "it", "first")
    holder.acquire()
    threading.Timer(0.2, holder.release).start()
    with FileLock(tmp_path / "lock", "it", "second", wait_s=10):
        pass


def test_a_killed_holder_frees_it(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom k3d.store.lock import FileLock\n"
        "FileLock(Path(sys.argv[1]), 'it', 'victim').acquire()\n"
        "print('held', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lock")], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(Locked, match="victim"):
            FileLock(tmp_path / "lock", "it", "other").acquire()
        child.kill()
        child.wait()
        FileLock(tmp_path / "lock", "it", "other").acquire()


def test_a_lock_in_no_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened: No such file"):
        FileLock(tmp_path / "nowhere" / "lock", "it", "me").acquire()
