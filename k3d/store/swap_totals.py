"""How many swaps ended how, and what they copied, in all that state.db knows."""

from __future__ import annotations

from dataclasses import dataclass

from k3d.store.state import StateReader
from k3d.store.swaps import SWAP


@dataclass(frozen=True)
class SwapTotals:
    """`ended` counts swaps by the state they ended in; `copied_bytes` counts repeats too."""

    ended: dict[str, int]
    copied_bytes: int


def swap_totals(reader: StateReader) -> SwapTotals:
    """Raises StoreError when state.db cannot be read."""
    rows = reader.rows("SELECT state, count(*) FROM intent WHERE kind = ? GROUP BY state", (SWAP,))
    counted = dict(rows)
    copied = reader.row("SELECT coalesce(sum(size_bytes), 0) FROM swap_step WHERE took_us NOT NULL")
    assert copied is not None
    ended = {state: counted.get(state, 0) for state in ("done", "failed", "cancelled")}
    return SwapTotals(ended, copied[0])
