"""k3ctl logs and bench."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from k3ctl.client.daemon_log import last_sentence, parse_line
from k3d.errors import ExitCode
from k3d.store.state import StateReader
from tests.ctl.conftest import K3CTL, K3ctl


def _write(home: Path, node: str, *lines: object) -> Path:
    path = home / "run" / f"{node}.log"
    with path.open("a") as file:
        for line in lines:
            file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    return path


def _line(ts: object, message: str, level: str = "info", **fields: object) -> dict:
    return {"ts": ts, "level": level, "message": message, **fields}


def _messages(k3ctl: K3ctl, *arguments: str) -> list[str]:
    return [entry["message"] for entry in k3ctl("logs", "--json", *arguments).document["entries"]]


def test_lines_are_merged_by_time(k3ctl: K3ctl, home: Path) -> None:
    _write(home, "station", _line(1, "one"), _line(3.5, "three"))
    _write(home, "spark-1", _line("1970-01-01T00:00:02Z", "two"), _line(4, "four", "error"))
    assert _messages(k3ctl) == ["one", "two", "three", "four"]
    assert _messages(k3ctl, "-n", "2") == ["three", "four"]
    assert _messages(k3ctl, "-n", "0") == []
    assert _messages(k3ctl, "--node", "spark-1") == ["two", "four"]
    assert _messages(k3ctl, "spark-1") == ["two", "four"]
    assert _messages(k3ctl, "spark-1", "station", "spark-1") == ["one", "two", "three", "four"]
    assert _messages(k3ctl, "--level", "warning") == ["four"]
    text = k3ctl("logs").out.splitlines()
    assert "spark-1" in text[1]
    assert "two" in text[1]
    lines = [json.loads(line) for line in k3ctl("logs", "--jsonl").out.splitlines()]
    assert {line["type"] for line in lines} == {"log"}
    assert lines[0]["ts"] == "1970-01-01T00:00:01.000+00:00"


def test_what_is_not_json_is_kept_where_it_stands(k3ctl: K3ctl, home: Path) -> None:
    _write(home, "station", _line(1, "one"), "Traceback (most recent call last):", _line(9, "nine"))
    _write(home, "spark-1", _line(5, "five"))
    assert _messages(k3ctl)[1].startswith("Traceback")
    assert len(_messages(k3ctl, "--level", "error")) == 1


@pytest.mark.parametrize("line", ["{", "[]", "7", '{"ts": 1}', "\x00\xff", '{"message"'])
def test_any_line_is_a_line(line: str) -> None:
    entry = parse_line(line, "station", 5.0)
    assert (entry.ts_s, entry.message, entry.level) == (5.0, line, "error")


def test_no_logs_and_no_such_node(k3ctl: K3ctl, home: Path) -> None:
    assert k3ctl("logs").code == ExitCode.NOT_FOUND
    _write(home, "station", _line(1, "one"))
    ran = k3ctl("logs", "--node", "spark-9")
    assert ran.code == ExitCode.NOT_FOUND
    assert "there are logs of station" in ran.err
    assert k3ctl("logs", "--follow", "--json").code == ExitCode.USAGE


def test_following_shows_what_comes_and_a_log_made_anew(home: Path) -> None:
    path = _write(home, "station", _line(1, "old"))
    with subprocess.Popen(
        [*K3CTL, "logs", "--follow", "--jsonl"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["message"] == "old"
        _write(home, "station", _line(2, "new"))
        assert json.loads(child.stdout.readline())["message"] == "new"
        for number, again in enumerate(("again", "again, and much longer than the one before")):
            path.rename(path.with_name(f"station.log.{number}"))
            _write(home, "station", _line(3, again))
            assert json.loads(child.stdout.readline())["message"] == again
        child.terminate()
    assert child.returncode == ExitCode.TERMINATED


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", None),
        ("k3d spark: port 80 is in use\n  use another\n", "port 80 is in use"),
        ('{"level": "error", "message": "bad"}\n{"level": "info", "message": "bye"}\n', "bad"),
        ('{"level": "info", "message": "bye"}\n', "bye"),
        ("Traceback\n  File\nValueError: x\n", "ValueError: x"),
    ],
)
def test_why_a_daemon_ended(text: str, sentence: str | None) -> None:
    assert last_sentence(text) == sentence


@pytest.mark.usefixtures("fake_k3d")
def test_bench_shows_what_k3d_measured(k3ctl: K3ctl) -> None:
    lines = [line.split() for line in k3ctl("bench", "pod").out.splitlines()]
    assert ["inproc", "20.0", "0.62"] in lines
    assert ["spark", "shm", "1.50", "ms", "2.50", "ms"] in lines
    document = k3ctl("bench", "pod", "--json").document
    assert document["tokens_per_s"]["shm"] == 12.5


@pytest.mark.usefixtures("fake_k3d")
def test_bench_keeps_a_receipt(k3ctl: K3ctl, home: Path) -> None:
    kept = k3ctl("bench", "pod", "--json", "--tokens", "8").document["receipt"]
    with StateReader.open(home) as reader:
        (receipt,) = reader.receipts(kind="bench-pod")
    assert (receipt.id, receipt.provenance) == (kept, "measured")
    assert "--tokens 8" in receipt.command
    assert receipt.environment == {"cores": 2}


def test_bench_passes_a_failure_on(
    k3ctl: K3ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "k3d"
    program.write_text("#!/bin/sh\necho 'k3d bench: no model here' >&2\nexit 10\n")
    program.chmod(0o755)
    monkeypatch.setenv("K3_DAEMON", str(program))
    ran = k3ctl("bench", "pod")
    assert ran.code == ExitCode.NOT_FOUND
    assert "no model here" in ran.err
    monkeypatch.setenv("K3_DAEMON", str(tmp_path / "nothing"))
    assert k3ctl("bench", "pod").code == ExitCode.FAILED
