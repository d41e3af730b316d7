"""The command line itself: help, errors, exit codes, streams, signals."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from k3ctl.cli.main import VERBS
from k3ctl.cli.output import EXIT_SENTENCES, HEALTH_SENTENCES, tame, write_words
from k3d import __version__
from k3d.errors import ExitCode, HealthCode
from k3d.store.paths import resolve_home
from tests.ctl.conftest import K3CTL, K3ctl
from tests.ctl.fake_daemons import FakeDaemon, write_script

COMMANDS = [
    ["init"], ["status"], ["pod", "up"], ["pod", "down"], ["pod", "status"], ["chat"], ["health"],
    ["logs"], ["bank", "census"], ["bank", "ledger"], ["trace", "show"], ["trace", "diff"],
    ["trace", "import"], ["trace", "record"], ["placement", "plan"], ["placement", "simulate"],
    ["placement", "measure"], ["placement", "swap"], ["placement", "status"],
    ["placement", "abort"], ["placement", "rollback"], ["check"], ["bench", "pod"],
    ["bench", "decode"], ["bench", "lanes"], ["bench", "prompt"], ["bench", "agentic"], ["help"],
    ["config", "show"], ["config", "validate"], ["config", "path"],
]  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
MEASURING = [["bench", "pod"], ["placement", "measure"]]


def test_no_argument_and_help_print_the_commands(k3ctl: K3ctl) -> None:
    ran = k3ctl()
    assert ran.code == 0
    assert all(verb in ran.out for verb in VERBS)
    assert k3ctl("--help").out.strip() == ran.out.strip()
    assert k3ctl("--version").out == f"k3ctl {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_in_80_columns(k3ctl: K3ctl, command: list[str]) -> None:
    ran = k3ctl(*command, "--help")
    assert ran.code == 0
    assert "--home" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    if command != ["help"]:
        assert k3ctl("help", *command).out.split() == ran.out.split()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_wrong_flag_is_a_usage_error(k3ctl: K3ctl, command: list[str]) -> None:
    ran = k3ctl(*command, "--no-such-flag")
    assert ran.code == ExitCode.USAGE
    assert ran.out == ""
    assert "no such option" in ran.err


def test_an_unknown_command_lists_the_known(k3ctl: K3ctl) -> None:
    ran = k3ctl("dance")
    assert ran.code == ExitCode.USAGE
    assert "there are init, status, pod" in ran.err


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["statsu"], "status"),
        (["pod", "staus"], "status"),
        (["help", "placment"], "placement"),
        (["help", "pod", "dwn"], "down"),
        (["help", "exit-code"], "exit-codes"),
    ],
    ids=" ".join,
)
def test_a_mistyped_command_is_told_the_nearest(
    k3ctl: K3ctl, words: list[str], nearest: str
) -> None:
    ran = k3ctl(*words)
    assert ran.code == ExitCode.USAGE
    assert f"did you mean {nearest}?" in ran.err


@pytest.mark.parametrize("flag", ["--json", "--jsonl"])
def test_errors_are_json_when_json_was_asked_for(k3ctl: K3ctl, flag: str) -> None:
    for arguments in (["chat", "hello", flag], ["chat", flag, "--top-p", "7", "hello"]):
        ran = k3ctl(*arguments)
        assert ran.out == ""
        assert set(ran.error) >= {"type", "code", "name", "retryable", "message", "hint"}
        assert ran.error["type"] == "error"
        assert ran.error["code"] == ran.code
        assert ran.error["name"] == ExitCode(ran.code).name


@pytest.mark.parametrize("words", [["plot", "latncy"], ["plot"]], ids=" ".join)
def test_a_choice_is_listed_once_under_its_plain_name(k3ctl: K3ctl, words: list[str]) -> None:
    ran = k3ctl(*words)
    assert ran.code == ExitCode.USAGE
    assert "'WHAT'" in ran.err
    assert ran.err.count("sensors") == 1


def test_topics(k3ctl: K3ctl) -> None:
    codes = k3ctl("help", "exit-codes").out
    for code in ExitCode:
        assert re.search(rf"^ +{int(code)}  {code.name}\b", codes, re.MULTILINE)
    assert "K3_HOME" in k3ctl("help", "environment").out
    assert "pod.secret" in k3ctl("help", "files").out
    formatting = k3ctl("help", "formatting").out
    assert "--request-id" in formatting
    assert "are set in the file k3ctl.toml" in formatting
    listed = k3ctl("help", "topics").out
    for topic in ("topics", "exit-codes", "environment", "formatting", "files"):
        assert re.search(rf"^ +{topic} +\w", listed, re.MULTILINE)
        assert max(map(len, k3ctl("help", topic).out.splitlines())) <= 80
    assert k3ctl("help", "dancing").code == ExitCode.USAGE


def test_the_tables_of_exit_codes_are_the_enums() -> None:
    assert set(EXIT_SENTENCES) == set(ExitCode)
    assert set(HEALTH_SENTENCES) == {int(code) for code in HealthCode}


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in MEASURING], ids=" ".join)
def test_with_no_home_nothing_is_made_and_nothing_breaks(
    k3ctl: K3ctl, tmp_path: Path, command: list[str]
) -> None:
    nowhere = tmp_path / "nowhere"
    if command in (["init"], ["pod", "up"]):
        command = [*command, "--dry-run"]
    if command == ["pod", "up", "--dry-run"]:
        command = ["pod", "up", "station-8-sparks", "--dry-run"]
    if command == ["chat"]:
        command = ["chat", "hello"]
    ran = k3ctl(*command, "--home", str(nowhere))
    assert ran.code in {int(code) for code in ExitCode}
    assert "Traceback" not in ran.err
    assert not nowhere.exists()


def test_a_home_that_is_a_file_is_one_sentence(k3ctl: K3ctl, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = k3ctl("init", "--home", str(tmp_path / "file"))
    assert ran.code == ExitCode.FAILED
    assert "cannot be made" in ran.err


@pytest.mark.parametrize("command", [["help"], ["pod", "status"], ["health", "--json"]])
def test_a_closed_stdout_is_one_sentence(home: Path, command: list[str]) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *K3CTL, *command],
        stderr=subprocess.PIPE,
        check=False,
        text=True,
    )
    assert done.returncode == ExitCode.FAILED
    assert "standard output is closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_closed_standard_streams_are_never_a_database(home: Path) -> None:
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *K3CTL, "init"], check=False)
    assert done.returncode == ExitCode.FAILED
    assert (home / "state.db").read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["status"], ["status", "--json"], ["pod", "status", "-H"], ["health"]]
)
def test_a_full_stdout_is_one_sentence(station: FakeDaemon, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*K3CTL, *arguments], stdout=full, stderr=subprocess.PIPE, check=False, text=True
        )
    assert done.returncode == ExitCode.FAILED
    (line,) = done.stderr.splitlines()
    assert "No space left" in line


def test_words_are_said_whatever_stdout_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left in its buffer fails again at every flush."""
    said = io.StringIO()
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(sys, "stderr", said)
        full.write("held back")
        write_words("it is full")
        assert said.getvalue() == "it is full\n"
        with contextlib.suppress(OSError):
            full.close()


def test_a_reader_that_goes_away_is_no_error(home: Path) -> None:
    lines = "\n".join(json.dumps({"ts": n, "message": "x" * 200}) for n in range(9_000))
    (home / "run" / "station.log").write_text(lines + "\n")
    with subprocess.Popen(
        [*K3CTL, "logs", "-n", "9000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        words = child.stderr.read()
    assert words == b""
    assert child.returncode == ExitCode.OK


def test_no_colour_in_a_pipe_and_none_with_no_color(
    k3ctl: K3ctl, station: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b" not in k3ctl("pod", "status").out
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    assert "\x1b[32m" in k3ctl("pod", "status").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in k3ctl("pod", "status").out


def test_ascii_where_nothing_else_can_be_shown(k3ctl_process: K3ctl, station: FakeDaemon) -> None:
    for env in ({"K3_ASCII": "1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        ran = k3ctl_process("pod", "status", env=env)
        assert ran.code == 0
        assert ran.out.isascii()
        assert "+ healthy" in ran.out


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPT), (signal.SIGTERM, ExitCode.TERMINATED)],
)
def test_signals_have_their_codes(
    home: Path, station: FakeDaemon, number: int, code: ExitCode
) -> None:
    events = [{"type": "token", "id": n, "text": "x"} for n in range(10_000)]
    write_script(home, "station", chat=events, chat_gap_s=0.02)
    with subprocess.Popen(
        [*K3CTL, "chat", "hello", "--jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        os.kill(child.pid, number)
        child.stdout.read()
        words = child.stderr.read()
    assert child.returncode == code
    error = json.loads(words.splitlines()[-1])
    assert (error["code"], error["name"], error["type"]) == (code, code.name, "error")


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_fault_of_k3ctl_is_a_sentence_too(k3ctl_process: K3ctl, flags: list[str]) -> None:
    program = (
        "import k3ctl.cli.init as verb\nfrom k3ctl.cli.main import main\n"
        "verb.init.callback = lambda **_: [][3]\nmain()"
    )
    for debug in ("", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program, "init", *flags],
            capture_output=True, text=True, check=False, env={**os.environ, "K3_DEBUG": debug},
        )  # fmt: skip
        assert done.returncode == ExitCode.FAILED
        assert ("Traceback" in done.stderr) == bool(debug)
        if not debug:
            assert "k3ctl has a fault: IndexError at <string>:3" in done.stderr
            assert not flags or json.loads(done.stderr)["code"] == ExitCode.FAILED


def test_every_schema_has_a_name_and_a_number() -> None:
    named = []
    for path in (ROOT / "k3ctl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".document"):
                named += [
                    (path.name, a.value) for a in node.args[:1] if isinstance(a, ast.Constant)
                ]
    assert len(named) > 20
    assert not [name for name in named if not re.fullmatch(r"k3ctl\.[a-z-]+/\d+", str(name[1]))]


STEERING = "a\x1b]0;owned\x07b\x1b[2Jc\x9bd\u202ee\rf"
TAMED = r"a\x1b]0;owned\x07b\x1b[2Jc\x9bd\u202ee\rf"


def test_text_cannot_steer_a_terminal_but_may_have_colours() -> None:
    assert tame(STEERING) == TAMED
    plain = "It\tlists é\n\x1b[31mred\x1b[0m"
    assert tame(plain) == plain


def test_logs_are_tamed(k3ctl: K3ctl, home: Path) -> None:
    line = {"ts": 1.0, "level": "info", "node": "station", "message": STEERING}
    (home / "run" / "station.log").write_text(json.dumps(line) + "\n")
    assert TAMED in k3ctl("logs").out
    assert k3ctl("logs", "--json").document["entries"][0]["message"] == STEERING


def test_errors_are_tamed(k3ctl: K3ctl) -> None:
    ran = k3ctl("pod", "up", "\x1b[2Jx/pod.toml")
    assert r"\x1b[2Jx/pod.toml" in ran.err
    assert "\x1b" not in ran.err


def test_an_answer_reaches_a_pipe_as_it_is(k3ctl: K3ctl, home: Path, station: FakeDaemon) -> None:
    write_script(home, "station", chat=[
        {"type": "token", "id": 1, "text": STEERING},
        {"type": "done", "finish_reason": "stop", "usage": {}, "timing": {}},
    ])  # fmt: skip
    assert STEERING.replace("\r", "") in k3ctl("chat", "hello").out.replace("\r", "")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "1e9", "-1", "x"])
@pytest.mark.parametrize(
    "command",
    [
        ["chat", "hi", "--temperature"],
        ["chat", "hi", "--top-p"],
        ["chat", "hi", "--timeout"],
        ["init", "--lock-wait"],
        ["pod", "up", "--deadline"],
        ["pod", "down", "--deadline"],
        ["pod", "down", "--lock-wait"],
    ],
    ids=" ".join,
)
def test_numbers_that_are_none_are_usage_errors(
    k3ctl: K3ctl, station: FakeDaemon, command: list[str], value: str
) -> None:
    ran = k3ctl(*command, value)
    assert ran.code == ExitCode.USAGE
    assert command[-1] in ran.err


def test_the_longest_time_is_one_that_the_system_can_wait(
    k3ctl: K3ctl, station: FakeDaemon
) -> None:
    assert k3ctl("chat", "hi", "--timeout", str(365 * 86_400)).code == 0


@pytest.mark.parametrize("home", ["/etc/hostname", "~nobody-of-this-name/x", "/nonexistent/home"])
def test_a_home_that_is_none_is_a_pod_that_is_down(k3ctl: K3ctl, home: str) -> None:
    ran = k3ctl("--home", home, "health")
    assert ran.code == HealthCode.DOWN
    assert "no pod runs in" in ran.out


def test_without_a_home_directory_there_is_still_a_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("K3_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("k3d.store.paths.checkout", lambda: None)
    assert resolve_home() == tmp_path / ".local" / "state" / "k3"


def test_logs_are_of_nodes_and_not_of_paths(k3ctl: K3ctl, home: Path) -> None:
    (home / "elsewhere.log").write_text("a secret\n")
    ran = k3ctl("logs", "../elsewhere")
    assert ran.code == ExitCode.NOT_FOUND
    assert "no log of ../elsewhere" in ran.err
