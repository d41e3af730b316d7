"""How bank files are named and where they lie.

HOME/banks/MODEL-DIGEST.bank                  every expert whole
HOME/banks/MODEL-DIGEST.nvfp4.bank            the same, recast from an MXFP4 release
HOME/banks/MODEL-DIGEST.IofN.MAP.bank         slice I of N of the experts that a map gives sparks
HOME/banks/NODE/...                           the same names, as a node received them
HOME/banks/[NODE/].NAME.partial               on its way to NAME

DIGEST and MAP are the first 12 and 8 digits of the digests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from k3d.errors import BankError
from k3d.experts.bank_header import BankHeader

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.bank")
STATION = "station"


def bank_name(model_name: str, header: BankHeader) -> str:
    return model_name + bank_suffix(header)


def bank_suffix(header: BankHeader) -> str:
    """What a bank's name says of its header."""
    parts = [f"-{header.model_digest[:12]}"]
    if header.recast_from is not None:
        parts.append("nvfp4")
    if header.slice_count > 1 or header.map_digest is not None:
        parts.append(f"{header.slice_index + 1}of{header.slice_count}")
    if header.map_digest is not None:
        parts.append(header.map_digest[:8])
    return ".".join([*parts, "bank"])


def model_of(name: str, header: BankHeader) -> str | None:
    """The model's name out of a file's; None for a file that is not named for its header."""
    suffix = bank_suffix(header)
    return name[: -len(suffix)] if name.endswith(suffix) and len(name) > len(suffix) else None


def check_name(name: str) -> str:
    """A name that came over the network; nothing but a plain bank file. Raises BankError."""
    if not _NAME.fullmatch(name):
        raise BankError(f"{name[:80]!r} is no name of a bank file")
    return name


@dataclass(frozen=True)
class PlacedBank:
    """A bank file and the node whose it is."""

    node: str
    path: Path


def find_banks(banks: Path, station: str = STATION) -> Iterator[PlacedBank]:
    """Every bank of a home: the Station's, then those that nodes received, by name."""
    for path in sorted(banks.glob("*.bank")):
        if path.is_file():
            yield PlacedBank(station, path)
    for path in sorted(banks.glob("*/*.bank")):
        # k3-mini and other checkpoints may lie here too; their folders hold no banks.
        if path.is_file():
            yield PlacedBank(path.parent.name, path)


def find_partials(banks: Path) -> list[Path]:
    return sorted([*banks.glob(".*.bank.partial"), *banks.glob("*/.*.bank.partial")])
