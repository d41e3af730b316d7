"""k3ctl check."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3ctl.client.check_cases import Answered, Variant, first_difference, share_out, variants
from k3d.errors import ExitCode
from tests.ctl.conftest import K3ctl
from tests.ctl.fake_daemons import FakeDaemon, write_script


def _events(ids: list[int], *, lead: float = 1.5) -> list[dict]:
    tokens = [
        {
            "type": "token",
            "id": i,
            "text": "",
            "logprob": -0.1,
            "top": [[i, -0.1], [7, -0.1 - lead]],
        }
        for i in ids
    ]
    done = {"type": "done", "finish_reason": "length", "usage": {"prompt_tokens": 9,
            "completion_tokens": len(ids)}, "timing": {}, "cached_tokens": 64, "rounds": 2,
            "drafted": 4, "accepted": 3, "acceptance_length": 2.5}  # fmt: skip
    return [*tokens, done]


def test_pass_says_what_was_compared(k3ctl: K3ctl, station: FakeDaemon, home: Path) -> None:
    write_script(home, "station", chat=_events([4, 5, 6]))
    ran = k3ctl("check", "--prompts", "2", "--no-pods")
    assert ran.code == 0
    assert "PASS  " in ran.out
    assert "every one as plain decoding" in " ".join(ran.out.split())
    assert ["auto", "1", "cold", "2", "6", "6", "128"] in [
        line.split() for line in ran.out.splitlines()
    ]
    rows = {request["draft_rows"] for request in station.requests}
    assert rows == {None, *range(1, 9)}
    assert {request.get("seed") for request in station.requests} == {None, 1000, 1001}
    (receipt,) = station.receipts
    assert (receipt["kind"], receipt["provenance"]) == ("check", "measured")
    assert receipt["figures"]["result"] == "pass"
    assert receipt["command"] == "k3ctl check --prompts 2 --tokens 24 --no-pods"


def test_the_first_token_that_differs_is_shown(
    k3ctl: K3ctl, station: FakeDaemon, home: Path
) -> None:
    write_script(
        home, "station", chat=_events([4, 5, 6]),
        chat_by_rows={"3": _events([4, 8, 6], lead=0.25)},
    )  # fmt: skip
    ran = k3ctl("check", "--prompts", "2", "--greedy", "--json")
    assert ran.code == ExitCode.DIFFERS
    found = ran.document["difference"]
    assert (found["case"], found["index"]) == ("question 1, greedy", 1)
    assert (found["expected"], found["found"]) == (5, 8)
    assert found["expected_margin"] == pytest.approx(1.5)
    assert found["found_margin"] == pytest.approx(0.25)
    assert found["where"].startswith("3 rows, 1 lane")
    assert ran.error["name"] == "DIFFERS"
    text = k3ctl("check", "--prompts", "2", "--greedy").out
    assert ["plain", "5", "1.500000"] in [line.split() for line in text.splitlines()]
    assert "DIFFERS" in text


@pytest.mark.usefixtures("fake_k3d", "station")
def test_pods_of_its_own_are_compared_too(k3ctl: K3ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = k3ctl("check", "--prompts", "1", "--pod", "embedded", "--json")
    small = next(way for way in ran.document["ways"] if way["name"] == "small")
    assert (small["answers"], small["preempted"]) == (3, 2)
    assert "not compared: tcp: no ports" in k3ctl("check", "--pod", "embedded").out
    monkeypatch.setenv("FAKE_DIFFERENCE", "1")
    ran = k3ctl("check", "--prompts", "1", "--pod", "embedded", "--json")
    assert ran.code == ExitCode.DIFFERS
    assert ran.document["difference"]["where"] == "small"


def test_without_a_description_the_running_pod_alone_is_checked(
    k3ctl: K3ctl, station: FakeDaemon
) -> None:
    ran = k3ctl("check", "--prompts", "1", "--greedy", "--json")
    assert (ran.code, ran.document["result"]) == (0, "pass")
    assert "--pod" in ran.document["pods_skipped"]


def test_no_pod_and_made_up_answers_are_refused(
    k3ctl: K3ctl, home: Path, request: pytest.FixtureRequest
) -> None:
    ran = k3ctl("check")
    assert ran.code == ExitCode.UNREACHABLE
    assert "k3ctl pod up" in ran.err
    request.getfixturevalue("station")
    write_script(home, "station", engine={"synthetic_acceptance": 3.0})
    assert k3ctl("check").code == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("expected", "found", "index"),
    [((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1, 2), (1,), 1), ((1,), (1, 2), 1)],
)
def test_where_answers_part(
    expected: tuple[int, ...], found: tuple[int, ...], index: int | None
) -> None:
    difference = first_difference("a", "b", Answered(expected), Answered(found))
    assert (difference.index if difference else None) == index


@pytest.mark.parametrize("count", [1, 3, 16, 400])
def test_alone_and_in_lanes_every_case_is_run_again(count: int) -> None:
    ways = variants(full=False)
    shares = share_out(range(count), ways, full=False)
    for lanes in (1, 8):
        covered = {
            index for way, share in zip(ways, shares, strict=True) if way.lanes == lanes
            for index in share
        }  # fmt: skip
        assert covered == set(range(count))
    assert len(shares) == len(ways)


def test_a_full_check_leaves_nothing_out() -> None:
    ways = variants(full=True)
    assert len(set(ways)) == len(ways)
    for rows in (*range(1, 9), "auto"):
        for lanes in (1, 8):
            for cache in ("cold", "warm"):
                assert Variant(rows, lanes, cache) in ways  # type: ignore[arg-type]
    assert share_out(range(3), ways, full=True) == [[0, 1, 2]] * len(ways)
