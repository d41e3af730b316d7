"""Command lines that k3ctl tells a person to run next: they run as they are printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from k3ctl.client.config_files import home_in_force
from k3d.errors import ConfigError
from k3d.store.paths import resolve_home

# The program of a command line that has no option before its verb, and is about some home.
_K3CTL = re.compile(r"(?<![\w/-])k3ctl(?= (?!-|and\b|help\b|completion\b))(?![^;&|]*--help)")


def at_home(command: str, home: Path) -> str:
    """The command lines, with the home that they are about where k3ctl would find another."""
    if _found() == home:
        return command
    named = f"k3ctl --home {shlex.quote(str(home))}"
    return _K3CTL.sub(lambda _: named, command)


def _found() -> Path:
    """The home of a k3ctl that is not told one."""
    try:
        return home_in_force(None)
    except ConfigError:
        return resolve_home()
