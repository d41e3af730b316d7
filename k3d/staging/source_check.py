"""Reading a checkpoint against the bank that was built from it: what a shard lost is named."""

from __future__ import annotations

from blake3 import blake3

from k3d.errors import CheckpointError
from k3d.experts.bank_file import Bank
from k3d.experts.source import ExpertSource
from k3d.model.checkpoint import Checkpoint
from k3d.staging.bank_names import PlacedBank
from k3d.staging.pace import Pace
from k3d.staging.progress import Progress
from k3d.staging.verify import Damage


def check_source(
    placed: PlacedBank, checkpoint: Checkpoint, pace: Pace, progress: Progress
) -> list[Damage]:
    """Shards that no longer give what a whole, sound bank remembers. Raises BankError."""
    bank = Bank(placed.path)
    damages = []
    try:
        source = ExpertSource(checkpoint, as_nvfp4=bank.header.recast_from is not None)
        for index, (layer, expert) in enumerate(bank.order):
            size = bank.header.record_bytes
            pace.take(size)
            reason = None
            try:
                found = blake3(source.record(layer, expert)).digest()
                if found != bank.manifest.digest(index):
                    reason = f"has the right size, but not the bytes that {bank.path.name} is of"
            except CheckpointError as error:
                reason = error.message
            if reason is not None:
                shard = source.entries(layer, expert)[0].path
                damages.append(Damage(placed.node, shard, "record", reason, layer, expert))
            progress.add(size)
        damages += _other_weights(placed.node, bank, checkpoint)
    finally:
        bank.close()
    return damages


def _other_weights(node: str, bank: Bank, checkpoint: Checkpoint) -> list[Damage]:
    checkpoint.hash_others()
    return [
        Damage(
            node,
            checkpoint.entry(name).path,
            "record",
            f"tensor {name} has the right size, but not the bytes that {bank.path.name} remembers",
        )
        for name, digest in bank.header.weights.items()
        if checkpoint.digests.get(name) != digest
    ]
