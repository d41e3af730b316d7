"""Homes, the secret and run files."""

from __future__ import annotations

import hmac
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from k3d.errors import ConfigError, ExitCode, K3Error, NotFound, Refused, StoreError
from k3d.store.home import (
    RunFile,
    checkout,
    create_secret,
    http_token,
    make_home,
    read_run_file,
    read_run_files,
    read_secret,
    resolve_home,
    run_file_path,
    secret_path,
)
from k3d.store.run_file import process_start_ticks


def test_a_flag_wins_over_the_variable_and_that_over_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K3_HOME", str(tmp_path / "variable"))
    assert resolve_home(str(tmp_path / "flag")) == tmp_path / "flag"
    assert resolve_home(None) == tmp_path / "variable"
    assert resolve_home("") == tmp_path / "variable"
    monkeypatch.setenv("K3_HOME", "")
    assert resolve_home(None) == checkout()


def test_without_a_checkout_the_state_directory_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("K3_HOME")
    monkeypatch.setattr("k3d.store.paths.checkout", lambda: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert resolve_home() == tmp_path / "k3"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert resolve_home() == tmp_path / "me" / ".local" / "state" / "k3"


def test_a_relative_home_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_home("here") == tmp_path / "here"


def test_a_home_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made: Not a directory"):
        make_home(tmp_path / "file" / "home")


def test_the_secret_is_made_once_and_private(home: Path) -> None:
    first = read_secret(home)
    assert create_secret(home) is False
    assert read_secret(home) == first
    assert len(first) == 32
    assert secret_path(home).stat().st_mode & 0o777 == 0o600


def test_the_token_depends_on_the_secret_and_does_not_show_it() -> None:
    secret = bytes(range(32))
    assert http_token(secret) == hmac.digest(secret, b"k3-http-1", "sha256").hex()
    assert http_token(secret) != http_token(bytes(32))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_a_secret_that_others_can_touch_is_refused(home: Path, mode: int) -> None:
    secret_path(home).chmod(mode)
    with pytest.raises(Refused, match="can be read by others") as caught:
        read_secret(home)
    assert caught.value.code is ExitCode.REFUSED
    assert "chmod 600" in str(caught.value)


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "ab" * 31, "ab" * 33, "é" * 64])
def test_a_secret_of_another_form_is_refused(home: Path, text: str) -> None:
    secret_path(home).write_text(text)
    with pytest.raises(ConfigError, match="64 hex characters"):
        read_secret(home)


def test_a_secret_behind_a_link_or_in_a_directory_is_refused(home: Path) -> None:
    real = secret_path(home).rename(home / "elsewhere")
    secret_path(home).symlink_to(real)
    with pytest.raises(Refused):
        read_secret(home)
    secret_path(home).unlink()
    secret_path(home).mkdir()
    with pytest.raises(Refused):
        read_secret(home)


def test_no_secret_says_how_to_make_one(home: Path) -> None:
    secret_path(home).unlink()
    with pytest.raises(NotFound, match="k3ctl init"):
        read_secret(home)


def _run_file(name: str = "spark-1", role: str = "spark") -> RunFile:
    return RunFile.of_this_process(
        name=name, role=role, pod="embedded", http_host="127.0.0.1", http_port=4711
    )


def test_a_run_file_comes_back_as_it_was_written(home: Path) -> None:
    run = _run_file()
    run.write(home)
    assert read_run_file(home, "spark-1") == run
    assert run.alive()
    assert run.url == "http://127.0.0.1:4711"
    run.remove(home)
    assert read_run_file(home, "spark-1") is None


def test_run_files_come_station_first_then_by_number(home: Path) -> None:
    for name in ("spark-10", "spark-9", "spark-1"):
        _run_file(name).write(home)
    _run_file("the-station", "station").write(home)
    found = [run.name for run in read_run_files(home).found]
    assert found == ["the-station", "spark-1", "spark-9", "spark-10"]


def test_another_process_with_the_same_pid_is_not_alive() -> None:
    assert not msgspec.structs.replace(_run_file(), start_time_ticks=1).alive()


def test_a_process_that_has_ended_is_not_alive_even_before_it_is_reaped() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process_start_ticks(child.pid) is None
    child.wait()
    assert process_start_ticks(child.pid) is None


def test_a_newer_run_file_is_not_removed_by_the_older_daemon(home: Path) -> None:
    older = msgspec.structs.replace(_run_file(), pid=1)
    _run_file().write(home)
    older.remove(home)
    assert read_run_file(home, "spark-1") is not None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_run_file_is_one_sentence(home: Path, text: bytes) -> None:
    run_file_path(home, "spark-1").write_bytes(text)
    with pytest.raises(K3Error, match=r"spark-1\.json cannot be read"):
        read_run_file(home, "spark-1")


def test_a_damaged_run_file_hides_no_other(home: Path) -> None:
    _run_file("station", "station").write(home)
    run_file_path(home, "spark-1").write_text("{")
    run_file_path(home, "spark-2").mkdir()
    runs = read_run_files(home)
    assert runs.station is not None
    assert [run.name for run in runs.found] == ["station"]
    assert set(runs.damaged) == {"spark-1", "spark-2"}
