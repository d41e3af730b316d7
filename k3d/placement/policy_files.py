"""Policies and pod descriptions as TOML files: where they are looked up and how they are read."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from k3d.errors import ConfigError, NotFound
from k3d.store.paths import checkout

WHAT_IS = {"pods": "pod description", "placement": "placement policy", "alerts": "alert policy"}
MOST_SHOWN = 64
"""Characters of a wrong value that its error shows."""
T = TypeVar("T")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def convert_toml(text: bytes, type_: type[T], hint: str) -> T:
    """TOML into a Struct, strictly. Raises ConfigError with the key at fault, and `hint`."""
    try:
        values = tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not TOML: {error}", hint="the shipped ones are in policies/") from error
    _refuse_control_characters(values)
    try:
        return msgspec.convert(values, type_)
    except msgspec.ValidationError as error:
        complaint, _, where = str(error).partition(" - at `")
        key = where.rstrip("`").removeprefix("$").removeprefix(".")
        raise ConfigError(
            f"{key}: {complaint}" if key else complaint,
            hint=hint,
        ) from error


def _refuse_control_characters(values: object, key: str = "") -> None:
    """Raise ConfigError for text that would steer a terminal or end a file's name early."""
    if isinstance(values, dict):
        for name, value in values.items():
            _refuse_control_characters(name, key)
            _refuse_control_characters(value, f"{key}.{name}" if key else name)
    elif isinstance(values, list):
        for index, value in enumerate(values):
            _refuse_control_characters(value, f"{key}[{index}]")
    elif isinstance(values, str) and _CONTROL.search(values):
        raise ConfigError(
            f"{key or 'a key'}: {values[:MOST_SHOWN]!r} holds a control character",
            hint="remove it; a note may have several lines",
        )


def find_policy(kind: str, name_or_path: str, home: Path | None = None) -> Path:
    """The TOML file of a policy of one kind ("pods", "placement", "alerts"), by name or by path.

    A name is looked up in the home, then in the checkout or what the wheel installed.
    """
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        path = Path(os.path.expanduser(name_or_path))  # noqa: PTH111 Path's raises for ~nobody
        if not path.is_file():
            raise NotFound(f"there is no file {path}", hint="name an existing TOML file")
        return path
    directories = policy_directories(kind, home)
    for directory in directories:
        path = directory / f"{name_or_path}.toml"
        if path.is_file():
            return path
    known = sorted({path.stem for directory in directories for path in directory.glob("*.toml")})
    raise NotFound(
        f"there is no {WHAT_IS[kind]} named {name_or_path!r}",
        hint=f"known: {', '.join(known) or 'none'}; or give the path of a .toml file",
    )


def policy_directories(kind: str, home: Path | None = None) -> list[Path]:
    """Where policies of one kind are looked up, first match first."""
    source = checkout()
    shipped = source if source is not None else Path(sys.prefix) / "share" / "k3"
    roots = [shipped] if home is None or home == shipped else [home, shipped]
    return [root / "policies" / kind for root in roots]
