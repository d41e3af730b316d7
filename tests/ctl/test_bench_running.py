"""k3ctl bench decode, lanes, prompt and agentic, against a fake Station."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from k3ctl.cli.plot_text import plot
from k3ctl.client.answer_figures import figures_of, quantile
from k3ctl.client.bench_agentic import frontier
from k3ctl.client.engine_counts import fit_line
from k3ctl.client.timed_answer import TimedAnswer
from k3d.errors import ExitCode
from tests.ctl.conftest import K3CTL, K3ctl
from tests.ctl.fake_daemons import FakeDaemon, write_script

DONE = {"type": "done", "finish_reason": "length", "timing": {}, "cached_tokens": 5,
        "usage": {"prompt_tokens": 10, "completion_tokens": 3}, "rounds": 2, "drafted": 4,
        "accepted": 3, "acceptance_length": 2.5}  # fmt: skip


def test_decode_compares_sides_and_keeps_a_receipt(k3ctl: K3ctl, station: FakeDaemon) -> None:
    ran = k3ctl("bench", "decode", "--prompts", "2", "--rounds", "2", "--tokens", "8", "--json")
    document = ran.document
    assert document["schema"] == "k3ctl.bench-decode/1"
    assert set(document["tokens_per_s_by_round"]) == {"plain", "drafted"}
    assert document["acceptance_by_position"][0]["share"] == 0.75
    costs = document["pass"]
    assert [point["pass_ms"] for point in costs["points"]] == [17.0] * 8  # 20 ms less 3
    assert costs["engine_line"] == {
        "measured": True, "fixed_ms": 10.0, "row_ms": 2.0, "draft_ms": 3.0
    }  # fmt: skip
    assert "tpot_s" in document["definitions"]
    asked = [r["draft_rows"] for r in station.requests if "messages" in r]
    assert asked == [1, None, None, 1, None, 1, 1, None]  # sides take turns in going first
    assert {r["draft_rows"] for r in station.requests if "prompt_ids" in r} == set(range(1, 9))
    (receipt,) = station.receipts
    assert (receipt["kind"], receipt["provenance"]) == ("bench-decode", "measured")
    assert "--prompts 2" in receipt["command"]
    assert receipt["environment"]["pod"] == "embedded"
    assert document["receipt"] == "r1"


def test_a_bench_of_wrong_tokens_is_refused(k3ctl: K3ctl, station: FakeDaemon, home: Path) -> None:
    wrong = [{"type": "token", "id": 9, "text": "x"}, DONE]
    write_script(home, "station", chat_by_rows={"1": wrong})
    ran = k3ctl("bench", "decode", "--prompts", "1", "--rounds", "1")
    assert ran.code == ExitCode.FAILED
    assert "different tokens" in ran.err
    assert "k3ctl check" in ran.err
    assert station.receipts == []


def test_without_a_drafter_there_is_one_side(k3ctl: K3ctl, station: FakeDaemon, home: Path) -> None:
    write_script(home, "station", engine={"draft_block": None})
    document = k3ctl("bench", "decode", "--rounds", "1", "--json").document
    assert set(document["tokens_per_s"]) == {"plain"}
    assert document["ratio"] is None
    assert k3ctl("bench", "decode", "--rounds", "1").code == 0


def test_made_up_acceptance_is_called_so(k3ctl: K3ctl, station: FakeDaemon, home: Path) -> None:
    write_script(home, "station", engine={"synthetic_acceptance": 3.5})
    ran = k3ctl("bench", "lanes", "--lanes", "1", "--json")
    assert (ran.document["provenance"], ran.document["synthetic_acceptance"]) == ("simulated", 3.5)
    assert station.receipts[0]["provenance"] == "simulated"
    assert "SYNTHETIC ACCEPTANCE of 3.5" in k3ctl("bench", "lanes", "--lanes", "1").out
    decode = k3ctl("bench", "decode", "--rounds", "1", "--json").document
    assert set(decode["tokens_per_s"]) == {"drafted"}  # no request is decoded plainly there
    assert decode["pass"]["points"] == []
    assert k3ctl("bench", "decode", "--rounds", "1").code == 0


def test_lanes_ask_so_many_at_once(k3ctl: K3ctl, station: FakeDaemon, home: Path) -> None:
    write_script(home, "station", chat=[{"type": "token", "id": 1, "text": ""}, DONE])
    document = k3ctl("bench", "lanes", "--lanes", "4,1,4", "--tokens", "3", "--json").document
    points = [(p["lanes"], p["decoding"], p["answers"]) for p in document["points"]]
    assert points == [(1, "plain", 1), (1, "drafted", 1), (4, "plain", 4), (4, "drafted", 4)]
    assert all(r["min_tokens"] == r["max_tokens"] == 3 for r in station.requests)
    ran = k3ctl("bench", "lanes", "--lanes", "9")
    assert ran.code == ExitCode.USAGE
    assert "8 lanes" in ran.err


@pytest.mark.parametrize("value", ["0", "1,", "x", "9" * 5000, "1,-2", ""])
def test_lists_of_numbers_that_are_none(k3ctl: K3ctl, station: FakeDaemon, value: str) -> None:
    assert k3ctl("bench", "lanes", "--lanes", value).code == ExitCode.USAGE


def test_prompts_are_asked_cold_and_warm(k3ctl: K3ctl, station: FakeDaemon, home: Path) -> None:
    write_script(home, "station", chat=[{"type": "token", "id": 1, "text": ""}, DONE])
    document = k3ctl("bench", "prompt", "--lengths", "8,700", "--rounds", "2", "--json").document
    points = [(p["prompt_tokens"], p["cache"]) for p in document["points"]]
    assert points == [(8, "cold"), (8, "warm"), (700, "cold"), (700, "warm")]
    assert {len(r["prompt_ids"]) for r in station.requests} == {8, 700}
    salts = [r["cache_salt"] for r in station.requests]
    assert salts[0] == salts[1]
    assert len(set(salts)) == 4
    assert k3ctl("bench", "prompt", "--lengths", "2048").code == ExitCode.USAGE


def test_conversations_grow_by_what_the_model_wrote(
    k3ctl: K3ctl, station: FakeDaemon, home: Path
) -> None:
    write_script(home, "station", chat=[{"type": "token", "id": 77, "text": ""}, DONE])
    flags = ["--users", "1", "--turns", "3", "--history", "20", "--turn-tokens", "4"]
    document = k3ctl("bench", "agentic", *flags, "--answer-tokens", "2", "--json").document
    points = [(p["cache"], p["decoding"]) for p in document["points"]]
    assert points == [(True, "plain"), (True, "drafted"), (False, "plain"), (False, "drafted")]
    first, second, third = station.requests[:3]
    assert [len(r["prompt_ids"]) for r in (first, second, third)] == [24, 29, 34]
    assert second["prompt_ids"][:25] == [*first["prompt_ids"], 77]
    assert len({r["cache_salt"] for r in station.requests[:6]}) == 2
    assert len({r["cache_salt"] for r in station.requests[6:]}) == 6
    assert document["workload"]["longest"] == 38
    assert k3ctl("bench", "agentic", "--turns", "30").code == ExitCode.USAGE


@pytest.mark.parametrize("what", ["decode", "lanes", "prompt", "agentic"])
def test_a_table_and_no_plot_in_a_pipe(k3ctl: K3ctl, station: FakeDaemon, what: str) -> None:
    few = {"lanes": ["--lanes", "1,2"], "agentic": ["--users", "1", "--turns", "2"]}
    ran = k3ctl("bench", what, *few.get(what, []))
    assert ran.code == 0
    assert "measured through /chat of the running Station" in ran.out
    assert "receipt r1" in " ".join(ran.out.split())
    assert "└" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    assert k3ctl("bench", what, *few.get(what, []), "-q").err == ""


def test_no_pod_to_measure(k3ctl: K3ctl) -> None:
    for what in ("decode", "lanes", "prompt", "agentic"):
        ran = k3ctl("bench", what)
        assert ran.code == ExitCode.UNREACHABLE
        assert "k3ctl pod up" in ran.err


def test_an_error_in_one_lane_ends_the_bench(k3ctl: K3ctl, station: FakeDaemon, home: Path) -> None:
    lost = {"type": "error", "code": 3, "name": "UNREACHABLE", "node": "spark-2",
            "message": "spark-2 was lost", "hint": None, "retryable": True}  # fmt: skip
    write_script(home, "station", chat=[{"type": "token", "id": 1, "text": ""}, lost])
    for what, flags in (("lanes", ["--lanes", "4"]), ("agentic", ["--users", "2"])):
        ran = k3ctl("bench", what, *flags)
        assert ran.code == ExitCode.UNREACHABLE
        assert "spark-2" in ran.err


@pytest.mark.parametrize(
    ("locale", "term", "corner"),
    [("C.UTF-8", "xterm", "└"), ("C", "xterm", "+---"), ("C.UTF-8", "dumb", "+---")],
)
def test_a_plot_on_a_terminal(station: FakeDaemon, locale: str, term: str, corner: str) -> None:
    controller, inner = pty.openpty()
    with subprocess.Popen(
        [*K3CTL, "bench", "decode", "-q", "--rounds", "1"],
        stdin=subprocess.DEVNULL, stdout=inner, stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": term, "LC_ALL": locale},
    ) as child:  # fmt: skip
        os.close(inner)
        shown = b""
        while True:
            try:
                piece = os.read(controller, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
    os.close(controller)
    assert child.returncode == 0
    text = shown.decode()
    assert corner in text
    assert "ms a pass" in text
    if corner.isascii():
        assert text.isascii()


def _answer(ids: int, first_s: float, last_s: float, sent_s: float = 0.0) -> TimedAnswer:
    none = (None,) * ids
    return TimedAnswer(tuple(range(ids)), none, none, sent_s, first_s, last_s, DONE)


def test_figures_follow_their_definitions() -> None:
    figures = figures_of([_answer(5, 1.0, 3.0), _answer(9, 1.0, 3.0, sent_s=1.0)])
    assert figures["ttft_s"]["p50"] == 1.0
    assert figures["tpot_s"]["p50"] == pytest.approx((0.5 + 0.25) / 2)
    assert figures["tokens_per_s_user"] == 3.0  # of 2 and 4
    assert figures["wall_s"] == 4.0
    assert figures["tokens_per_s_total"] == 3.5
    assert figures["acceptance_length"] == 2.5
    assert figures["cached_share"] == 0.5
    one = figures_of([_answer(1, 1.0, 1.0)])
    assert (one["tokens_per_s_user"], one["tpot_s"]["p50"]) == (None, None)
    assert json.dumps(figures_of([]))


def test_quantiles_and_lines() -> None:
    assert quantile([], 0.5) is None
    assert quantile([4.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([0.0, 10.0], 0.95) == pytest.approx(9.5)
    fit = fit_line([(r, 38 + 4.4 * r) for r in range(1, 9)])
    assert fit is not None
    assert (fit["fixed"], fit["slope"]) == (pytest.approx(38), pytest.approx(4.4))
    assert fit["worst_error"] == pytest.approx(0, abs=1e-9)
    assert fit_line([]) is None
    assert fit_line([(2, 5.0), (2, 6.0)]) is None


def test_the_frontier_are_points_that_none_beats() -> None:
    speeds = [(10, 10), (5, 20), (5, 10), (10, 10), (4, 19), (None, None)]
    points = [{"tokens_per_s_user": a, "tokens_per_s_total": b} for a, b in speeds]
    assert frontier(points) == [0, 1, 3]


@pytest.mark.parametrize("points", [[], [(0.0, 0.0)], [(float("nan"), 1.0)]])
def test_a_plot_of_nothing(points: list[tuple[float, float]]) -> None:
    assert plot({"a": points}, "x", "y") == []


def test_a_plot_puts_points_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K3_ASCII", "1")
    lines = plot({"a": [(0, 0), (10, 10)], "b": [(10, 0)]}, "rows", "ms")
    assert lines[1].endswith("*")
    assert lines[12].split("|")[1][0] == "*"
    assert lines[12].endswith("o")
    assert "10 rows" in lines[14]
