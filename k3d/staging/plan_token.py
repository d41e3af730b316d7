"""Tokens of what was shown: a change is made only from the state that its operator looked at."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from k3d.errors import PlanStale
from k3d.staging.clear import Clearing

if TYPE_CHECKING:  # what these stand on imports torch
    from k3d.staging.pod_banks import PodBanks

DIGITS = 16


def banks_token(found: PodBanks) -> str:
    """Of a pod's banks and where each stands, whichever of them are asked for: for build and
    stage."""
    banks = [
        (bank.path.name, bank.header.map_digest, bank.state(), _stamp(bank.path))
        for bank in found.everything
    ]
    digests = (found.pod.digest, found.checkpoint.digest, found.placement.digest)
    return _token(["banks", digests, banks])


def clearing_token(clearings: Iterable[Clearing]) -> str:
    """Of what gc would remove."""
    going = [(str(each.path), _stamp(each.path)) for each in clearings if each.removable]
    return _token(["gc", going])


def require_token(asked: str | None, now: str) -> None:
    """Raises PlanStale unless the state is the one that a token is of; None asks for nothing."""
    if asked is not None and asked != now:
        raise PlanStale(
            f"the token {asked[:80]} is not of the state that the banks are in now",
            hint="look again (bank plan, gc --dry-run) and use the token it shows",
        )


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _token(facts: Any) -> str:
    return blake3(msgspec.json.encode(facts)).hexdigest()[:DIGITS]
