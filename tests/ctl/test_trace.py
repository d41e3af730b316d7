"""k3ctl trace: import, show, diff; and without numpy."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from k3d.errors import ExitCode
from tests.ctl.conftest import K3ctl

HELDOUT = str(Path(__file__).resolve().parents[2] / "banks" / "k3-mini" / "heldout.npz")


def test_held_out_streams_imported_shown_and_compared(k3ctl: K3ctl, tmp_path: Path) -> None:
    parts = [str(tmp_path / part) for part in ("streams", "prompts")]
    for path, tokens in zip(parts, (8192, 653), strict=True):
        written = k3ctl("trace", "import", HELDOUT, path, "--part", Path(path).name, "--json")
        assert written.document["schema"] == "k3ctl.trace-import/1"
        assert (written.document["tokens"], written.document["experts"]) == (tokens, 64)
    shown = k3ctl("trace", "show", parts[0], "--json").document
    assert (shown["schema"], shown["provenance"]) == ("k3ctl.trace-show/1", "measured")
    assert shown["hottest_share"]["100%"] == pytest.approx(1.0)
    assert len(shown["layers"]) == 12
    found = k3ctl("trace", "diff", *parts, "--hot", "154", "--json").document
    assert found["shared"] < 0.35
    for arguments in (["show", parts[0], "--layers"], ["diff", *parts]):
        lines = k3ctl("trace", *arguments).out.splitlines()
        assert max(len(line) for line in lines if "/" not in line) <= 80


def test_plots_are_ascii_where_nothing_else_can_be_shown(
    k3ctl: K3ctl, k3ctl_process: K3ctl, tmp_path: Path
) -> None:
    trace = str(tmp_path / "t")
    k3ctl("trace", "import", HELDOUT, trace)
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    plain = k3ctl_process("trace", "show", trace, env=env).out
    assert plain.isascii()
    assert "####" in plain


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["show", "/nowhere/t"], ExitCode.NOT_FOUND, "no trace /nowhere/t"),
        (["show", HELDOUT], ExitCode.USAGE, "is not a trace"),
        (["diff", HELDOUT, HELDOUT], ExitCode.USAGE, "is not a trace"),
        (["import", "/nowhere/x", "/nowhere/y"], ExitCode.NOT_FOUND, "no file /nowhere/x"),
        (["import", HELDOUT, "/nowhere/y"], ExitCode.FAILED, "cannot be written"),
        (["import", HELDOUT, "o", "--experts", "9"], ExitCode.USAGE, "which has 9"),
        (["import", HELDOUT, "o", "--model", "/nowhere"], ExitCode.NOT_FOUND, "no model at"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    k3ctl: K3ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: list[str], code: int, sentence: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    ran = k3ctl("trace", *arguments, "--json")
    assert (ran.code, ran.out) == (code, "")
    assert sentence in ran.error["message"]


def test_without_numpy_it_says_what_to_install(
    k3ctl: K3ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    ran = k3ctl("trace", "show", "t", "--json")
    assert ran.code == ExitCode.FAILED
    assert "numpy" in ran.error["message"]
    assert "pip install" in ran.error["hint"]
