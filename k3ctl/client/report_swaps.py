"""What a report says of swaps: one line each, of their rows in state.db."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from k3ctl.client.map_name import map_name
from k3d.store.state import StateReader
from k3d.store.swaps import SWAP, SwapReader

# Events that say no more than the line of their swap.
_TOLD = re.compile(r"^(?:a|the) swap to .* (?:begins|is done|was aborted|failed: .*)$")


@dataclass(frozen=True)
class ToldSwap:
    """One swap: `what` was wanted, how it ended, and by which request it was asked for."""

    at_ms: int
    what: str
    outcome: str
    request: str | None


def told_swaps(reader: StateReader, first_ms: int, last_ms: int) -> Iterable[ToldSwap]:
    """Those that were begun or that changed between two moments, oldest first."""
    rows = reader.rows(
        "SELECT id, created_ms, updated_ms, state, request_id, plan ->> '$.name' FROM intent "
        "WHERE kind = ?1 AND (created_ms BETWEEN ?2 AND ?3 OR updated_ms BETWEEN ?2 AND ?3) "
        "ORDER BY created_ms",
        (SWAP, first_ms, last_ms),
    )
    for intent, created_ms, updated_ms, state, request, name in rows:
        took = f"{state} after {(updated_ms - created_ms) / 1000:.1f} s"
        why = SwapReader(reader).reason(intent) if state == "failed" else None
        outcome = took if why is None else f"{took}: {why.partition(' failed: ')[2] or why}"
        turned = _epochs(reader, intent)
        yield ToldSwap(created_ms, f"swap to {map_name(name)}{turned}", outcome, request)


def says_more(message: str) -> bool:
    """Whether an event of a swap says what its line does not."""
    return _TOLD.match(message) is None


def _epochs(reader: StateReader, intent: str) -> str:
    """The epochs that a swap put in force: one a wave."""
    rows = reader.rows("SELECT epoch FROM placement_map WHERE intent = ? ORDER BY epoch", (intent,))
    epochs = [epoch for (epoch,) in rows]
    if not epochs:
        return ""
    if len(epochs) == 1:
        return f", epoch {epochs[0]}"
    return f", epochs {epochs[0]} to {epochs[-1]}"
