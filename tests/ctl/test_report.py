"""k3ctl report: one page that tells what happened, in text, Markdown, HTML and JSON."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3ctl.cli.page import Commands, Grid, Page, Section, Words
from k3ctl.cli.page_html import page_html
from k3ctl.cli.page_markdown import code, escaped, page_markdown
from k3ctl.cli.page_text import grid_lines, page_lines
from k3ctl.client.moments import Span, local, moment
from k3ctl.client.report import build_report
from k3ctl.client.report_events import Trouble
from k3ctl.client.report_events import attention as seen_in
from k3ctl.client.report_figures import growth, unwell, weighted_quantile
from k3ctl.client.report_matters import merged
from k3d.store.frame import Attention, Frame
from k3d.store.requests import claimed
from k3d.store.swaps import SwapStore
from tests.charts.properties import property_test
from tests.ctl.conftest import K3ctl
from tests.ctl.recorded import (
    FakeRecording,
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


class Reader(HTMLParser):
    """What a browser makes of a page: its tags and its words."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "circle", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        if tag not in ("circle", "path"):
            assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.words.append(data)


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


def test_time_in_a_state_is_the_sum_of_its_frames() -> None:
    down = spark(2, 0, state="down", reason="gone")
    frames = [
        frame(10_000, interval_s=10.0),
        frame(20_000, interval_s=10.0, nodes=(down,), state="degraded"),
        frame(30_000, interval_s=10.0, nodes=(down,), state="degraded"),
        frame(40_000, interval_s=10.0),
    ]
    pod, node = unwell(frames)
    assert (pod.node, pod.state, pod.most_s) == (None, "degraded", 20.0)
    assert (node.node, node.state, node.most_s, node.reason) == ("spark-2", "down", 20.0, "gone")
    assert (node.since_ms, node.until_ms) == (10_000, 30_000)
    assert unwell([frame(1)]) == []


def test_two_incidents_are_two() -> None:
    """Of two nodes, one after the other: neither hides the other, nor the health between them."""

    def lost(number: int, at_ms: int, pid: int) -> dict:
        gone = spark(number, at_ms, state="down", reason=f"its process {pid} is gone")
        others = [spark(each, at_ms) for each in (1, 2, 3) if each != number]
        reason = f"spark-{number} is down: its process {pid} is gone"
        said = Attention(severity="alert", subject=f"spark-{number}", sentence=reason, kind="node")
        nodes = tuple(sorted((gone, *others), key=lambda node: node.name))
        return {"nodes": nodes, "state": "degraded", "reason": reason, "attention": (said,)}

    seconds = {53: lost(3, 53_000, 41), 54: lost(3, 54_000, 41), 77: lost(2, 77_000, 42)}
    seconds |= {78: lost(2, 78_000, 42), 79: lost(2, 79_000, 42)}
    frames = [frame(1_000 * at_s, **seconds.get(at_s, {})) for at_s in range(50, 90)]
    events = [
        Trouble(53_000, 53_000, "alert", "spark-3", "spark-3 is down: its process 41 is gone"),
        Trouble(77_000, 77_000, "alert", "spark-2", "spark-2 is down: its process 42 is gone"),
    ]
    told = [
        (each.subject, each.at_ms, each.until_ms, each.count)
        for each in merged([*events, *seen_in(frames)])
    ]
    assert sorted(told) == [("spark-2", 77_000, 79_000, 3), ("spark-3", 53_000, 54_000, 2)]
    stretches = {(each.node, each.since_ms): (each.most_s, each.reason) for each in unwell(frames)}
    assert stretches == {
        (None, 52_000): (2.0, "spark-3 is down: its process 41 is gone"),
        (None, 76_000): (3.0, "spark-2 is down: its process 42 is gone"),
        ("spark-3", 52_000): (2.0, "its process 41 is gone"),
        ("spark-2", 76_000): (3.0, "its process 42 is gone"),
    }


def test_a_node_that_is_down_twice_is_told_twice_and_another_pid_is_no_other_reason() -> None:
    def down(at_s: int, pid: int) -> Frame:
        gone = spark(2, 0, state="down", reason=f"its process {pid} is gone")
        return frame(1_000 * at_s, nodes=(gone,))

    frames = [down(1, 7), down(2, 8), frame(3_000), down(4, 9)]
    told = [(each.since_ms, each.most_s, each.reason) for each in unwell(frames)]
    assert told == [(0, 2.0, "its process 8 is gone"), (3_000, 1.0, "its process 9 is gone")]


def test_a_sentence_of_two_nodes_is_two_matters() -> None:
    """Unless it names the node itself: then whoever says it says the same."""
    twice = [Trouble(n, n, "warning", f"spark-{n}", f"its disk has {n} MiB left") for n in (1, 2)]
    assert len(merged(twice)) == 2
    said = "the link to spark-1 was lost 3 times"
    both = [Trouble(1, 1, "alert", "spark-1", said), Trouble(2, 2, "error", "station", said)]
    (one,) = merged(both)
    assert (one.subject, one.severity, one.at_ms, one.until_ms) == ("spark-1", "alert", 1, 2)
    other = Trouble(3, 3, "error", "station", said.replace("spark-1", "spark-12"))
    assert len(merged([*both, other])) == 2


def test_counts_begin_anew_with_the_station() -> None:
    def grown(*seen: tuple[float, int]) -> int:
        frames = [
            frame(1_000 * n, uptime_s=uptime_s, finished=finished)
            for n, (uptime_s, finished) in enumerate(seen)
        ]
        return growth(frames, lambda each: each.finished)

    assert grown((100.0, 7), (101.0, 9)) == 2  # the seven were before the span
    assert grown((0.5, 3), (1.5, 4)) == 4  # the Station started within it
    assert grown((100.0, 2), (3.0, 5), (4.0, 6)) == 6
    assert grown((100.0, 9), (3.0, 0), (4.0, 1)) == 1
    assert grown() == 0


@pytest.mark.parametrize(("nodes", "coarsest_s"), [(3, 60.0), (60, 300.0)])
def test_a_day_of_few_nodes_is_looked_at_finely(home: Path, nodes: int, coarsest_s: float) -> None:
    until_ms = 1_796_000_000_000 // 300_000 * 300_000
    sparks = tuple(spark(number, 0, sensors=None) for number in range(nodes))
    asked: list[int] = []

    class Recording(FakeRecording):
        def between(self, first_ms: int, last_ms: int, most: int) -> list[Frame]:
            asked.append(most)
            return super().between(first_ms, last_ms, most)

    recording = Recording([frame(until_ms - 1_000, nodes=sparks)])
    build_report(home, Span(until_ms / 1000 - 86_400, until_ms / 1000), recording, until_ms / 1000)
    (most,) = asked
    assert (most >= 86_400 / 60) is (coarsest_s == 60.0)


def test_one_matter_is_told_once() -> None:
    seen = Trouble(5, 90, "warning", "spark-1", "its sensors were read 90 s ago", source="frames")
    noted = Trouble(1, 1, "alert", "pod", "its sensors were read 11 s ago", command="k3ctl logs")
    other = Trouble(2, 2, "warning", "spark-1", "its link was lost")
    told = merged([seen, noted, other])
    assert [each.sentence for each in told] == [seen.sentence, other.sentence]
    first = told[0]
    assert (first.at_ms, first.until_ms, first.severity) == (1, 90, "alert")
    assert (first.subject, first.command) == ("spark-1", "k3ctl logs")


@property_test
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.1, 10)), min_size=1), st.floats(0, 1))
def test_a_quantile_splits_the_weight(values, share) -> None:
    found = weighted_quantile(values, share)
    whole = sum(weight for _, weight in values)
    assert found is not None
    below = sum(weight for value, weight in values if value < found)
    upto = sum(weight for value, weight in values if value <= found)
    assert below <= share * whole + 1e-6
    assert upto >= share * whole - 1e-6
    assert weighted_quantile([], share) is None


words = st.text(max_size=40)


@property_test
@given(words, words)
def test_no_text_breaks_a_page(one, two) -> None:
    page = Page(
        one,
        two,
        (Section(one, (Words(two), Grid((one, two), ((two, one),)), Commands(((one, two),)))),),
        two,
    )
    read = Reader()
    read.feed(page_html(page))
    assert read.open == []
    assert [tag for tag, _ in read.tags if tag in ("script", "a", "img")] == []
    table = [line for line in page_markdown(page, plain=True).splitlines() if line[:2] == "| "]
    assert len(table) == 3
    page_lines(page, 80, plain=True)


@property_test
@given(words)
def test_escaped_words_are_one_line(text) -> None:
    assert len(escaped(text).splitlines()) <= 1
    assert len(code(text).splitlines()) == 1


@property_test
@given(
    st.lists(st.tuples(st.text("abc d", max_size=9), st.text("abc d", max_size=99)), max_size=5),
    st.integers(20, 90),
)
def test_a_table_fits_and_loses_no_word(rows, width) -> None:
    grid = Grid(("NAME", "WHAT"), tuple(rows))
    lines = grid_lines(grid, width)
    assert all(len(line) <= width or " " not in line.strip() for line in lines)
    letters = "".join("".join(row) for row in rows).replace(" ", "")
    shown = "".join(lines).replace(" ", "").removeprefix("NAMEWHAT").replace(",", "")
    assert sorted(shown) == sorted(letters)
