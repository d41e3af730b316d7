"""Command lines that k3ctl tells a person to run next: they run as they are printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from k3d.store.paths import resolve_home

_K3CTL = re.compile(r"(?<![\w/-])k3ctl(?= )")


def at_home(command: str, home: Path) -> str:
    """The command line, with the home that it is about where k3ctl would find another."""
    if resolve_home() == home:
        return command
    return _K3CTL.sub(f"k3ctl --home {shlex.quote(str(home))}", command)
