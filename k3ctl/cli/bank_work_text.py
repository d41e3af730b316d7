"""What k3d did with banks, as text of at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from k3ctl.cli.bank_columns import BUILT, LISTED, PLANNED, STAGED, VERIFIED
from k3ctl.cli.table import count, seconds, size, wrapped
from k3d.errors import K3Error

Document = Mapping[str, Any]
MOST_NAMED = 20
"""Damages that text names one by one; --json has all."""


def progress_words(line: Document) -> str:
    """How far work is: what is done and how fast, of the whole or of the nodes together."""
    nodes = line.get("nodes")
    if nodes is None:
        what = f" {line['what']}" if line.get("what") else ""
        found = f", {count(line['found'])} damaged" if line.get("found") else ""
        return f"{line['phase']}{what}{found}, {_speed(line['bytes_per_s'])}"
    rates = [node["bytes_per_s"] for node in nodes if node["phase"] == "sending"]
    phases = [node["phase"] for node in nodes]
    done = f"{phases.count('done')} of {len(nodes)} nodes have theirs"
    failed = f", {phases.count('failed')} failed" if "failed" in phases else ""
    return f"{line['phase']}: {done}{failed}, {_speed(sum(rate or 0 for rate in rates) or None)}"


def progress_part(line: Document) -> float | None:
    """The part that is done, 0 to 1; None where there is nothing to do."""
    parts = line.get("nodes") or [line]
    total = sum(part["total_bytes"] for part in parts)
    return sum(part["bytes"] for part in parts) / total if total else None


def plan_lines(document: Document) -> list[str]:
    shown = ("node", "slice", "format", "records", "size", "state")
    lines = PLANNED.lines(document["banks"], shown)
    pending = [bank["size_bytes"] for bank in document["banks"] if bank["state"] != "ready"]
    recast = any(bank["recast_from"] for bank in document["banks"])
    words = "nothing to write"
    if pending:
        words = (
            f"{size(sum(pending))} to write into {document['folder']}, where "
            f"{size(document['free_bytes'])} are free"
        )
    if recast:
        words += "; MXFP4 is recast to NVFP4, value for value"
    return [*lines, "", *wrapped(words), f"token {document['token']}"]


def build_lines(document: Document) -> list[str]:
    shown = ("node", "records", "kept", "written", "size", "state")
    lines = BUILT.lines(document["banks"], shown)
    reasons = {bank["discarded"] for bank in document["banks"] if bank["discarded"]}
    lines += [f"begun before and not used: {reason}" for reason in sorted(reasons)]
    written = sum(bank["written_bytes"] for bank in document["banks"])
    speed = f", {size(written / document['time_s'])}/s" if written and document["time_s"] else ""
    words = f"measured; {size(written)} written into {document['folder']}"
    return [*lines, "", *wrapped(f"{words}, {seconds(document['time_s'])}{speed}")]


def stage_lines(document: Document) -> list[str]:
    rows = [{**node, "sent": not document["dry_run"]} for node in document["nodes"]]
    lines = STAGED.lines(rows, ("node", "had", "lacked", "sent", "wire", "rate", "state"))
    for node in document["nodes"]:
        if node["error"] is not None:
            lines += wrapped(f"{node['node']}: {node['error']['message']}")
    token = f"; token {document['token']}" if document["dry_run"] else ""
    return [*lines, "", f"measured; {seconds(document['time_s'])}{token}"]


def stage_error(document: Document) -> K3Error | None:
    """The error of a staging in which nodes failed."""
    failed = [node for node in document["nodes"] if node["error"] is not None]
    if not failed:
        return None
    first = failed[0]["error"]
    if len(failed) == len(document["nodes"]) == 1:
        return K3Error(first["message"], hint=first["hint"])
    names = ", ".join(node["node"] for node in failed)
    return K3Error(f"{names} did not get their slices: {first['message']}", hint=first["hint"])


def verify_lines(document: Document) -> list[str]:
    lines = VERIFIED.lines(document["banks"], ("node", "file", "records", "state"))
    read = sum(bank["bytes"] for bank in document["banks"])
    lines += _damage_lines(document)
    return [*lines, "", f"measured; {size(read)} read in {seconds(document['time_s'])}"]


def scrub_lines(document: Document) -> list[str]:
    words = f"{size(document['due_bytes'])} of {size(document['total_bytes'])} due"
    if document["dry_run"]:
        return [words]
    words += f", {size(document['bytes'])} read in {seconds(document['time_s'])}"
    if document["rounds"]:
        banks = "bank" if document["rounds"] == 1 else "banks"
        words += f"; {count(document['rounds'])} {banks} read through"
    return [*wrapped(f"measured; {words}"), *_damage_lines(document)]


def damage_error(document: Document) -> K3Error | None:
    """The error of a reading that left damage."""
    left = [damage for damage in document["damages"] if not damage["repaired"]]
    if not left:
        return None
    more = f", and {len(left) - 1} more" if len(left) > 1 else ""
    return K3Error(f"damaged: {_damage(left[0])}{more}", hint=_way_out(left[0]))


def list_lines(document: Document) -> list[str]:
    rows = document["banks"]
    if not rows:
        return [f"no banks in {document['folder']}"]
    shown = ("node", "model", "slice", "map", "records", "size", "verified", "state")
    lines = LISTED.lines(rows, shown)
    reasons = [bank for bank in rows if bank["reason"]]
    for bank in reasons:
        lines += wrapped(f"{bank['node']} {bank['file']}: {bank['reason']}")
    return lines


def clear_lines(document: Document) -> list[str]:
    lines = []
    for file in document["files"]:
        word = "keep  "
        if file["remove"]:
            word = "removed" if file["removed"] else "remove"
        lines += wrapped(f"{word} {file['node']} {file['file']}: {file['reason']}")
    total = sum(file["bytes"] for file in document["files"] if file["remove"])
    if not document["dry_run"]:
        return [*lines, f"{size(total)} freed"]
    return [*lines, f"{size(total)} would be freed; token {document['token']}"]


def removal(document: Document) -> str | None:
    """What gc would remove, as the end of a sentence; None when it is nothing."""
    going = [file for file in document["files"] if file["remove"]]
    if not going:
        return None
    files = "a file" if len(going) == 1 else f"{count(len(going))} files"
    freed = size(sum(file["bytes"] for file in going))
    return f"removes {files} of {freed} that no map in force needs"


def _damage_lines(document: Document) -> list[str]:
    lines = []
    for damage in document["damages"][:MOST_NAMED]:
        became = (
            "repaired" if damage["repaired"] else damage["unrepaired_because"] or "not repaired"
        )
        named = {**damage, "file": PurePath(damage["file"]).name}  # its node says where it lies
        lines += wrapped(f"{_damage(named)}: {became}")
    more = len(document["damages"]) - MOST_NAMED
    return (
        ["", *lines, *([f"and {more} more; --json has all"] if more > 0 else [])] if lines else []
    )


def _damage(damage: Document) -> str:
    who = "" if damage["layer"] is None else f" layer {damage['layer']} expert {damage['expert']}"
    return f"{damage['node']} {damage['file']}{who}: {damage['reason']}"


def _way_out(damage: Document) -> str:
    return damage["unrepaired_because"] or "repair it: k3ctl bank verify --repair"


def _speed(rate: float | None) -> str:
    return "-" if rate is None else f"{size(rate)}/s"
