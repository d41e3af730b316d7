"""k3ctl.toml: precedence, origins, and what is wrong with it in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3ctl.cli.start import cold_status
from k3ctl.client.config import Value
from k3d.errors import ExitCode
from tests.ctl.conftest import K3ctl
from tests.ctl.fake_daemons import FakeDaemon


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "config" / "k3" / "k3ctl.toml"
    path.parent.mkdir(parents=True)
    return path


def _settings(k3ctl: K3ctl, *arguments: str) -> dict[str, tuple]:
    document = k3ctl("config", "show", "--json", *arguments).document
    return {each["name"]: (each["value"], each["origin"]) for each in document["settings"]}


def test_without_a_file_all_is_as_built(k3ctl: K3ctl, home: Path) -> None:
    assert _settings(k3ctl) == {
        "home": (str(home), "K3_HOME"),
        "colour": ("auto", "default"),
        "ascii": (False, "default"),
    }
    assert "there is no file" in k3ctl("config", "validate").out
    places = k3ctl("config", "path", "--json").document["files"]
    assert [place["state"] for place in places][:2] == ["absent", "absent"]
    assert places[0]["path"] == str(home / "k3ctl.toml")


def test_a_flag_goes_before_a_variable_before_the_home_before_the_user(
    k3ctl: K3ctl, home: Path, user_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_file.write_text(f'home = "{tmp_path}/other"\ncolour = "always"\nascii = true\n')
    assert _settings(k3ctl)["colour"] == ("always", str(user_file))
    (home / "k3ctl.toml").write_text('colour = "never"\n')
    assert _settings(k3ctl)["colour"] == ("never", str(home / "k3ctl.toml"))
    assert _settings(k3ctl)["ascii"] == (True, str(user_file))
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    assert _settings(k3ctl)["colour"] == ("always", "CLICOLOR_FORCE")
    monkeypatch.setenv("NO_COLOR", "1")
    assert _settings(k3ctl)["colour"] == ("never", "NO_COLOR")
    assert _settings(k3ctl)["home"] == (str(home), "K3_HOME")
    flagged = _settings(k3ctl, "--home", str(tmp_path / "third"))
    assert flagged["home"] == (str(tmp_path / "third"), "--home")
    monkeypatch.delenv("K3_HOME")
    assert _settings(k3ctl)["home"] == (f"{tmp_path}/other", str(user_file))


def test_the_home_of_a_file_is_the_home(
    k3ctl: K3ctl, home: Path, user_file: Path, station: FakeDaemon,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    user_file.write_text(f'home = "{home}"\n')
    monkeypatch.delenv("K3_HOME")
    assert k3ctl("status", "--json").document["home"] == str(home)
    assert cold_status(["status", "--json"]) == 0
    user_file.write_text("home = [")
    assert cold_status(["status", "--json"]) is None
    assert k3ctl("status", "--json").code == ExitCode.USAGE


def test_colour_and_ascii_of_a_file(k3ctl: K3ctl, home: Path, station: FakeDaemon) -> None:
    (home / "k3ctl.toml").write_text('colour = "always"\nascii = true\n')
    shown = k3ctl("status").out
    assert shown.isascii()
    assert "\x1b[32m+ healthy" in shown
    (home / "k3ctl.toml").unlink()
    assert "●" in k3ctl("status").out


def test_defaults_of_flags(k3ctl: K3ctl, home: Path, station: FakeDaemon) -> None:
    (home / "k3ctl.toml").write_text(
        '[chat]\nmax_tokens = 3\ntemperature = 0.5\nstats = true\n[logs]\nnode = ["a", "b"]\n'
    )
    assert k3ctl("chat", "hi").code == 0
    assert (station.requests[-1]["max_tokens"], station.requests[-1]["temperature"]) == (3, 0.5)
    assert "tokens/s" in k3ctl("chat", "hi").err
    assert k3ctl("chat", "hi", "--max-tokens", "7").code == 0
    assert station.requests[-1]["max_tokens"] == 7
    assert "no log of a, b" in k3ctl("logs").err
    assert _settings(k3ctl)["chat.max_tokens"] == (3, str(home / "k3ctl.toml"))
    assert _settings(k3ctl)["logs.node"] == (["a", "b"], str(home / "k3ctl.toml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('color = "never"', "there is no key 'color'; is colour meant?"),
        ("colour = 3", "colour: 3 is not a text"),
        ('colour = "red"', "colour: 'red' is none of auto, always, never"),
        ('ascii = "yes"', "ascii: 'yes' is not true or false"),
        ('home = "/x"', "home: a file in a home cannot choose another home"),
        ('home = ""', "home: "),
        ("[pood]", "there is no key 'pood'; is pod meant?"),
        ("pod = 3", "pod: a verb has a table, [pod]"),
        ("[pod]\nup = 3", "pod.up: a verb has a table, [pod.up]"),
        ("[pod.upp]", "pod: there is no key 'upp'; is up meant?"),
        ("[pod.up]\ndeadlin = 3", "pod.up: there is no key 'deadlin'; is deadline meant?"),
        ("[pod.up]\ndeadline = -3", "pod.up.deadline: -3.0 is not in the range"),
        ("[pod.up]\nwait = 3", "pod.up.wait: 3 is neither true nor false"),
        ("[pod.up]\nchunk = true", "pod.up.chunk: True is no value for it"),
        ('[pod.up]\ndtype = "fp8"', "pod.up.dtype: 'fp8' is not one of"),
        ("[pod.up]\nyes = true", "pod.up: there is no key 'yes'"),
        ('[logs]\nnode = "a"', "logs.node: a list is wanted"),
        ("[chat]\nseed = [1]", "chat.seed: one value is wanted"),
        ("[chat", "is not TOML"),
        ("a = " + "[" * 9999, "is not TOML"),
    ],
)
def test_what_is_wrong_is_one_sentence(k3ctl: K3ctl, home: Path, text: str, words: str) -> None:
    path = home / "k3ctl.toml"
    path.write_text(text)
    for command in (["health"], ["config", "show"], ["config", "validate"]):
        ran = k3ctl(*command)
        assert ran.code == ExitCode.USAGE
        assert words in ran.err
        assert str(path) in ran.err
        assert len(ran.err.splitlines()) == 2
    checked = k3ctl("config", "validate", "--json")
    assert checked.code == checked.error["code"] == ExitCode.USAGE
    assert words in checked.document["files"][0]["faults"][0]
    assert k3ctl("help", "files").code == k3ctl("health", "--help").code == 0


def test_validate_names_every_fault(k3ctl: K3ctl, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('colour = "red"\nfoo = 1\n[chat]\nbar = 1\n')
    ran = k3ctl("config", "validate", str(path))
    assert ran.code == ExitCode.USAGE
    assert all(word in ran.err for word in ("'red'", "'foo'", "'bar'"))
    path.write_text('home = "~/k3"\n[pod.up]\ndeadline = 9\n')
    assert k3ctl("config", "validate", str(path)).code == ExitCode.OK
    assert k3ctl("config", "validate", str(tmp_path / "none")).code == ExitCode.USAGE


def test_one_file_may_stand_for_all(
    k3ctl: K3ctl, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "k3ctl.toml").write_text("broken")
    (tmp_path / "mine.toml").write_text('colour = "never"')
    monkeypatch.setenv("K3_CONFIG", str(tmp_path / "mine.toml"))
    assert _settings(k3ctl)["colour"] == ("never", str(tmp_path / "mine.toml"))
    monkeypatch.setenv("K3_CONFIG", "")
    assert _settings(k3ctl)["colour"] == ("auto", "default")


def test_secrets_are_stars() -> None:
    assert Value("serve.api_key", "abc", "file").shown == "****"
    assert Value("chat.max_tokens", 3, "file").shown == 3
