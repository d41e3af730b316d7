"""Repairing the banks of a home: the checkpoint is opened once something is damaged."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from k3d.errors import K3Error, NotFound
from k3d.experts.bank_file import Bank
from k3d.staging.bank_names import PlacedBank
from k3d.staging.pace import Pace
from k3d.staging.progress import Emit, Progress
from k3d.staging.verify import Damage, Examined, bank_bytes
from k3d.store.home import banks_directory

if TYPE_CHECKING:
    from k3d.staging.repair import Repairer


class HomeRepairer:
    """Repairs with what this home has: its banks, and the checkpoint of its pod if it is here."""

    def __init__(self, home: Path, options: Namespace) -> None:
        self._home = home
        self._options = options
        self._repairer: Repairer | None = None

    def repair(self, examined: Examined) -> list[Damage]:
        if not examined.damages:
            return []
        if self._repairer is None:
            self._repairer = self._open()
        return self._repairer.repair(examined)

    def _open(self) -> Repairer:
        # What these stand on imports torch, which reading banks does without.
        from k3d.staging.pod_banks import pod_banks
        from k3d.staging.repair import Repairer

        banks = banks_directory(self._home)
        try:
            found = pod_banks(self._home, self._options)
        except K3Error:  # a spark has no checkpoint; a Station's may be damaged too
            return Repairer(banks, None, [])
        return Repairer(banks, found.checkpoint, found.wanted)


def source_damages(
    home: Path, options: Namespace, placed: list[PlacedBank], pace: Pace, emit: Emit
) -> list[Damage]:
    """Shards of the pod's checkpoint that are no longer what its whole bank is of."""
    from k3d.experts.bank import shard_facts
    from k3d.staging.pod_banks import pod_banks
    from k3d.staging.source_check import check_source

    found = pod_banks(home, options)
    for bank in placed:
        try:
            opened = Bank(bank.path)
        except K3Error:
            continue
        header = opened.header
        opened.close()
        # A shard that decayed where the digest samples it has changed the digest too.
        same = header.model_digest == found.checkpoint.digest
        if header.map_digest is None and (same or header.shards == shard_facts(found.checkpoint)):
            progress = Progress(emit, "source", bank_bytes(bank))
            return check_source(bank, found.checkpoint, pace, progress)
    raise NotFound(
        "no whole bank of the pod's model is here to compare the checkpoint with",
        hint="build it: k3ctl bank build; one of shards that were fetched since says nothing",
    )
