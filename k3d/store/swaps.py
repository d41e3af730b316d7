"""Swaps in state.db: what was asked for, every step with its bytes and time, and the effect.

The intent of a swap is an `intent` of kind SWAP. Its map is in force from the moment that
`record_turn` has written it: a Station that starts takes the newest map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from k3d.store.records import Intent, StoredMap
from k3d.store.state import StateReader, StateStore, now_ms

SWAP = "placement-swap"
UNFINISHED = ("planned", "running")


@dataclass(frozen=True)
class SwapStep:
    """One thing done on one node for a wave. `took_us` is None until it is done."""

    number: int
    wave: int
    epoch: int
    kind: str
    node: str
    copies: int
    size_bytes: int
    started_ms: int
    took_us: int | None


@dataclass(frozen=True)
class SwapEffect:
    """Hops of one tier before, during or after a swap, as measured on the pod."""

    tier: str
    moment: str
    hops: int
    p50_us: float | None
    p99_us: float | None
    provenance: str


class SwapReader:
    """Swaps for whoever may read state.db."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader

    def swap(self, intent_id: str) -> Intent:
        """One with its map. Raises NotFound for an unknown one."""
        return self._reader.intent(intent_id)

    def swaps(self) -> list[Intent]:
        """Oldest first, without their maps, which may be large."""
        return self._light("kind = ? ORDER BY rowid", SWAP)

    def unfinished(self) -> list[Intent]:
        """Those to be carried out, oldest first, without their maps."""
        return self._light(f"kind = ? AND state IN {UNFINISHED} ORDER BY rowid", SWAP)

    def last_ended(self) -> Intent | None:
        """The newest that is not to be carried out any more, without its map."""
        where = f"kind = ? AND state NOT IN {UNFINISHED} ORDER BY rowid DESC LIMIT 1"
        return next(iter(self._light(where, SWAP)), None)

    def last_done(self) -> Intent | None:
        """The newest that was carried out and was no way back, without its map."""
        where = "kind = ? AND state = 'done' AND plan ->> '$.returns' = 0"
        return next(iter(self._light(f"{where} ORDER BY rowid DESC LIMIT 1", SWAP)), None)

    def requested(self, request_id: str | None) -> Intent | None:
        """The swap that a request began, without its map."""
        if request_id is None:
            return None
        return next(iter(self._light("kind = ? AND request_id = ?", SWAP, request_id)), None)

    def _light(self, where: str, *values: str) -> list[Intent]:
        rows = self._reader.rows(
            "SELECT id, kind, state, request_id, json_remove(plan, '$.map'), created_ms, "
            f"updated_ms FROM intent WHERE {where}",
            values,
        )
        return [
            Intent(*row[:4], plan=msgspec.json.decode(row[4]), created_ms=row[5], updated_ms=row[6])
            for row in rows
        ]

    def steps(self, intent_id: str) -> list[SwapStep]:
        rows = self._reader.rows(
            f"SELECT {_STEP} FROM swap_step WHERE intent = ? ORDER BY number", (intent_id,)
        )
        return [SwapStep(*row) for row in rows]

    def effects(self, intent_id: str) -> list[SwapEffect]:
        rows = self._reader.rows(
            "SELECT tier, moment, hops, p50_us, p99_us, provenance FROM swap_effect "
            "WHERE intent = ? ORDER BY rowid",
            (intent_id,),
        )
        return [SwapEffect(*row) for row in rows]

    def reason(self, intent_id: str) -> str | None:
        """The newest event of a swap."""
        row = self._reader.row(
            "SELECT message FROM event WHERE kind = 'swap' AND detail ->> '$.intent' = ? "
            "ORDER BY id DESC LIMIT 1",
            (intent_id,),
        )
        return None if row is None else row[0]

    def map_of(self, epoch: int) -> StoredMap | None:
        return self._reader.placement_map(epoch)

    def planned_digest(self, epoch: int) -> str | None:
        """Of an epoch that a swap put in force: the digest of what the pod's policy planned."""
        row = self._reader.row("SELECT planned_digest FROM placement_map WHERE epoch = ?", (epoch,))
        return None if row is None else row[0]

    def name_of(self, epoch: int) -> str | None:
        """What the map of an epoch was asked for by: a policy, or a map's file."""
        row = self._reader.row("SELECT policy FROM placement_map WHERE epoch = ?", (epoch,))
        return None if row is None else row[0]

    def sparks_of(self, epoch: int) -> tuple[str, ...] | None:
        """The sparks that hold the slices of an epoch; None for all of the pod's."""
        row = self._reader.row("SELECT sparks FROM placement_map WHERE epoch = ?", (epoch,))
        return None if row is None or row[0] is None else tuple(msgspec.json.decode(row[0]))

    def next_epoch(self) -> int:
        """The first number that no map and no wave of a swap has had."""
        row = self._reader.row(
            "SELECT max((SELECT coalesce(max(epoch), 0) FROM placement_map), "
            "(SELECT coalesce(max(epoch), 0) FROM swap_step))"
        )
        assert row is not None
        return 1 + row[0]


class SwapStore(SwapReader):
    """Swaps for the one writer."""

    def __init__(self, store: StateStore) -> None:
        super().__init__(store)
        self._store = store

    def record_swap(self, plan: Mapping[str, Any], *, request_id: str | None = None) -> Intent:
        """Note a swap before anything of it is done; it is to be carried out from then on."""
        return self._store.record_intent(SWAP, plan, request_id=request_id)

    def move(self, intent_id: str, state: str) -> None:
        self._store.move_intent(intent_id, state)

    def note(self, message: str, *, node: str | None = None, **detail: Any) -> None:
        """An event of a swap."""
        self._store.record_event("swap", message, node=node, detail=detail or None)

    def begin_step(self, intent_id: str, wave: int, epoch: int, kind: str, node: str) -> int:
        """Note that something is about to be done; the step's number."""
        with self._store.transaction() as connection:
            (number,) = connection.execute(
                "SELECT 1 + coalesce(max(number), 0) FROM swap_step WHERE intent = ?",
                (intent_id,),
            ).fetchone()
            connection.execute(
                "INSERT INTO swap_step VALUES (?, ?, ?, ?, ?, ?, 0, 0, ?, NULL)",
                (intent_id, number, wave, epoch, kind, node, now_ms()),
            )
        return number

    def end_step(
        self, intent_id: str, number: int, took_us: int, copies: int = 0, size_bytes: int = 0
    ) -> None:
        """Note that it is done, and what it took."""
        with self._store.transaction() as connection:
            connection.execute(
                "UPDATE swap_step SET took_us = ?, copies = ?, size_bytes = ? "
                "WHERE intent = ? AND number = ?",
                (took_us, copies, size_bytes, intent_id, number),
            )

    def record_turn(
        self,
        intent_id: str,
        epoch: int,
        digest: str,
        policy: str,
        map_json: bytes,
        planned: str,
        sparks: Sequence[str] | None = None,
    ) -> None:
        """Put a map in force, durably: what a Station that starts from now on will serve."""
        held = None if sparks is None else msgspec.json.encode(list(sparks)).decode()
        with self._store.transaction() as connection:
            connection.execute(
                "INSERT INTO placement_map (epoch, ts_ms, digest, policy, map, planned_digest, "
                "intent, sparks) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (epoch, now_ms(), digest, policy, map_json.decode(), planned, intent_id, held),
            )

    def record_effects(self, intent_id: str, effects: Sequence[SwapEffect]) -> None:
        """Keep what hops took; the same tier and moment again replaces it."""
        with self._store.transaction() as connection:
            for effect in effects:
                connection.execute(
                    "INSERT OR REPLACE INTO swap_effect VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        intent_id,
                        effect.tier,
                        effect.moment,
                        effect.hops,
                        effect.p50_us,
                        effect.p99_us,
                        effect.provenance,
                    ),
                )


_STEP = "number, wave, epoch, kind, node, copies, size_bytes, started_ms, took_us"
