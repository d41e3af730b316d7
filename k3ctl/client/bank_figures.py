"""What building and staging banks came to, as receipts keep it, and in one sentence."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from k3d import __version__
from k3d.counted import counted

Document = Mapping[str, Any]


def build_figures(document: Document) -> dict[str, Any] | None:
    """Of a build that wrote something. `hash_share` is of the whole time."""
    written = sum(bank["written_bytes"] for bank in document["banks"])
    if not written:
        return None
    hash_s = sum(bank["hash_s"] or 0.0 for bank in document["banks"])
    return {
        "provenance": document["provenance"],
        "pod": document["pod"],
        "model_digest": document["model_digest"],
        "map": document["map"],
        "bytes": written,
        "records": sum(bank["written"] for bank in document["banks"]),
        "kept": sum(bank["kept"] for bank in document["banks"] if not bank["ready_before"]),
        "time_s": document["time_s"],
        "bytes_per_s": written / document["time_s"] if document["time_s"] > 0 else None,
        "hash_s": round(hash_s, 6),
        "hash_share": _share(hash_s, document["time_s"]),
    }


def stage_figures(document: Document) -> dict[str, Any] | None:
    """Of a staging that sent something. The transfers go side by side: `time_s` is the longest,
    from its first byte until all was on the node's disk; `hash_share` is of all their times."""
    nodes = [node for node in document["nodes"] if node["send_s"] and node["payload_bytes"]]
    if document["dry_run"] or not nodes:
        return None
    sent = sum(node["payload_bytes"] for node in nodes)
    longest_s = max(node["send_s"] for node in nodes)
    hash_s = sum(node["hash_s"] or 0.0 for node in nodes)
    return {
        "provenance": document["provenance"],
        "pod": document["pod"],
        "map": document["map"],
        "bytes": sent,
        "wire_bytes": sum(node["wire_bytes"] for node in nodes),
        "nodes": len(nodes),
        "failed": sum(node["error"] is not None for node in document["nodes"]),
        "time_s": longest_s,
        "bytes_per_s": sent / longest_s,
        "hash_s": round(hash_s, 6),
        "hash_share": _share(hash_s, sum(node["send_s"] for node in nodes)),
        "by_node": {
            node["node"]: {
                "bytes": node["payload_bytes"],
                "time_s": node["send_s"],
                "pour_s": node["pour_s"],
                "bytes_per_s": node["payload_bytes"] / node["send_s"],
                "hash_share": _share(node["hash_s"] or 0.0, node["send_s"]),
            }
            for node in nodes
        },
    }


def environment_here() -> dict[str, Any]:
    """This machine and how busy it is."""
    return {
        "version": __version__,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _share(part_s: float, whole_s: float) -> float | None:
    return round(part_s / whole_s, 4) if whole_s > 0 else None


def build_event(document: Document) -> str | None:
    """What a build did, in a sentence; None when there was nothing to do."""
    built = [bank["file"] for bank in document["banks"] if not bank["ready_before"]]
    if not built:
        return None
    size = sum(bank["size_bytes"] for bank in document["banks"] if not bank["ready_before"])
    were = "was" if len(built) == 1 else "were"
    return f"{counted(len(built), 'bank')} of pod {document['pod']} {were} built, {size} bytes"


def stage_event(document: Document) -> str | None:
    """What was sent and to whom."""
    if document["dry_run"]:
        return None
    failed = [node["node"] for node in document["nodes"] if node["error"] is not None]
    sent = [node for node in document["nodes"] if node["error"] is None and node["payload_bytes"]]
    words = []
    if sent:
        size = sum(node["payload_bytes"] for node in sent)
        words.append(f"{size} bytes of slices were sent to {counted(len(sent), 'node')}")
    if failed:
        words.append(f"no slices came to {', '.join(failed)}")
    return "; ".join(words) or None


def damage_event(document: Document) -> str | None:
    """What reading banks found."""
    damages = document["damages"]
    if not damages:
        return None
    left = sum(not damage["repaired"] for damage in damages)
    first = damages[0]
    became = f"{left} not repaired" if left else "repaired"
    return (
        f"{counted(len(damages), 'damage')} found in banks, {became}; the first: "
        f"{first['node']} {first['file']}: {first['reason']}"
    )


def clear_event(document: Document) -> str | None:
    """What was removed."""
    removed = [file for file in document["files"] if file["removed"]]
    if not removed:
        return None
    return f"{counted(len(removed), 'file')} removed from banks, {document['freed_bytes']} bytes"
