"""The manual pages: made from what the code says now, complete, and well formed."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from k3ctl.cli.help import ENVIRONMENT
from k3ctl.cli.main import VERBS
from k3d.errors import ExitCode, HealthCode
from man.typeset.__main__ import stale_pages
from man.typeset.commands import Command
from man.typeset.pages import ROOT, k3ctl_commands, k3d_commands
from man.typeset.source import SourceError, read_source
from tests.manual.page_lint import complaints

PAGES = sorted(ROOT.glob("man[0-9]/*"))
NAMES = {f"{path.stem}({path.suffix[1:]})" for path in PAGES}
OF_COMMANDS = [path for path in PAGES if path.suffix in (".1", ".8")]
REPOSITORY = ROOT.parent
NOT_OURS = {"TERM", "LC_ALL", "HOME", "PATH", "COLUMNS", "LINES", "TMPDIR", "LANG"}
"""Variables that every program reads; k3ctl(1) need not explain them."""


def _section(path: Path, name: str) -> str:
    found = re.search(rf"^\.Sh {name}\n(.*?)(?=^\.Sh |\Z)", path.read_text(), re.M | re.S)
    assert found, f"{path.name} has no section {name}"
    return found[1].replace("\\-", "-")


def _page_of(command: Command) -> Path:
    if command.words[0] == "k3d":
        return ROOT / "man8" / "k3d.8"
    return ROOT / "man1" / f"{'-'.join(command.words[:2])}.1"


def test_pages_are_what_make_man_writes() -> None:
    assert [str(path.relative_to(ROOT)) for path in stale_pages()] == [], "run: make man"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_well_formed(path: Path) -> None:
    assert complaints(path, NAMES) == []


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_mandoc_has_nothing_to_say(path: Path) -> None:
    done = subprocess.run(
        ["mandoc", "-Tlint", "-Wwarning", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("command", [*k3ctl_commands(), *k3d_commands()], ids=lambda c: c.name)
def test_a_command_and_each_of_its_options_have_an_entry(command: Command) -> None:
    path = _page_of(command)
    options, synopsis = _section(path, "OPTIONS"), _section(path, "SYNOPSIS")
    assert f".Cm {' '.join(command.words[1:])}\n" in synopsis or len(command.words) == 1
    heading = f".Ss {command.name}\n"
    own = options[options.index(heading) :].split("\n.Ss ")[0] if heading in options else ""
    for option in command.options:
        assert option.help, f"{option.flags[0]} of {command.name} has no word of help"
        for flag in (*option.flags, *option.other):
            entry = rf"^\.It (?:.*[,|] )?Fl {re.escape(flag[1:])}(?: |$)"
            everywhere = options.split(".Ss Options of each")[-1]
            assert re.search(entry, own + everywhere, re.M), f"{flag} of {command.name}"


def test_k3ctl_names_every_command_and_each_has_a_page() -> None:
    shown = _section(ROOT / "man1" / "k3ctl.1", "DESCRIPTION")
    for verb in VERBS:
        assert f".It Xr k3ctl-{verb} 1\n" in shown
        assert f"k3ctl-{verb}(1)" in NAMES


@pytest.mark.parametrize("path", OF_COMMANDS, ids=lambda path: path.name)
def test_every_exit_code_is_on_every_page_of_commands(path: Path) -> None:
    listed = set(map(int, re.findall(r"^\.It Sy (\d+)$", _section(path, "EXIT STATUS"), re.M)))
    assert set(ExitCode) <= listed <= {*ExitCode, *HealthCode}


@pytest.mark.parametrize("page", ["k3ctl.1", "k3ctl-health.1", "k3ctl-pod.1"])
def test_commands_that_report_a_state_list_its_codes(page: str) -> None:
    section = _section(ROOT / "man1" / page, "EXIT STATUS")
    behind = section[section.index("report") :]
    listed = re.findall(r"^\.It Sy (\d+)$", behind, re.M)
    assert listed == [str(int(code)) for code in HealthCode]


def test_every_environment_variable_is_explained() -> None:
    for path in OF_COMMANDS:
        section = _section(path, "ENVIRONMENT")
        explained = set(re.findall(r"^\.(?:It )?Ev (\S+)", section, re.M))
        wanted = _variables_read(REPOSITORY / "k3d") if path.name == "k3d.8" else set(ENVIRONMENT)
        assert wanted - NOT_OURS <= explained, path.name
    read = _variables_read(REPOSITORY / "k3d") | _variables_read(REPOSITORY / "k3ctl")
    assert read - NOT_OURS <= set(ENVIRONMENT)


def _variables_read(package: Path) -> set[str]:
    """Names in os.environ.get("..."), os.environ["..."], os.getenv("...") of a package."""
    found: set[str] = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                called, key = ast.unparse(node.func), node.args[0]
            elif isinstance(node, ast.Subscript):
                called, key = ast.unparse(node.value), node.slice
            else:
                continue
            if called.endswith(("environ", "environ.get", "getenv")) and isinstance(
                key, ast.Constant
            ):
                found.add(str(key.value))
    return found


def test_the_wheel_installs_the_pages_where_man_looks() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    for path in PAGES:
        folder = path.parent.name
        assert shared[f"man/{folder}"] == f"share/man/{folder}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the first line is not"),
        ("# other(1): what\n## DESCRIPTION\n", "it is the page other"),
        ("# page(1): what\nwords\n", "text before the first section"),
    ],
)
def test_a_source_that_is_no_page_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "page.1.md"
    path.write_text(text)
    with pytest.raises(SourceError, match=complaint):
        read_source(path)
