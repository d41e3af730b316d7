"""Which files of banks/ nothing needs: what a map in force, or its way back, never needs them for.

Kept are: whole banks of a model that a pod here serves; slices of a map in force or of the one
before it; slices of another map that the sparks of these are filled from, where a swap made them;
slices that are younger than the map in force, which may be the next one's; everything of a model or
map that cannot be told. Unfinished files go when nobody writes them and the bank that they were for
is there or is not wanted either.
"""

from __future__ import annotations

import fcntl
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

from k3d.errors import BankError
from k3d.experts.bank_file import Bank, EarlierBank
from k3d.staging.bank_names import PlacedBank, find_banks, find_partials
from k3d.staging.swapped_maps import SwappedMap, filled_from


@dataclass(frozen=True)
class Needs:
    """What is in force. `maps` are digests of placement maps, `models` of checkpoints; `since_s` is
    when the map in force came, in Unix seconds; `swapped` are those maps that swaps made."""

    models: frozenset[str]
    maps: frozenset[str]
    since_s: float = math.inf
    swapped: tuple[SwappedMap, ...] = ()


@dataclass(frozen=True)
class Clearing:
    """A file of banks/ and why it stays or goes."""

    node: str
    path: Path
    size_bytes: int
    removable: bool
    reason: str


def plan_clearing(banks: Path, needs: Needs) -> list[Clearing]:
    """Every bank and unfinished file with its verdict."""
    found = [_of_bank(placed, needs) for placed in find_banks(banks)]
    for swapped in needs.swapped:
        found = _with_filling(found, needs, swapped)
    kept = {clearing.path for clearing in found if not clearing.removable}
    return found + [_of_partial(banks, path, kept) for path in find_partials(banks)]


def clear(clearings: list[Clearing]) -> list[Clearing]:
    """Remove what is removable; those that were removed. Raises BankError naming what cannot be."""
    removed = []
    for clearing in clearings:
        if not clearing.removable:
            continue
        try:
            clearing.path.unlink(missing_ok=True)
        except OSError as error:
            raise BankError(f"{clearing.path} cannot be removed: {error.strerror}") from error
        removed.append(clearing)
    return removed


def _of_bank(placed: PlacedBank, needs: Needs) -> Clearing:
    def verdict(removable: bool, reason: str) -> Clearing:
        return Clearing(placed.node, placed.path, _size(placed.path), removable, reason)

    try:
        bank = Bank(placed.path)
    except EarlierBank:
        return verdict(False, "is of an earlier format; its Station builds it again")
    except BankError as error:
        return verdict(False, f"cannot be told: {error.message}")
    bank.close()
    header = bank.header
    if header.model_digest not in needs.models:
        return verdict(True, f"no pod here serves model {header.model_digest[:12]}")
    if header.map_digest is None:
        return verdict(False, "the Station serves from it")
    if header.map_digest in needs.maps:
        return verdict(False, "a map in force, or the one before it, needs it")
    if _written_s(placed.path) >= needs.since_s:
        return verdict(False, "is younger than the map in force: it may be the next one's")
    return verdict(True, f"no map in force is {header.map_digest[:8]}")


def _with_filling(found: list[Clearing], needs: Needs, swapped: SwappedMap) -> list[Clearing]:
    """The same verdicts, but what the sparks of a map are filled from stays."""
    kept = [PlacedBank(each.node, each.path) for each in found if not each.removable]
    others = [PlacedBank(each.node, each.path) for each in found if each.removable]
    needed = filled_from(swapped, needs.models, kept, others)
    total = len(swapped.experts)
    return [
        replace(
            each,
            removable=False,
            reason=f"map {swapped.digest[:8]}, in force or the one before it, came by a swap: its "
            f"sparks have {needed[each.path]} of {total} experts from it",
        )
        if each.path in needed
        else each
        for each in found
    ]


def _of_partial(banks: Path, path: Path, kept: set[Path]) -> Clearing:
    node = "station" if path.parent == banks else path.parent.name
    whole = path.with_name(path.name[1:].removesuffix(".partial"))
    if being_written(path):
        removable, reason = False, "is being written"
    elif whole in kept:
        removable, reason = True, f"{whole.name} is whole"
    else:
        removable, reason = False, "an interrupted build or transfer can go on with it"
    return Clearing(node, path, _size(path), removable, reason)


def being_written(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return math.inf


def _size(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0
