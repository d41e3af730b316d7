"""What a map was planned from: how often a trace chose each expert. It stays with the map, so that
live traffic can be held against it when the trace is long gone."""

from __future__ import annotations

from typing import Annotated

import msgspec

from k3d.placement.budget import Provenance

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A trace in figures. `counts` are picks of each expert, in the order of a map's `tier_of`;
    `spread` is how many times as uneven they are as independent picks (population.py)."""

    policy: str
    source: str
    tokens: Annotated[int, msgspec.Meta(ge=1)]
    top_k: Annotated[int, msgspec.Meta(ge=1)]
    spread: Annotated[float, msgspec.Meta(ge=1.0, le=1e9)]
    provenance: Provenance
    counts: tuple[Count, ...]
