"""What k3ctl imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "triton", "textual", "httpx", "sqlite_utils", "pysqlite3", "psutil", "numpy")


def _modules_after(*arguments: str) -> set[str]:
    program = (
        "import sys\nfrom k3ctl.cli.main import run\n"
        f"run({list(arguments)!r})\n"
        "print('MODULES', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], [], ["help", "exit-codes"]])
def test_version_and_help_import_nothing_heavy(arguments: list[str]) -> None:
    assert not _modules_after(*arguments) & set(HEAVY)


@pytest.mark.parametrize(
    "arguments",
    [["pod", "up", "--help"], ["chat", "--help"], ["pod", "status"], ["health"],
     ["pod", "up", "station-8-sparks", "--dry-run"], ["bank", "ledger", "station-8-sparks"],
     ["bank", "census"], ["placement", "plan", "--help"], ["trace", "show", "--help"]],
)  # fmt: skip
def test_no_verb_imports_torch_or_textual(arguments: list[str]) -> None:
    assert not _modules_after(*arguments) & {"torch", "triton", "textual", "numpy"}
