"""k3ctl init."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from k3d.errors import ExitCode
from k3d.store.home import read_secret, secret_path
from k3d.store.lock import FileLock
from k3d.store.state import StateReader, StateStore
from tests.ctl.conftest import K3CTL, K3ctl


def test_init_makes_a_home_and_repeats(k3ctl: K3ctl, tmp_path: Path) -> None:
    new = tmp_path / "deep" / "new"
    ran = k3ctl("init", "--home", str(new), "--json")
    assert ran.code == 0
    assert ran.document["schema"] == "k3ctl.init/1"
    assert ran.document["made"] == ["pod.secret", "state.db"]
    secret = read_secret(new)
    StateReader.open(new).close()
    again = k3ctl("init", "--home", str(new), "--json").document
    assert (again["made"], again["kept"]) == ([], ["pod.secret", "state.db"])
    assert read_secret(new) == secret


def test_dry_run_makes_nothing(k3ctl: K3ctl, tmp_path: Path) -> None:
    ran = k3ctl("init", "--home", str(tmp_path / "new"), "--dry-run")
    assert "would make state.db" in ran.out
    assert not (tmp_path / "new").exists()


def test_a_home_whose_station_runs_is_left_alone(k3ctl: K3ctl, home: Path) -> None:
    with StateStore.open_as_writer(home, holder="k3d station"):
        assert k3ctl("init").code == 0


def test_a_writer_in_the_way_of_a_new_home_is_named(
    k3ctl: K3ctl, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k3ctl.client.home_setup.MOMENT_S", 0.1)
    with FileLock(home / "state.db.lock", "state.db", "k3ctl pod up"):
        ran = k3ctl("init", "--json")
    assert ran.code == ExitCode.LOCKED
    assert ran.error["retryable"] is True
    assert "k3ctl pod up (pid" in ran.error["message"]


def test_what_is_there_and_cannot_be_used_is_said(k3ctl: K3ctl, home: Path) -> None:
    secret_path(home).chmod(0o644)
    assert k3ctl("init").code == ExitCode.REFUSED
    assert k3ctl("init", "--dry-run").code == ExitCode.REFUSED
    secret_path(home).chmod(0o600)
    (home / "state.db").write_text("no database" * 1000)
    ran = k3ctl("init")
    assert ran.code == ExitCode.FAILED
    assert "is not a SQLite database" in ran.err


def test_many_at_once_agree(home: Path) -> None:
    secret_path(home).unlink()
    children = [subprocess.Popen([*K3CTL, "init"], stdout=subprocess.DEVNULL) for _ in range(6)]
    assert [child.wait() for child in children] == [0] * 6
    assert len(read_secret(home)) == 32


def test_another_init_of_a_new_home_is_waited_for(k3ctl: K3ctl, home: Path) -> None:
    lock = FileLock(home / "state.db.lock", "state.db", "k3ctl init")
    lock.acquire()
    done = threading.Timer(0.2, lock.release)
    done.start()
    ran = k3ctl("init", "--json")
    done.join()
    assert ran.code == 0
    assert ran.document["made"] == ["state.db"]
