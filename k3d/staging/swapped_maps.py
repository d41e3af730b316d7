"""Which banks fill the sparks of a map that a swap put in force.

A swap leaves in its slot whatever need not move, so its map seldom has the digest of the one that a
policy plans, which banks are named for. Its sparks are filled from banks of other maps, by what
those hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from k3d.errors import BankError
from k3d.experts.bank_file import Bank
from k3d.experts.bank_header import BankHeader
from k3d.experts.shape import ExpertFormat, ExpertShape
from k3d.staging.bank_names import STATION, PlacedBank

Expert = tuple[int, int]
"""(layer, expert)."""


@dataclass(frozen=True)
class SwappedMap:
    """What a map gives the sparks, which are named in the order of their slices."""

    digest: str
    experts: frozenset[Expert]
    sparks: tuple[str, ...]

    def can_use(self, node: str, header: BankHeader) -> bool:
        """Whether a bank of a node is cut as this map's sparks are; the Station has all slices."""
        if header.slice_count != len(self.sparks):
            return False
        return node in (STATION, self.sparks[header.slice_index])


@dataclass(frozen=True)
class _Cut:
    """Banks that agree in it may stand for each other."""

    node: str
    model_digest: str
    slice_index: int
    shape: ExpertShape
    recast_from: ExpertFormat | None


def filled_from(
    swapped: SwappedMap,
    models: Container[str],
    kept: Iterable[PlacedBank],
    others: Iterable[PlacedBank],
) -> dict[Path, int]:
    """Those of `others` that hold what no bank of `kept` does, and how many of the map's experts
    each of them has; where some of them do, those with the most. Banks of other models than
    `models`, and files that are no sound banks, count for nothing."""
    missing: dict[_Cut, set[Expert]] = defaultdict(lambda: set(swapped.experts))
    for cut, _, held in _usable(swapped, models, kept):
        missing[cut] -= held
    needed: dict[Path, int] = {}
    usable = sorted(_usable(swapped, models, others), key=lambda each: (-len(each[2]), each[1]))
    for cut, path, held in usable:
        if missing[cut] & held:
            needed[path] = len(held)
            missing[cut] -= held
    return needed


def _usable(
    swapped: SwappedMap, models: Container[str], banks: Iterable[PlacedBank]
) -> Iterable[tuple[_Cut, Path, frozenset[Expert]]]:
    for placed in banks:
        try:
            bank = Bank(placed.path)
        except BankError:
            continue
        bank.close()
        header = bank.header
        if header.model_digest not in models:
            continue
        if header.map_digest is None or not swapped.can_use(placed.node, header):
            continue
        cut = _Cut(
            placed.node, header.model_digest, header.slice_index, header.shape, header.recast_from
        )
        yield cut, placed.path, swapped.experts.intersection(bank.order)
