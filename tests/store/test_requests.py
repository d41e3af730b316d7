"""One effect for each request id."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from k3d.errors import ConfigError, Locked, Refused, StoreError
from k3d.store.requests import KEPT_S, claimed

WAIT_S = 30.0


def _carry_out(home: Path, request_id: str, arguments: object = None, verb: str = "pod up") -> bool:
    """Whether this call had the effect."""
    with claimed(home, request_id, verb, arguments, wait_s=WAIT_S) as claim:
        if claim.before is not None:
            return False
        claim.finish(["k3ctl.pod-up/1", {"pod": "small"}])
        return True


def test_the_first_has_the_effect_and_the_rest_get_its_answer(home: Path) -> None:
    assert _carry_out(home, "a")
    with claimed(home, "a", "pod up", None) as claim:
        assert claim.before is not None
        assert claim.before.pid == os.getpid()
        assert "k3ctl pod up (pid" in claim.before.who
        assert claim.before.done_ms is not None
        assert claim.before.document == ["k3ctl.pod-up/1", {"pod": "small"}]
    assert _carry_out(home, "b")


def test_of_many_threads_one_has_the_effect(home: Path) -> None:
    had: list[bool] = []
    threads = [
        threading.Thread(target=lambda: had.append(_carry_out(home, "a"))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(had) == [False] * 15 + [True]


@pytest.mark.parametrize(
    ("verb", "arguments", "words"),
    [("pod up", {"chunk": 9}, "with other arguments"), ("pod down", {}, "for another command")],
)
def test_an_id_is_of_one_request(home: Path, verb: str, arguments: dict, words: str) -> None:
    assert _carry_out(home, "a", {})
    with pytest.raises(Refused, match=words), claimed(home, "a", verb, arguments):
        raise AssertionError


def test_other_arguments_are_refused_while_the_first_is_at_work(home: Path) -> None:
    with claimed(home, "a", "pod up", 1), pytest.raises(Refused), claimed(home, "a", "pod up", 2):
        raise AssertionError


def test_who_waits_too_long_is_told_for_whom(home: Path) -> None:
    heard: list[str] = []
    with (
        claimed(home, "a", "pod up", 1),
        pytest.raises(Locked, match=f"pid {os.getpid()} of"),
        claimed(home, "a", "pod up", 1, wait_s=0.1, waits=heard.append),
    ):
        raise AssertionError
    assert len(heard) == 1
    assert "waiting for it" in heard[0]


def test_a_request_that_failed_is_free(home: Path) -> None:
    with pytest.raises(ZeroDivisionError), claimed(home, "a", "pod up", 1):
        raise ZeroDivisionError
    with claimed(home, "a", "pod up", 1) as claim:
        assert claim.before is None
        assert claim.left is not None
        assert claim.left.done_ms is None


def test_a_claim_whose_process_was_killed_is_taken_over(home: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from k3d.store.requests import claimed\n"
        "with claimed(Path(sys.argv[1]), 'a', 'pod up', 1):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(Locked), claimed(home, "a", "pod up", 1, wait_s=0):
            raise AssertionError
        other.kill()
        with claimed(home, "a", "pod up", 1, wait_s=WAIT_S) as claim:
            assert claim.before is None
            assert claim.left is not None
            assert claim.left.pid == other.pid


@pytest.mark.parametrize("request_id", ["", "../a", ".a", "a/b", "a" * 101, "a\n", "é"])
def test_an_id_that_is_none(home: Path, request_id: str) -> None:
    with pytest.raises(ConfigError, match="no request id"), claimed(home, request_id, "x", 1):
        raise AssertionError


def test_old_requests_are_forgotten_but_not_those_at_work(home: Path) -> None:
    folder = home / "run" / "requests"
    old = time.time() - KEPT_S - 60
    assert _carry_out(home, "done")
    with claimed(home, "held", "pod up", 1):
        for path in folder.iterdir():
            os.utime(path, (old, old))
        assert _carry_out(home, "new")
        assert {path.name for path in folder.iterdir()} == {
            "held.json", "held.lock", "new.json", "new.lock",
        }  # fmt: skip
    assert _carry_out(home, "done")


def test_a_damaged_record_is_one_sentence(home: Path) -> None:
    assert _carry_out(home, "a")
    (home / "run" / "requests" / "a.json").write_bytes(b"{")
    with pytest.raises(StoreError, match=r"a\.json cannot be read"), claimed(home, "a", "x", 1):
        raise AssertionError


def test_a_large_answer_is_not_kept(home: Path) -> None:
    with claimed(home, "a", "x", 1) as claim:
        claim.finish("x" * (2 << 20))
    with claimed(home, "a", "x", 1) as claim:
        assert claim.before is not None
        assert claim.before.document is None
