"""k3ctl.toml: which files there are, and what each sets. Read by commands that start cold.

A file of the home goes before one of the user, that before the machine's. $K3_CONFIG names one
file that stands for them all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from k3d.errors import ConfigError
from k3d.store.paths import resolve_home

NAME = "k3ctl.toml"
MACHINE = Path("/etc/k3") / NAME
HINT = "see: k3ctl config validate; K3_CONFIG=/dev/null goes without"


def user_path() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(os.path.expanduser(folder)) / "k3" / NAME  # noqa: PTH111 Path's raises for ~nobody


def outer_paths() -> list[Path]:
    """Files that do not depend on the home, the first one in force over the next."""
    named = os.environ.get("K3_CONFIG")
    if named is not None:
        return [Path(named)] if named else []
    return [user_path(), MACHINE]


def home_in_force(flag: str | None) -> Path:
    """The home: the flag, else $K3_HOME, else `home` of a file, else as resolve_home says.

    Raises ConfigError for a file that cannot be read.
    """
    if flag or os.environ.get("K3_HOME"):
        return resolve_home(flag)
    for path in outer_paths():
        named = (read_file(path) or {}).get("home")
        if isinstance(named, str) and named:
            return resolve_home(named)
    return resolve_home()


def paths(home: Path) -> list[Path]:
    """Every place that is looked at, the first one in force over the next."""
    own = home / NAME
    outer = outer_paths()
    return outer if os.environ.get("K3_CONFIG") is not None or own in outer else [own, *outer]


def read_file(path: Path) -> dict[str, Any] | None:
    """What a file sets, or None when there is no such file. Raises ConfigError."""
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint=HINT) from error
    import tomllib

    try:
        return tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint=HINT) from error
