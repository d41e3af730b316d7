"""What staging found and did, as JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from k3d.staging.stage import StagedNode
from k3d.staging.verify import Damage

if TYPE_CHECKING:  # what these stand on imports torch
    from k3d.staging.build import BuiltBank
    from k3d.staging.wanted import WantedBank


def put(document: dict[str, Any]) -> None:
    """One line on stdout, at once."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def plan_documents(wanted: list[WantedBank]) -> list[dict[str, Any]]:
    """One entry a bank that should be."""
    return [
        {
            "node": bank.node,
            "file": bank.path.name,
            "state": bank.state(),
            "records": bank.layout.count,
            "record_bytes": bank.header.record_bytes,
            "size_bytes": bank.layout.size_bytes,
            "slice": bank.header.slice_index + 1,
            "slices": bank.header.slice_count,
            "format": bank.header.shape.format,
            "recast_from": bank.header.recast_from,
        }
        for bank in wanted
    ]


def build_documents(wanted: list[WantedBank], built: list[BuiltBank]) -> list[dict[str, Any]]:
    """One entry a bank: written now, or ready before."""
    by_path = {bank.path: bank for bank in built}
    found = []
    for bank in wanted:
        done = by_path.get(bank.path)
        found.append({
            "node": bank.node,
            "file": bank.path.name,
            "records": bank.layout.count,
            "size_bytes": bank.layout.size_bytes if done is None else done.size_bytes,
            "ready_before": done is None,
            "kept": bank.layout.count if done is None else done.kept,
            "written": 0 if done is None else done.written,
            "written_bytes": 0 if done is None else done.written_bytes,
            "hash_s": None if done is None else round(done.hash_s, 6),
            "discarded": None if done is None else done.discarded,
        })  # fmt: skip
    return found


def damage_document(damage: Damage) -> dict[str, Any]:
    return {
        "node": damage.node,
        "file": str(damage.path),
        "part": damage.part,
        "layer": damage.layer,
        "expert": damage.expert,
        "reason": damage.reason,
        "repaired": damage.repaired,
        "unrepaired_because": damage.unrepaired_because,
    }


def staged_document(node: StagedNode) -> dict[str, Any]:
    """What became of one node. Bytes are None where it did not come so far."""
    sent = node.sent
    return {
        "node": node.node,
        "file": node.path.name,
        "size_bytes": node.total_bytes,
        "records": None if sent is None else sent.records,
        "lacking": None if sent is None else sent.lacking,
        "kept": None if sent is None else sent.kept,
        "repaired": None if sent is None else sent.repaired,
        "payload_bytes": node.moved_bytes,
        "wire_bytes": None if sent is None else sent.wire_bytes,
        "pour_s": None if sent is None else round(sent.pour_s, 6),
        "send_s": None if sent is None else round(sent.send_s, 6),
        "hash_s": None if sent is None else round(sent.hash_s, 6),
        "discarded": None if sent is None else sent.discarded,
        "error": None if node.error is None else node.error.document(),
    }
