"""k3ctl report: one page that tells what happened, in text, Markdown, HTML and JSON."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from k3ctl.client.moments import local, moment
from k3d.store.requests import claimed
from k3d.store.swaps import SwapStore
from tests.ctl.conftest import K3ctl
from tests.ctl.page_reader import Reader
from tests.ctl.recorded import (
    attention,
    frame,
    record_frames,
    record_rollups,
    spark,
    writing,
)

EVIL = "<script>alert('x')</script> | **b** `c` [l](http://e) \x1b[31mred"


@pytest.fixture
def now_s() -> int:
    return int(time.time())


@pytest.fixture
def lived(home: Path, now_s: int) -> Path:
    """A home with an hour behind it: traffic, a restart, a spark that was down, a swap, a receipt,
    an alert, a request by somebody, an error in a log."""
    record_rollups(home, now_s, count=60)
    frames = []
    for second in range(0, 3_600, 10):
        at_ms = (now_s - 3_600 + second) * 1000
        restarted = second >= 1_800
        down = 600 <= second < 900
        changed: dict = {
            "interval_s": 10.0,
            "uptime_s": float(second - 1_800 if restarted else second + 5_000),
            "finished": second // 100 - (18 if restarted else 0),
            "failed": 0 if restarted else min(3, second // 300),
            "decode_tokens": 10 * (second - 1_800 if restarted else second + 5_000),
        }
        if down:
            lost = spark(2, at_ms, state="down", reason="connection refused")
            changed |= {
                "nodes": (frame(at_ms).nodes[0], lost),
                "state": "degraded",
                "reason": "spark-2 is down",
                "attention": attention("spark-2 cannot be reached"),
            }
        frames.append(frame(at_ms, **changed))
    record_frames(home, frames)
    with writing(home) as store:
        store.record_pod("embedded", "ab" * 32, {"name": "embedded"})
        store.record_placement_map(4, "d" * 64, "traced", b"{}")
        intent = store.record_intent("placement-swap", {"name": "contiguous"}, request_id="cron-7")
        store.move_intent(intent.id, "done")
        store.record_event("pod", "the Station started", node="station")
        store.record_event(
            "alert",
            EVIL,
            node="spark-2",
            detail={
                "severity": "alert",
                "subject": "spark-2",
                "raised": True,
                "command": "k3ctl logs spark-2",
            },
        )
        store.record_event("alert", "over: it is back", detail={"raised": False})
        store.record_receipt(
            "bench-decode",
            provenance="measured",
            command="k3ctl bench decode",
            figures={"ratio": 1.75, "definitions": {"ratio": 3}, "plain": {"tokens_per_s": 21.5}},
            environment={},
        )
    with claimed(home, "nightly-1", "placement swap", {"policy": "contiguous"}) as claim:
        claim.finish()
    (home / "run").mkdir(exist_ok=True)
    stamp = local(now_s - 100).replace(" ", "T")
    line = f'{{"ts": "{stamp}", "level": "error", "node": "spark-1", "message": "disk is slow"}}\n'
    (home / "run" / "spark-1.log").write_text(2 * line)
    return home


def test_the_document_tells_all_of_it(k3ctl: K3ctl, lived: Path, now_s: int) -> None:
    document = k3ctl("report", "--since", "1h", "--json").document
    assert document["schema"] == "k3ctl.report/1"
    assert (document["pod"], document["state"]) == ("embedded", "healthy")
    ran = document["ran"]
    assert ran["recorded_s"] + ran["unrecorded_s"] == pytest.approx(3_600)
    assert ran["recorded_s"] >= 3_500
    # 17 or so before the restart and 17 after it: counts begin anew with the Station.
    assert 33 <= ran["requests"]["finished"] <= 36
    assert ran["requests"]["failed"] == 3
    assert (ran["starts"], ran["ends"]) == (1, 0)
    assert 35_500 <= ran["decode_tokens"] <= 36_000
    figures = {each["name"]: each for each in document["fast"]["figures"]}
    decode = figures["decoding"]
    assert decode["least"] <= decode["p50"] <= decode["p99"] <= decode["most"]
    assert (decode["unit"], decode["provenance"]) == ("tokens/s", "measured")
    assert [tier["tier"] for tier in document["fast"]["tiers"]] == ["hbm", "rtx", "grace", "spark"]
    assert all(tier["simulated"] for tier in document["fast"]["tiers"])
    (receipt,) = document["fast"]["receipts"]
    assert receipt["figures"] == {"ratio": 1.75, "plain.tokens_per_s": 21.5}
    whats = [change["what"] for change in document["changed"]]
    assert "epoch 4 in force: traced" in whats
    assert "the Station started" in whats
    assert "k3ctl placement swap" in whats
    swap = next(c for c in document["changed"] if c["what"].startswith("swap"))
    assert swap["who"] == "request cron-7"
    assert swap["outcome"].startswith("done after")
    request = next(c for c in document["changed"] if c["what"] == "k3ctl placement swap")
    assert request["who"].startswith("request nightly-1 of ")
    wrong = document["wrong"]
    assert wrong["failed"] == 3
    down = next(each for each in wrong["unwell"] if each["node"] == "spark-2")
    assert (down["state"], down["reason"]) == ("down", "connection refused")
    assert 290 <= down["most_s"] <= 310
    sentences = {each["sentence"]: each for each in wrong["troubles"]}
    assert sentences["disk is slow"]["count"] == 2
    assert "over: it is back" not in sentences
    assert sentences[EVIL]["command"] == "k3ctl logs spark-2"
    commands = [each["command"] for each in document["next"]]
    assert commands[0] == "k3ctl logs spark-2"
    assert any(command.startswith("k3ctl replay --at '") for command in commands)


def test_the_page_fits_80_columns_and_has_its_sections(k3ctl: K3ctl, lived: Path) -> None:
    ran = k3ctl("report", "--since", "1h")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    titles = ("WHAT RAN", "HOW FAST", "WHAT WAS CHANGED", "WHAT WENT WRONG", "WHAT TO LOOK AT NEXT")
    assert [line for line in lines if line in titles] == list(titles)
    commands = [line for line in lines if line.startswith("  k3ctl ")]
    assert commands
    assert max(len(line) for line in lines if line not in commands) <= 80
    assert "\x1b" not in ran.out
    assert "measured" in ran.out
    assert "simulated tiers: hbm, rtx, grace, spark" in ran.out


def test_commands_it_names_are_k3ctls(k3ctl: K3ctl, lived: Path) -> None:
    import shlex

    for each in k3ctl("report", "--since", "1h", "--json").document["next"]:
        words = shlex.split(each["command"])
        assert words[0] == "k3ctl"
        ran = k3ctl(*words[1:], *(["--once"] if words[1] == "replay" else []))
        assert ran.code in (0, 10), (each, ran.err)


def test_a_swap_is_one_line(k3ctl: K3ctl, home: Path) -> None:
    """Whatever its rows, its events, its epochs and the record of the request that asked for it."""
    maps = "/home/me/hot.json"
    with claimed(home, "night-1", "placement swap", {"policy": maps}) as claim, writing(home) as db:
        swaps = SwapStore(db)
        db.record_placement_map(1, "d1", "layer-balanced", b"{}")
        good = swaps.record_swap({"name": maps}, request_id="night-1")
        swaps.note(f"a swap to {maps} begins", intent=good.id)
        for epoch in (2, 3):
            swaps.record_turn(good.id, epoch, f"d{epoch}", maps, b"{}", "d1")
        swaps.move(good.id, "done")
        swaps.note(f"the swap to {maps} is done", intent=good.id, epoch=3)
        bad = swaps.record_swap({"name": "contiguous"})
        swaps.note("a swap to contiguous begins", intent=bad.id)
        swaps.note("a swap goes on after a restart", intent=bad.id)
        swaps.move(bad.id, "failed")
        swaps.note("the swap to contiguous failed: spark-1 is gone", intent=bad.id)
        db.record_event("bank-build", "1 bank of pod embedded was built, 10 bytes")
        claim.finish()
    changes = k3ctl("report", "--since", "1h", "--json").document["changed"]
    told = [(each["what"], each["outcome"], each["who"]) for each in changes]
    assert told[0][0] == "epoch 1 in force: layer-balanced"
    assert told[1][0] == "swap to hot.json, epochs 2 to 3"
    assert re.fullmatch(r"done after \d+\.\d s", told[1][1])
    assert told[1][2].startswith("request night-1 of ")
    assert told[2][0] == "swap to contiguous"
    assert re.fullmatch(r"failed after \d+\.\d s: spark-1 is gone", told[2][1])
    assert told[2][2] is None
    assert told[3] == ("a swap goes on after a restart", None, f"swap {bad.id}")
    assert told[4] == ("1 bank of pod embedded was built, 10 bytes", None, None)
    assert len(told) == 5


def test_a_new_pods_day_begins_where_its_records_do(
    k3ctl: K3ctl, home: Path, now_s: int, tmp_path: Path
) -> None:
    first_s = now_s - 240
    record_frames(home, [frame(1000 * at_s) for at_s in range(first_s, now_s + 1)])
    shown = k3ctl("report").out
    assert "nothing was recorded before" in " ".join(shown.split())
    dots = [line for line in shown.splitlines() if any(0x2801 <= ord(s) < 0x2900 for s in line)]
    assert max(sum(0x2801 <= ord(sign) < 0x2900 for sign in line) for line in dots) > 40
    path = tmp_path / "young.html"
    assert k3ctl("report", "--out", str(path)).code == 0
    text = path.read_text()
    assert "nothing was recorded before" in text
    across = [float(found) for found in re.findall(r'cx="([0-9.]+)"', text)]
    assert max(across) - min(across) > 400
    since = next(
        each["command"].partition("--since ")[2].strip("'")
        for each in k3ctl("report", "--json").document["next"]
        if each["command"].startswith("k3ctl plot")
    )
    assert abs(moment(since, now_s) - first_s) <= 1


def test_the_html_page_stands_alone_and_escapes(k3ctl: K3ctl, lived: Path, tmp_path) -> None:
    path = tmp_path / "night.html"
    ran = k3ctl("report", "--since", "1h", "--out", str(path))
    assert (ran.code, ran.out) == (0, "")
    text = path.read_text()
    read = Reader()
    read.feed(text)
    assert read.open == []
    tags = [tag for tag, _ in read.tags]
    assert "script" not in tags
    assert "svg" in tags
    assert tags.count("h2") == 5
    assert any("<script>alert('x')</script>" in words for words in read.words)
    for _, attributes in read.tags:
        for name, value in attributes.items():
            assert name not in ("src", "href", "onclick", "onload")
            assert "http" not in (value or "") or name == "xmlns"
    assert "@import" not in text
    assert "url(" not in text
    assert path.stat().st_mode & 0o400


def test_markdown_makes_nothing_of_data(k3ctl: K3ctl, lived: Path, tmp_path) -> None:
    path = tmp_path / "night.md"
    assert k3ctl("report", "--since", "1h", "--out", str(path)).code == 0
    text = path.read_text()
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\\*\\*b\\*\\*" in text
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    for line in tables:
        assert line.endswith(" |")
    evil = next(line for line in tables if "alert" in line and "script" in line)
    assert len(re.findall(r"(?<!\\)\|", evil)) == 6
    assert "```text" in text


def test_a_text_file_has_no_escapes(k3ctl: K3ctl, lived: Path, tmp_path) -> None:
    path = tmp_path / "night.txt"
    document = k3ctl("report", "--since", "1h", "--out", str(path), "--json").document
    assert document["file"] == str(path)
    assert "\x1b" not in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [(["--since", "yesterday"], 2, "is no time"), (["--out", "x.pdf"], 2, "x.pdf is no .html"),
     (["--out", "/nowhere/x.md"], 2, "no directory"), (["--since", "3d", "--until", "2d"], 10,
      "the records begin")],
)  # fmt: skip
def test_reports_that_cannot_be(k3ctl: K3ctl, lived: Path, arguments, code, said) -> None:
    ran = k3ctl("report", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


def test_a_home_with_nothing_in_it(k3ctl: K3ctl, home: Path) -> None:
    ran = k3ctl("report")
    assert ran.code == 10
    assert "k3ctl pod up" in ran.err


def test_without_frames_what_is_not_known_is_no_zero(k3ctl: K3ctl, home: Path, now_s) -> None:
    record_rollups(home, now_s, count=60)
    document = k3ctl("report", "--since", "1h", "--json").document
    assert document["ran"]["requests"]["finished"] is None
    assert document["state"] is None
    shown = k3ctl("report", "--since", "1h").out
    assert "- requests finished, - failed" in shown
