"""status --json before click: the same bytes and codes as the whole program, and few imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from k3ctl.cli.start import cold_status
from k3d.store.home import run_file_path, secret_path
from tests.ctl.conftest import K3CTL, K3ctl
from tests.ctl.fake_daemons import FakeDaemon, write_script

FORMS = [
    ["status", "--json"],
    ["pod", "status", "--json"],
    ["--json", "status"],
    ["-q", "status", "--json"],
]


def _cold(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | None, str]:
    capsys.readouterr()
    code = cold_status(arguments)
    return code, capsys.readouterr().out


@pytest.mark.parametrize("arguments", FORMS[:2], ids=" ".join)
@pytest.mark.parametrize("state", ["healthy", "degraded"])
def test_the_answer_is_that_of_the_whole_program(
    k3ctl: K3ctl, station: FakeDaemon, capsys: pytest.CaptureFixture[str], home: Path,
    arguments: list[str], state: str,
) -> None:  # fmt: skip
    write_script(home, "station", status={"state": state, "reason": "é"})
    code, out = _cold(capsys, *arguments)
    ran = k3ctl(*arguments)
    assert (code, out) == (ran.code, ran.out)
    assert json.loads(out)["state"] == state


@pytest.mark.parametrize("arguments", FORMS, ids=" ".join)
def test_every_place_of_the_flags(
    station: FakeDaemon, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert _cold(capsys, *arguments)[0] == 0


def test_a_home_that_is_named(
    k3ctl: K3ctl, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for flag in (["--home", str(tmp_path / "none")], [f"--home={tmp_path / 'none'}"]):
        arguments = ["status", *flag, "--json"]
        code, out = _cold(capsys, *arguments)
        ran = k3ctl(*arguments)
        assert (code, out) == (3, ran.out) == (ran.code, ran.out)


@pytest.mark.parametrize(
    "arguments",
    [[], ["status"], ["status", "--json", "--no-such"], ["status", "x", "--json"],
     ["health", "--json"], ["status", "--json", "--home"], ["status", "--jsonl"]],
    ids=" ".join,
)  # fmt: skip
def test_anything_else_is_the_whole_program_s(
    station: FakeDaemon, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert _cold(capsys, *arguments) == (None, "")


def test_trouble_is_the_whole_program_s(
    station: FakeDaemon, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    secret_path(home).chmod(0o644)
    assert _cold(capsys, "status", "--json") == (None, "")
    secret_path(home).chmod(0o600)
    for script in ({"status_status": 500}, {"status": {"schema": "k3d.status/9"}}):
        write_script(home, "station", **script)
        assert _cold(capsys, "status", "--json") == (None, "")
    write_script(home, "station")
    for text in ("{", "[]", '{"role": "station"}', '{"role": "station", "pid": "x"}'):
        run_file_path(home, "another").write_text(text)
        assert _cold(capsys, "status", "--json") == (None, "")


def test_little_is_imported(home: Path, station: FakeDaemon) -> None:
    program = (
        "import sys\nfrom k3ctl.cli.start import cold_status\n"
        "code = cold_status(['status', '--json'])\n"
        "print(code, *sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    code, *modules = done.stderr.split()
    assert code == "0"
    assert not {"click", "msgspec", "httpx", "http.client", "inspect", "email"} & set(modules)


READERS = (["status"], ["health"], ["health", "station"], ["placement", "status"], ["lanes"])


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_what_only_reads_imports_no_http_library(
    home: Path, station: FakeDaemon, arguments: list[str]
) -> None:
    placement = {"schema": "k3d.placement/1", "tiers": [], "swap": None, "last": None}
    lanes = {"schema": "k3d.lanes/1", "lanes": []}
    write_script(home, "station", answers={"/placement": placement, "/lanes": lanes})
    program = (
        "import sys\nfrom k3ctl.cli.main import run\n"
        f"code = run({[*arguments, '--json']!r})\n"
        "print(code, *sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    code, *modules = done.stderr.splitlines()[-1].split()
    assert code == "0", done.stderr
    assert not {"httpx", "rich", "http.client", "encodings.idna"} & set(modules)


def test_a_reader_that_went_away_is_no_error(home: Path, station: FakeDaemon) -> None:
    done = subprocess.run(
        ["bash", "-c", '"$@" | true; echo "${PIPESTATUS[0]}"', "bash", *K3CTL, "status", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
