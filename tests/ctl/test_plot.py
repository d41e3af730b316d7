"""k3ctl plot: what was recorded, in the terminal, as JSON, as points and as pictures."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path

import pytest

from k3ctl.cli.plot import KINDS
from k3ctl.client.histories import HISTORIES
from tests.ctl.conftest import K3ctl
from tests.ctl.recorded import (
    TIERS,
    frame,
    hours,
    record_frames,
    record_rollups,
    spark,
    station,
    writing,
)


@pytest.fixture
def now_s() -> int:
    return int(time.time())


@pytest.fixture
def recorded(home: Path, now_s: int) -> Path:
    """A home that recorded the last two hours, with a map an hour ago."""
    record_rollups(home, now_s, count=120)
    record_frames(home, hours(now_s * 1000, 2.0, step_ms=180_000))
    with writing(home) as store:
        store.record_placement_map(3, "d" * 64, "traced", b"{}")
        with store.transaction() as connection:
            at_ms = (now_s - 3_600) * 1000
            connection.execute("UPDATE placement_map SET ts_ms = ?", (at_ms,))
    return home


def test_every_kind_has_a_history() -> None:
    assert tuple(HISTORIES) == KINDS


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_each_kind_is_drawn_within_80_columns(
    k3ctl: K3ctl, recorded: Path, monkeypatch, what: str, ascii_only: bool
) -> None:
    if ascii_only:
        monkeypatch.setenv("LC_ALL", "C")
    ran = k3ctl("plot", what, "--since", "2h")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"embedded: {what}, 20")
    assert "epoch 3, traced" in ran.out
    assert "simulated" in ran.out
    if ascii_only:
        assert ran.out.isascii()
    else:
        assert any(0x2800 < ord(sign) < 0x2900 for sign in ran.out)


def test_the_document_has_units_provenance_and_gaps(k3ctl: K3ctl, home: Path, now_s) -> None:
    frames = hours(now_s * 1000, 2.0)
    quiet = now_s * 1000 - 3_600_000
    record_frames(home, [each for each in frames if abs(each.at_ms - quiet) > 600_000])
    document = k3ctl("plot", "latency", "--since", "2h", "--json").document
    assert document["schema"] == "k3ctl.plot/1"
    assert (document["what"], document["pod"], document["bucket_s"]) == (
        "latency",
        "embedded",
        None,
    )
    assert document["until_ms"] - document["since_ms"] == 7_200_000
    charts = {chart["name"]: chart for chart in document["charts"]}
    assert set(charts) == {"token", "hop_p50", "hop_p99"}
    assert [series["name"] for series in charts["hop_p50"]["series"]] == list(TIERS)
    for chart in charts.values():
        for series in chart["series"]:
            assert series["unit"] == "us"
            assert series["provenance"] == "measured"
            gaps = [at for at, value in series["points"] if value is None]
            assert len(gaps) == 1
            assert abs(gaps[0] - quiet) < 60_000
    points = charts["hop_p50"]["series"][0]["points"]
    assert all(document["since_ms"] <= at <= document["until_ms"] for at, _ in points)
    assert {value for _, value in points} == {295.0, None}


def test_a_home_of_before_frames_has_its_roll_ups(k3ctl: K3ctl, home: Path, now_s) -> None:
    record_rollups(home, now_s, count=120)
    document = k3ctl("plot", "latency", "--since", "2h", "--json").document
    assert document["bucket_s"] == 60
    charts = {chart["name"]: chart for chart in document["charts"]}
    points = charts["hop_p50"]["series"][0]["points"]
    missing = [at for at, value in points[3:-3] if value is None]
    assert missing
    assert all(abs(at - (now_s - 3_600) * 1000) < 15 * 60_000 for at in missing)
    assert all(200 < value < 400 for _, value in points if value is not None)
    worst = max(value for _, value in charts["hop_p99"]["series"][3]["points"] if value)
    assert 4_500 < worst < 5_500


def test_idle_seconds_are_zero_and_missing_ones_a_gap(k3ctl: K3ctl, home: Path, now_s) -> None:
    """A lane decodes every other second; for twenty seconds there are no frames."""
    first_s, frames = now_s - 120, []
    for number in range(121):
        busy = {"decode_tokens_per_s": 40.0 if number % 2 else None, "prompt_tokens_per_s": None}
        frames.append(frame((first_s + number) * 1000, **busy))
    record_frames(home, [*frames[:50], *frames[71:]])
    document = k3ctl("plot", "tokens", "--since", "2m", "--json").document
    assert document["bucket_s"] == 2
    throughput = document["charts"][0]
    assert (throughput["name"], throughput["unit"]) == ("tokens", "tokens/s")
    decode = next(line for line in throughput["series"] if line["name"] == "decode")
    values = [value for _, value in decode["points"][2:-2]]
    assert {value for value in values if value is not None} <= {20.0, 40.0, 0.0}
    assert values.count(20.0) > 30
    gap_s = [at / 1000 - first_s for at, value in decode["points"] if value is None]
    assert [at for at in gap_s if 52 < at < 69]
    assert not [at for at in gap_s if 3 < at < 48 or 73 < at < 117]
    prompt = next(line for line in throughput["series"] if line["name"] == "prompt")
    assert {value for _, value in prompt["points"]} <= {0.0, None}


def test_tokens_of_a_home_of_before_frames(k3ctl: K3ctl, home: Path, now_s) -> None:
    record_rollups(home, now_s, count=120)
    document = k3ctl("plot", "tokens", "--since", "2h", "--json").document
    values = [value for _, value in document["charts"][0]["series"][0]["points"]]
    assert None in values
    assert 0.0 not in values
    written = sum(value for value in values if value is not None) * document["bucket_s"]
    assert 40_000 < written < 54_000  # 108 buckets of 400 tokens, give or take a wave


def test_one_node_and_one_tier(k3ctl: K3ctl, recorded: Path) -> None:
    chart = k3ctl("plot", "latency", "--node", "spark-2", "--json").document["charts"][0]
    assert chart["title"] == "hops of spark-2"
    p50 = next(line for line in chart["series"] if line["name"] == "hop p50")
    assert {value for _, value in p50["points"]} == {3_042.0}
    chart = k3ctl("plot", "latency", "--tier", "rtx", "--json").document["charts"][0]
    assert [line["name"] for line in chart["series"]] == ["p50", "p99"]
    shares = k3ctl("plot", "placement", "--tier", "rtx", "--json").document["charts"][0]
    assert shares["unit"] == "% of those chosen"
    values = {round(value, 6) for _, value in shares["series"][0]["points"]}
    assert values == {10.0}
    sensors = k3ctl("plot", "sensors", "--node", "station", "--json").document["charts"]
    names = [line["name"] for line in sensors[0]["series"]]
    assert names == ["station", "0 GB300"]
    assert sensors[0]["series"][0]["provenance"] == "simulated"


def test_a_sensor_that_is_not_there_has_a_reason_and_no_figure(
    k3ctl: K3ctl, recorded: Path
) -> None:
    document = k3ctl("plot", "sensors", "--json").document
    power = document["charts"][0]
    assert [line["name"] for line in power["series"]] == ["station"]
    assert power["missing"] == {"spark-1": "no sensor", "spark-2": "no sensor"}
    shown = k3ctl("plot", "sensors").out
    assert "no power of spark-1, spark-2: no sensor" in shown


def test_a_pod_of_many_nodes_shows_the_largest(k3ctl: K3ctl, home: Path, now_s) -> None:
    def crowd(at_ms: int):
        sparks = [spark(n, at_ms, sensors=station(at_ms + n * 99_000).sensors) for n in range(40)]
        return frame(at_ms, nodes=(station(at_ms), *sparks))

    record_frames(home, [crowd(now_s * 1000 - 60_000 * n) for n in reversed(range(30))])
    shown = k3ctl("plot", "sensors", "--since", "1h").out
    assert "power: the 7 largest of 41; --node shows one" in shown
    assert max(map(len, shown.splitlines())) <= 80
    document = k3ctl("plot", "sensors", "--since", "1h", "--json").document
    assert len(document["charts"][0]["series"]) == 41


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["latency", "--since", "soon"], 2, "'soon' is no time"),
        (["latency", "--since", "1h", "--until", "2h"], 2, "is not before --until 2h"),
        (["heat"], 2, "'heat' is not one of"),
        ([], 2, "missing argument"),
        (["tokens", "--node", "spark-1"], 2, "the whole pod's"),
        (["placement", "--node", "spark-1"], 2, "not one node's"),
        (["sensors", "--tier", "hbm"], 2, "not of tiers"),
        (["latency", "--tier", "hbm", "--node", "station"], 2, "give one of them"),
        (["latency", "--node", "spark-9"], 10, "no node 'spark-9'"),
        (["placement", "--tier", "hbn"], 10, "no tier 'hbn'"),
        (["latency", "--until", "3d", "--since", "4d"], 10, "the records begin 20"),
        (["latency", "--out", "x.gif"], 2, "x.gif is neither a .png nor a .svg"),
        (["latency", "--out", "/nowhere/x.png"], 2, "there is no directory /nowhere"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    k3ctl: K3ctl, recorded: Path, arguments, code, said
) -> None:
    ran = k3ctl("plot", *arguments)
    assert ran.code == code
    assert ran.out == ""
    assert said in ran.err
    assert len(ran.err.splitlines()) <= 2
    as_json = k3ctl("plot", *arguments, "--json")
    assert as_json.code == code
    assert as_json.error["code"] == code


@pytest.mark.parametrize("what", KINDS)
def test_a_home_that_recorded_nothing(k3ctl: K3ctl, home: Path, what: str) -> None:
    ran = k3ctl("plot", what)
    assert ran.code == 10
    assert "k3ctl pod up" in ran.err
    assert not (home / "telemetry.db").exists()


def test_points_for_scripts(k3ctl: K3ctl, home: Path, now_s: int) -> None:
    record_rollups(home, now_s, count=120)
    ran = k3ctl("plot", "latency", "--tier", "hbm", "-H", "-p", "-o", "at,series,value,unit")
    rows = [line.split("\t") for line in ran.out.splitlines()]
    document = k3ctl("plot", "latency", "--tier", "hbm", "--json").document
    points = document["charts"][0]["series"][0]["points"]
    assert {row[3] for row in rows} == {"us"}
    assert {row[1] for row in rows} == {"p50", "p99"}
    known = {str(value) if value is None else f"{value:.9g}" for _, value in points}
    assert {row[2] for row in rows if row[1] == "p50"} <= known | {"-"}
    assert "-" in {row[2] for row in rows}


@pytest.fixture
def young(home: Path, now_s: int) -> Path:
    """A home whose first record is four minutes old."""
    record_frames(home, hours(now_s * 1000, 240 / 3600, step_ms=1_000))
    return home


@pytest.mark.parametrize("what", KINDS)
def test_the_axis_begins_where_the_history_does(k3ctl: K3ctl, young: Path, now_s, what) -> None:
    document = k3ctl("plot", what, "--json").document
    assert document["until_ms"] - document["since_ms"] == 6 * 3_600_000
    assert abs(document["begins_ms"] / 1000 - (now_s - 240)) <= 2
    known = [
        (at - document["begins_ms"]) / (document["until_ms"] - document["begins_ms"])
        for at, value in document["charts"][0]["series"][0]["points"]
        if value is not None
    ]
    # A chart has 90 points, or fewer of a width that is round: 2.5 times as wide at most.
    assert max(after - before for before, after in itertools.pairwise(known)) < 2.6 / 90
    assert min(known) < 0.05
    assert max(known) > 0.95
    lines = k3ctl("plot", what).out.splitlines()
    assert "; nothing was recorded before" in " ".join(" ".join(lines[:2]).split())


def test_the_axis_is_what_was_asked_for_where_there_is_history(
    k3ctl: K3ctl, young: Path, now_s: int
) -> None:
    document = k3ctl("plot", "tokens", "--since", "2m", "--json").document
    assert document["begins_ms"] == document["since_ms"]
    assert "nothing was recorded before" not in k3ctl("plot", "tokens", "--since", "2m").out


def test_a_picture_begins_where_the_history_does(k3ctl: K3ctl, young: Path, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "young.svg"
    assert k3ctl("plot", "latency", "--out", str(path)).code == 0
    assert "nothing was recorded before" in path.read_text()


@pytest.mark.parametrize("form", ["png", "svg"])
def test_a_picture_is_written_whole(k3ctl: K3ctl, recorded: Path, tmp_path, form: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"night.{form}"
    ran = k3ctl("plot", "tokens", "--since", "2h", "--out", str(path))
    assert (ran.code, ran.out) == (0, "")
    assert str(path) in ran.err
    assert path.read_bytes().startswith(b"\x89PNG" if form == "png" else b"<?xml")
    assert [each.name for each in tmp_path.glob("*night*")] == [path.name]
    document = k3ctl("plot", "tokens", "--out", str(path), "--json").document
    assert document["file"] == str(path)


def test_drawing_in_the_terminal_needs_no_matplotlib(k3ctl_process: K3ctl, recorded: Path) -> None:
    program = (
        "import sys; from k3ctl.cli.main import run; code = run(['plot', 'tokens']);"
        "assert code == 0, code; assert not {'matplotlib', 'numpy', 'httpx', 'textual'} & "
        "set(sys.modules)"
    )
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "K3_HOME": str(recorded)},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_json_is_one_document(k3ctl: K3ctl, recorded: Path) -> None:
    ran = k3ctl("plot", "placement", "--json")
    assert json.loads(ran.out)["what"] == "placement"
    assert ran.out.count("\n") == 1
