"""What k3ctl was told to do by default: settings with their origin, and faults named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3ctl.client.config_files import HINT, MACHINE, NAME, paths, read_file, user_path
from k3d.errors import ConfigError

COLOURS = ("auto", "always", "never")
SECRET_WORDS = {"secret", "password", "token", "key"}
"""A value under a name with one of these words is not shown."""


@dataclass(frozen=True)
class Setting:
    """A key at the top of a file. `variables` stand in for it, the first before the next."""

    name: str
    type: type
    default: Any
    variables: tuple[str, ...]
    about: str
    choices: tuple[str, ...] = ()


SETTINGS = (
    Setting("home", str, None, ("K3_HOME",), "the pod's home; not in a home's own file"),
    Setting(
        "colour", str, "auto", ("NO_COLOR", "CLICOLOR_FORCE"),
        "auto (on a terminal), always or never", COLOURS,
    ),
    Setting("ascii", bool, False, ("K3_ASCII",), "no characters beyond ASCII"),
)  # fmt: skip
BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True)
class Value:
    """A setting or the default of a flag, in force. `origin` is a file, a variable or "default"."""

    name: str
    value: Any
    origin: str

    @property
    def shown(self) -> Any:
        """The value, or stars for a secret."""
        secret = SECRET_WORDS & set(self.name.replace(".", "_").replace("-", "_").split("_"))
        return "****" if secret and self.value is not None else self.value


@dataclass(frozen=True)
class Configuration:
    """All files together. `flags` is the defaults of flags by verb and name, as a file has them:
    {"pod": {"up": {"deadline": 600}}}."""

    files: tuple[Path, ...]
    settings: Mapping[str, Value]
    flags: Mapping[str, Any]
    origins: Mapping[tuple[str, ...], str]

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value


Check = Callable[[Mapping[str, Any]], Iterable[str]]
"""What is wrong with the tables of verbs in a file; the command line knows its flags."""


def read_configuration(home: Path, check: Check) -> Configuration:
    """The settings in force. Raises ConfigError for the first file or key that is wrong."""
    found: dict[str, Value] = {}
    flags: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    files = []
    for path in paths(home):
        content = read_file(path)
        if content is None:
            continue
        files.append(path)
        for fault in faults(path, content, check):
            raise ConfigError(f"{path}: {fault}", hint=HINT)
        for words, value in leaves(content):
            if len(words) == 1:
                found.setdefault(words[0], Value(words[0], value, str(path)))
            elif words not in origins:
                origins[words] = str(path)
                _put(flags, words, value)
    for setting in SETTINGS:
        told = _from_environment(setting)
        if told is not None:
            found[setting.name] = told
        found.setdefault(setting.name, Value(setting.name, setting.default, "default"))
    ordered = {setting.name: found[setting.name] for setting in SETTINGS}
    return Configuration(tuple(files), ordered, flags, origins)


def faults(path: Path, content: Mapping[str, Any], check: Check) -> Iterator[str]:
    """What is wrong with a file, a sentence each."""
    for key, value in content.items():
        setting = BY_NAME.get(key)
        if setting is not None:
            wrong = _wrong(setting, value, path)
            if wrong is not None:
                yield f"{key}: {wrong}"
    yield from check({key: value for key, value in content.items() if key not in BY_NAME})


def unknown(key: str, known: Iterable[str]) -> str:
    """A sentence for a key that is none, with the nearest that is one."""
    import difflib

    known = sorted(known)
    near = difflib.get_close_matches(key, known, n=1)
    meant = f"is {near[0]} meant?" if near else f"there are {', '.join(known)}"
    return f"there is no key {key[:64]!r}; {meant}"


def leaves(
    content: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of nested tables with the words that lead to it."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _wrong(setting: Setting, value: Any, path: Path) -> str | None:
    if type(value) is not setting.type:
        word = {str: "a text", bool: "true or false"}[setting.type]
        return f"{value!r} is not {word}"
    if setting.choices and value not in setting.choices:
        return f"{value!r} is none of {', '.join(setting.choices)}"
    if setting.name == "home" and path.name == NAME and path not in (user_path(), MACHINE):
        return "a file in a home cannot choose another home"
    return "it is empty" if value == "" else None


def _from_environment(setting: Setting) -> Value | None:
    for variable in setting.variables:
        text = os.environ.get(variable)
        if not text or (variable == "CLICOLOR_FORCE" and text == "0"):
            continue
        value: Any = {"NO_COLOR": "never", "CLICOLOR_FORCE": "always"}.get(variable, text)
        return Value(setting.name, True if setting.type is bool else value, variable)
    return None


def _put(tree: dict[str, Any], words: tuple[str, ...], value: Any) -> None:
    for word in words[:-1]:
        tree = tree.setdefault(word, {})
    tree[words[-1]] = value
