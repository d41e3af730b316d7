"""k3ctl bank: what a k3d child says is passed on, and the child never outlives the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3d.errors import ExitCode
from k3d.store.state import StateReader
from tests.ctl.conftest import K3ctl

FakeK3d = Callable[..., Path]

BANK = {
    "node": "spark-1", "file": "m-0.1of2.ab.bank", "state": "missing", "records": 7,
    "record_bytes": 10, "size_bytes": 70, "slice": 1, "slices": 2, "format": "nvfp4",
    "recast_from": "mxfp4", "kept": 3, "written": 4, "ready_before": False,
    "discarded": "it was begun from other sources", "bytes": 70, "written_bytes": 40,
    "hash_s": 0.25,
}  # fmt: skip
PLAN = {
    "schema": "s", "folder": "/b", "free_bytes": 10**9, "token": "abcdef0123456789",
    "banks": [BANK],
}  # fmt: skip
BUILD = {
    "schema": "s", "provenance": "measured", "pod": "embedded", "model_digest": "m" * 64,
    "map": "p" * 64, "folder": "/b", "time_s": 1.0, "banks": [BANK],
}  # fmt: skip
STAGE = {
    "schema": "s", "provenance": "measured", "pod": "embedded", "map": "p" * 64,
    "dry_run": False, "token": "abcdef0123456789", "time_s": 1.0,
}  # fmt: skip
DAMAGE = {
    "node": "spark-1", "file": "/b/x.bank", "part": "record", "layer": 4, "expert": 11,
    "reason": "does not match its hash", "repaired": False, "unrepaired_because": None,
}  # fmt: skip
NODE = {
    "node": "spark-1", "file": "x.bank", "size_bytes": 70, "records": 7, "lacking": 2, "kept": 5,
    "repaired": 0, "payload_bytes": 20, "wire_bytes": 25, "pour_s": 0.1, "send_s": 0.5,
    "hash_s": 0.1,
    "discarded": None, "error": None,
}  # fmt: skip
LOST = {
    **NODE, "node": "spark-2", "records": None, "lacking": None, "kept": None, "wire_bytes": None,
    "send_s": None, "payload_bytes": 0,
    "error": {"message": "nothing receives banks for spark-2", "hint": "start it there"},
}  # fmt: skip
LISTED = {
    **BANK, "model": "m", "map": "abcdef0123", "age_s": 1.0, "state": "sound",
    "verified_age_s": 400_000.0, "reason": None,
}  # fmt: skip


VERBS = ("plan", "build", "stage", "verify", "scrub", "ls", "gc")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(k3ctl: K3ctl, verb: str) -> None:
    ran = k3ctl("bank", verb, "--help")
    assert ran.code == ExitCode.OK
    assert max(map(len, ran.out.splitlines())) <= 80
    assert k3ctl("bank", verb, "--no-such-flag").code == ExitCode.USAGE


@pytest.fixture
def fake_k3d(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeK3d:
    """A k3d that notes its arguments, says what it is given and ends with a code."""

    def make(code: int, *lines: dict[str, Any] | str, words: str = "") -> Path:
        said = "".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines)
        noted, program = tmp_path / "arguments", tmp_path / "k3d.py"
        program.write_text(
            "import json, sys\n"
            f"open({str(noted)!r}, 'w').write(json.dumps(sys.argv[1:]))\n"
            f"sys.stdout.write({said!r}); sys.stderr.write({words!r}); sys.exit({code})\n"
        )
        monkeypatch.setenv("K3_DAEMON", f"{sys.executable} {program}")
        return noted

    return make


def test_flags_go_to_k3d_as_they_are(k3ctl: K3ctl, fake_k3d: FakeK3d, home: Path) -> None:
    noted = fake_k3d(0, {**STAGE, "dry_run": True, "nodes": []})
    ran = k3ctl(
        "bank", "stage", "embedded-8", "--node", "spark-1", "--node", "spark-2", "--rate", "2G",
        "--to", "spark-1=h:1", "--dry-run", "--json",
    )  # fmt: skip
    assert ran.code == ExitCode.OK
    assert ran.document["schema"] == "k3ctl.bank-stage/1"
    arguments = json.loads(noted.read_text())
    assert arguments[:4] == ["bank", "stage", "--json", "--progress"]
    assert arguments[4:8] == ["--home", str(home), "--pod", "embedded-8"]
    rest = " ".join(arguments[8:])
    for words in ("--node spark-1 --node spark-2", "--rate 2G", "--to spark-1=h:1", "--dry-run"):
        assert words in rest
    assert "--placement" not in rest


def test_a_dry_run_of_build_only_plans(k3ctl: K3ctl, fake_k3d: FakeK3d) -> None:
    noted = fake_k3d(0, PLAN)
    assert k3ctl("bank", "build", "--dry-run", "--json").document["schema"] == "k3ctl.bank-plan/1"
    assert json.loads(noted.read_text())[1] == "plan"
    out = k3ctl("bank", "plan").out
    assert "recast to NVFP4" in out
    assert "token abcdef0123456789" in out


def test_progress_is_lines_of_jsonl(k3ctl: K3ctl, fake_k3d: FakeK3d) -> None:
    progress = {
        "type": "progress", "phase": "build", "what": None, "bytes": 5, "total_bytes": 70,
        "bytes_per_s": 2.5, "eta_s": 26.0,
    }  # fmt: skip
    fake_k3d(0, progress, BUILD)
    lines = [json.loads(line) for line in k3ctl("bank", "build", "--jsonl").out.splitlines()]
    assert [line["type"] for line in lines] == ["progress", "done"]
    assert lines[0] == progress
    assert lines[1]["schema"] == "k3ctl.bank-build/1"
    text = k3ctl("bank", "build").out
    assert "begun from other sources" in text


@pytest.mark.parametrize(
    ("code", "nodes", "sentence"),
    [
        (ExitCode.PARTIAL, [NODE, LOST], "spark-2 did not get their slices"),
        (ExitCode.UNREACHABLE, [LOST], "nothing receives banks for spark-2"),
    ],
)
def test_nodes_that_failed(
    k3ctl: K3ctl, fake_k3d: FakeK3d, code: int, nodes: list[dict[str, Any]], sentence: str
) -> None:
    fake_k3d(code, {**STAGE, "nodes": nodes})
    ran = k3ctl("bank", "stage", "--json")
    assert (ran.code, ran.error["code"]) == (code, code)
    assert sentence in ran.error["message"]
    text = k3ctl("bank", "stage")
    assert "spark-2: nothing receives" in text.out
    assert max(map(len, text.out.splitlines())) <= 80


def test_damage_is_exit_code_1_and_named(k3ctl: K3ctl, fake_k3d: FakeK3d) -> None:
    document = {"schema": "s", "banks": [BANK], "damages": [DAMAGE] * 30, "time_s": 1.0}
    fake_k3d(1, document)
    ran = k3ctl("bank", "verify", "--json")
    assert ran.code == ExitCode.FAILED
    assert len(ran.document["damages"]) == 30
    assert "spark-1 /b/x.bank layer 4 expert 11" in ran.error["message"]
    assert "--repair" in ran.error["hint"]
    text = k3ctl("bank", "verify").out
    assert "layer 4 expert 11" in text
    assert "and 10 more" in text


def test_what_scrub_ls_and_gc_show(k3ctl: K3ctl, fake_k3d: FakeK3d) -> None:
    scrubbed = {
        "schema": "s", "dry_run": False, "due_bytes": 5, "total_bytes": 70, "bytes": 6,
        "rounds": 1, "time_s": 1.0, "damages": [{**DAMAGE, "repaired": True}],
    }  # fmt: skip
    fake_k3d(0, scrubbed)
    assert "hash: repaired" in " ".join(k3ctl("bank", "scrub").out.split())
    fake_k3d(0, {"schema": "s", "folder": "/b", "banks": [LISTED]})
    out = k3ctl("bank", "ls").out
    assert "abcdef01" in out
    assert "5 days" in out
    fake_k3d(0, {"schema": "s", "folder": "/b", "banks": []})
    assert k3ctl("bank", "ls").out == "no banks in /b\n"
    file = {"node": "station", "file": "x.bank", "bytes": 70, "remove": True, "removed": False,
            "reason": "no map in force is ab"}  # fmt: skip
    fake_k3d(0, {"schema": "s", "dry_run": True, "token": "0" * 16, "files": [file]})
    assert "70 B would be freed; token 0000" in k3ctl("bank", "gc", "--dry-run").out
    ran = k3ctl("bank", "gc")
    assert ran.code == ExitCode.REFUSED
    assert "removes a file of 70 B that no map in force needs" in ran.err
    assert "--yes" in ran.err


@pytest.mark.parametrize(
    ("code", "words", "sentence"),
    [
        (11, '{"type": "error", "code": 11, "message": "held", "hint": "wait"}\n', "held"),
        (2, "usage: k3d\nk3d bank stage: error: argument --rate: no rate\n", "no rate"),
        (1, "Traceback...\nKeyError: 'x'\n", "KeyError"),
        (1, "", "it said nothing"),
    ],
)
def test_errors_keep_code_and_sentence(
    k3ctl: K3ctl, fake_k3d: FakeK3d, code: int, words: str, sentence: str
) -> None:
    fake_k3d(code, words=words)
    ran = k3ctl("bank", "stage", "--json")
    assert (ran.code, ran.error["code"], ran.out) == (code, code, "")
    assert sentence in ran.error["message"]


def test_nonsense_on_stdout_is_refused(k3ctl: K3ctl, fake_k3d: FakeK3d) -> None:
    fake_k3d(0, "not JSON")
    assert "not JSON" in k3ctl("bank", "ls", "--json").error["message"]


def test_without_a_k3d(k3ctl: K3ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K3_DAEMON", "/nowhere/k3d")
    assert "k3d cannot be started" in k3ctl("bank", "ls", "--json").error["message"]


def test_columns_for_scripts(k3ctl: K3ctl, fake_k3d: FakeK3d) -> None:
    fake_k3d(0, PLAN)
    assert k3ctl("bank", "plan", "-H", "-p", "-o", "node,size,slice").out == "spark-1\t70\t1/2\n"
    fake_k3d(0, {"schema": "s", "folder": "/b", "banks": [LISTED]})
    assert k3ctl("bank", "ls", "-H", "-o", "model,verified,state").out == "m\t5 days\tsound\n"
    document = {"schema": "s", "banks": [BANK], "damages": [DAMAGE], "time_s": 1.0}
    fake_k3d(1, document)
    assert k3ctl("bank", "verify", "-H", "-o", "layer,expert,path").out == "4\t11\t/b/x.bank\n"
    ran = k3ctl("bank", "ls", "-o", "colour")
    assert (ran.code, "no column 'colour'" in ran.err) == (ExitCode.USAGE, True)


def test_one_effect_for_each_request_id(k3ctl: K3ctl, fake_k3d: FakeK3d) -> None:
    noted = fake_k3d(0, BUILD)
    first = k3ctl("bank", "build", "--request-id", "night-1", "--if-token", "t", "--json")
    assert first.code == ExitCode.OK
    assert "--if-token t" in " ".join(json.loads(noted.read_text()))
    noted.unlink()
    again = k3ctl("bank", "build", "--request-id", "night-1", "--if-token", "t", "--json")
    assert again.code == ExitCode.OK
    assert not noted.exists()  # k3d was not asked
    assert again.document["request"]["repeated"] is True
    assert again.document["banks"] == first.document["banks"]
    other = k3ctl("bank", "build", "--no-whole", "--request-id", "night-1", "--json")
    assert other.code == ExitCode.REFUSED


def test_what_was_built_and_sent_is_kept_as_receipts_and_events(
    k3ctl: K3ctl, fake_k3d: FakeK3d, home: Path
) -> None:
    assert k3ctl("init").code == ExitCode.OK
    fake_k3d(0, BUILD)
    assert k3ctl("bank", "build").code == ExitCode.OK
    fake_k3d(ExitCode.PARTIAL, {**STAGE, "nodes": [NODE, LOST]})
    assert k3ctl("bank", "stage").code == ExitCode.PARTIAL
    document = {"schema": "s", "banks": [BANK], "damages": [DAMAGE], "time_s": 1.0}
    fake_k3d(1, document)
    assert k3ctl("bank", "verify").code == ExitCode.FAILED
    fake_k3d(0, {**BUILD, "banks": [{**BANK, "ready_before": True, "written_bytes": 0}]})
    assert k3ctl("bank", "build").code == ExitCode.OK  # nothing to do: nothing to keep
    with StateReader.open(home) as state:
        built, staged = state.receipts()
        events = [event.message for event in state.events()]
    assert (built.kind, built.provenance) == ("bank-build", "measured")
    assert (built.figures["bytes"], built.figures["bytes_per_s"]) == (40, 40.0)
    assert built.figures["hash_share"] == 0.25
    assert (staged.kind, staged.figures["bytes"]) == ("bank-stage", 20)
    assert staged.figures["by_node"]["spark-1"]["bytes_per_s"] == 40.0
    assert staged.figures["hash_share"] == 0.2
    assert "k3ctl bank stage" in staged.command
    assert events[-3:] == [
        "1 bank of pod embedded was built, 70 bytes",
        "20 bytes of slices were sent to 1 node; no slices came to spark-2",
        "1 damage found in banks, 1 not repaired; the first: spark-1 /b/x.bank: does not match "
        "its hash",
    ]


def test_progress_is_words_for_a_person(k3ctl: K3ctl, fake_k3d: FakeK3d) -> None:
    verify = {
        "type": "progress", "phase": "verify", "what": "spark-1/x.bank", "bytes": 35,
        "total_bytes": 70, "bytes_per_s": 2048.0, "eta_s": 26.0, "found": 2,
    }  # fmt: skip
    fake_k3d(0, verify, {"schema": "s", "banks": [BANK], "damages": [], "time_s": 1.0})
    ran = k3ctl("bank", "verify")
    assert ran.err == "50 %, verify spark-1/x.bank, 2 damaged, 2.0 KiB/s\n"
    sending = {"node": "spark-1", "phase": "sending", "bytes": 30, "total_bytes": 100,
               "bytes_per_s": 1024.0, "eta_s": 1.0}  # fmt: skip
    done = {**sending, "phase": "done", "bytes": 100}
    fake_k3d(0, {"type": "progress", "phase": "stage", "nodes": [sending, done]},
             {**STAGE, "nodes": [NODE]})  # fmt: skip
    ran = k3ctl("bank", "stage")
    assert "65 %, stage: 1 of 2 nodes have theirs, 1.0 KiB/s" in ran.err
    assert k3ctl("bank", "stage", "-q").err == ""
