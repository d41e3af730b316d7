"""Making a home, or checking the one that is there."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from k3d.errors import Locked, NotFound, StoreError
from k3d.store.paths import make_home, secret_path, state_path
from k3d.store.secret import create_secret, read_secret
from k3d.store.state import StateReader, StateStore

MOMENT_S = 5.0
"""How long to wait for another init of a new home."""


@dataclass(frozen=True)
class HomeSetup:
    """What was made and what was there already."""

    home: Path
    made: tuple[str, ...]
    kept: tuple[str, ...]
    migrations: tuple[str, ...] = ()


def set_up_home(home: Path, *, dry_run: bool = False, lock_wait_s: float = 0.0) -> HomeSetup:
    """Make what is missing: directories, secret, state.db with the newest schema.

    A home whose Station runs is complete and locked by it; then only what is there is checked.
    Raises the errors of a secret or database that is there and cannot be used.
    """
    parts = {"pod.secret": secret_path(home), "state.db": state_path(home)}
    kept = tuple(name for name, path in parts.items() if path.exists())
    made = tuple(name for name in parts if name not in kept)
    if dry_run:
        if "pod.secret" in kept:
            read_secret(home)
        if "state.db" in kept:
            StateReader.open(home).close()
        return HomeSetup(home, made, kept)
    make_home(home)
    create_secret(home)
    read_secret(home)
    return HomeSetup(home, made, kept, _bring_up_to_date(home, lock_wait_s))


def _bring_up_to_date(home: Path, lock_wait_s: float) -> tuple[str, ...]:
    """Bring state.db to the newest schema; the migrations that took.

    Where another writer has it, a Station has brought it up to date already; another init is about
    to, which takes a moment.
    """
    locked: Locked | None = None
    for wait_s in (lock_wait_s, MOMENT_S):
        try:
            with StateStore.open_as_writer(home, holder="k3ctl init", wait_s=wait_s) as store:
                return store.migrations
        except Locked as error:
            locked = error
            with contextlib.suppress(NotFound, StoreError), StateReader.open(home) as reader:
                if reader.complete:
                    return ()
    assert locked is not None
    raise locked
