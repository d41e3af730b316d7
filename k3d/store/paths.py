"""The home of a pod: one directory with its databases, secret, banks and run files.

HOME/state.db        what the pod is and was told (k3d.store.state)
HOME/telemetry.db    what it measured (k3d.store.telemetry)
HOME/pod.secret      64 hex characters, mode 0600
HOME/banks/          staged bank files
HOME/run/            one <node>.json and one <node>.log for every daemon of this machine
"""

from __future__ import annotations

import os
from pathlib import Path

import k3d
from k3d.errors import StoreError


def checkout() -> Path | None:
    """The source checkout this package runs from, or None when it runs from a wheel."""
    root = Path(k3d.__file__).resolve().parent.parent
    project = root / "pyproject.toml"
    if not (root / "k3ctl").is_dir() or not project.is_file():
        return None
    return root if 'name = "k3pod"' in project.read_text(encoding="utf-8") else None


def resolve_home(flag: str | os.PathLike[str] | None = None) -> Path:
    """The home in force: the flag, else $K3_HOME, else the checkout, else the XDG state directory.

    An empty flag or variable counts as not given. The directory need not exist yet.
    """
    chosen = flag or os.environ.get("K3_HOME")
    if chosen:
        return Path(os.path.expanduser(chosen)).resolve()  # noqa: PTH111 Path's raises for ~nobody
    source = checkout()
    if source is not None:
        return source
    state = os.environ.get("XDG_STATE_HOME")
    return Path(os.path.expanduser(state or "~/.local/state")) / "k3"  # noqa: PTH111 as above


def state_path(home: Path) -> Path:
    return home / "state.db"


def telemetry_path(home: Path) -> Path:
    return home / "telemetry.db"


def secret_path(home: Path) -> Path:
    return home / "pod.secret"


def banks_directory(home: Path) -> Path:
    return home / "banks"


def run_directory(home: Path) -> Path:
    return home / "run"


def make_home(home: Path) -> None:
    """Create the home and its run/ and banks/ directories where they are missing."""
    try:
        for directory in (home, run_directory(home), banks_directory(home)):
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the home {home} cannot be made: {error.strerror}",
            hint="choose another with --home or K3_HOME",
        ) from error
