"""The schema of state.db and its migrations.

A migration is never edited once released; a change is a new one at the end. `user_version` counts
them, so that an up-to-date database costs one pragma and a newer one is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from k3d.errors import ConfigError
from k3d.store.database import APPLICATION_ID, Connection, sentences, write_transaction

if TYPE_CHECKING:
    from sqlite_utils import Migrations

VERSION = 3

PROVENANCE = ("measured", "reported", "reproduced", "modelled", "assumed", "simulated")
INTENT_STATES = ("planned", "running", "done", "failed", "cancelled")
SWAP_STEPS = ("stage", "commit", "turn", "retire", "drop")
SWAP_MOMENTS = ("before", "during", "after")

_FIRST = f"""
CREATE TABLE pod (
    id INTEGER PRIMARY KEY,
    ts_ms INTEGER NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    description TEXT NOT NULL CHECK (json_valid(description))
) STRICT;

CREATE TABLE placement_map (
    epoch INTEGER PRIMARY KEY CHECK (epoch >= 1),
    ts_ms INTEGER NOT NULL,
    digest TEXT NOT NULL,
    policy TEXT NOT NULL,
    map TEXT NOT NULL CHECK (json_valid(map))
) STRICT;

CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    ts_ms INTEGER NOT NULL,
    node TEXT,
    kind TEXT NOT NULL,
    message TEXT NOT NULL,
    detail TEXT CHECK (detail IS NULL OR json_valid(detail))
) STRICT;
CREATE INDEX event_by_time ON event (ts_ms);

CREATE TABLE intent (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN {INTENT_STATES}),
    request_id TEXT UNIQUE,
    plan TEXT NOT NULL CHECK (json_valid(plan)),
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE receipt (
    id TEXT PRIMARY KEY,
    ts_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    provenance TEXT NOT NULL CHECK (provenance IN {PROVENANCE}),
    command TEXT NOT NULL,
    figures TEXT NOT NULL CHECK (json_valid(figures)),
    environment TEXT NOT NULL CHECK (json_valid(environment))
) STRICT
"""

# planned_digest: of the map that the pod's policy planned when a swap put this one in force.
_SWAPS = f"""
ALTER TABLE placement_map ADD COLUMN planned_digest TEXT;
ALTER TABLE placement_map ADD COLUMN intent TEXT REFERENCES intent (id);

CREATE TABLE swap_step (
    intent TEXT NOT NULL REFERENCES intent (id),
    number INTEGER NOT NULL CHECK (number >= 1),
    wave INTEGER NOT NULL CHECK (wave >= 1),
    epoch INTEGER NOT NULL CHECK (epoch >= 1),
    kind TEXT NOT NULL CHECK (kind IN {SWAP_STEPS}),
    node TEXT NOT NULL,
    copies INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    took_us INTEGER,
    PRIMARY KEY (intent, number)
) STRICT;
CREATE INDEX swap_step_by_epoch ON swap_step (epoch);

CREATE TABLE swap_effect (
    intent TEXT NOT NULL REFERENCES intent (id),
    tier TEXT NOT NULL,
    moment TEXT NOT NULL CHECK (moment IN {SWAP_MOMENTS}),
    hops INTEGER NOT NULL,
    p50_us REAL,
    p99_us REAL,
    provenance TEXT NOT NULL CHECK (provenance IN {PROVENANCE}),
    PRIMARY KEY (intent, tier, moment)
) STRICT
"""


# sparks: those that hold the slices of this epoch's experts; NULL for all of the description.
_SLICING = """
ALTER TABLE placement_map ADD COLUMN sparks TEXT CHECK (sparks IS NULL OR json_valid(sparks))
"""


def bring_up_to_date(connection: Connection, path: Path) -> list[str]:
    """Apply the migrations that are missing; the names of those applied. All of them or none.

    Raises ConfigError when the database was made by a newer k3pod.
    """
    with sentences(path):
        found = schema_version(connection)
    check_version(found, path)
    if found == VERSION:
        return []
    from sqlite_utils import Database  # slow to import, and needed once in a database's life

    migrations = _migrations()
    with write_transaction(connection, path):
        database = Database(connection, recursive_triggers=False, execute_plugins=False)
        pending = [migration.name for migration in migrations.pending(database)]
        migrations.apply(database)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    return pending


def schema_version(connection: Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def check_version(found: int, path: Path, *, newest: int = VERSION) -> None:
    """Refuse a schema that this k3pod does not know."""
    if found > newest:
        raise ConfigError(
            f"{path} has schema {found} and this k3pod knows up to {newest}",
            hint="it was made by a newer k3pod: install that one, or use another home",
        )


def _migrations() -> Migrations:
    from sqlite_utils import Migrations

    migrations = Migrations("k3pod-state")

    @migrations()
    def first(database: object) -> None:
        for statement in _FIRST.split(";\n"):
            database.execute(statement)  # type: ignore[attr-defined]

    @migrations()
    def swaps(database: object) -> None:
        for statement in _SWAPS.split(";\n"):
            database.execute(statement)  # type: ignore[attr-defined]

    @migrations()
    def slicing(database: object) -> None:
        database.execute(_SLICING)  # type: ignore[attr-defined]

    return migrations
