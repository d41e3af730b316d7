"""What a pod description says of a tier beyond its slots: memory, reservations, cost.

Both are figures with their provenance, and both are for planning: a pod serves by its slots.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Provenance = Literal["measured", "reported", "reproduced", "modelled", "assumed", "simulated"]
TierName = Literal["hbm", "rtx", "grace", "spark"]
SizeBytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
TimeUs = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]


class Reservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Memory of a tier that no expert may take.

    `of_model` marks the non-expert weights: a census of the model at hand replaces the figure.
    """

    what: Annotated[str, msgspec.Meta(min_length=1)]
    size_bytes: SizeBytes
    provenance: Provenance
    note: str = ""
    of_model: bool = False


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The memory of a tier on each node that has it, or, with `node`, on that node alone.

    `even_layers` keeps only whole multiples of the MoE layers: as many experts of every layer.
    """

    tier: TierName
    node: str | None = None
    size_bytes: SizeBytes
    provenance: Provenance
    note: str = ""
    even_layers: bool = False
    reservations: tuple[Reservation, ...] = msgspec.field(name="reserve", default=())


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a tier takes in one layer of a pass, in microseconds.

    `call_us` once, when it serves anything; `expert_us` for every whole expert it reads, and on
    the sparks `slice_us` on each of them for every slice; `row_us` for every further row that a
    read expert serves.
    """

    tier: TierName
    call_us: TimeUs
    expert_us: TimeUs
    slice_us: TimeUs | None = None
    row_us: TimeUs = 0.0
    provenance: Provenance
    note: str = ""
