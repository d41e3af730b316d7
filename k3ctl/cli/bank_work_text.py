"""What k3d did with banks, as text of at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k3ctl.cli.table import count, cut, percent, seconds, size, table, wrapped
from k3d.errors import K3Error

Document = Mapping[str, Any]
MOST_NAMED = 20
"""Damages that text names one by one; --json has all."""


def progress_line(line: Document) -> str:
    """One line of progress: of the whole, or node by node."""
    if "nodes" in line:
        parts = [f"{node['node']} {_share(node)} {_speed(node)}" for node in line["nodes"]]
        return cut("; ".join(parts), 400)
    what = f" {line['what']}" if line.get("what") else ""
    return f"{line['phase']}{what}: {_share(line)} of {size(line['total_bytes'])}, {_speed(line)}"


def plan_lines(document: Document) -> list[str]:
    rows = [
        [
            bank["node"],
            f"{bank['slice']}/{bank['slices']}",
            bank["format"],
            count(bank["records"]),
            size(bank["size_bytes"]),
            bank["state"],
        ]
        for bank in document["banks"]
    ]
    lines = table(["NODE", "SLICE", "FORMAT", "RECORDS", "SIZE", "STATE"], rows, "lrlrrl")
    pending = [bank["size_bytes"] for bank in document["banks"] if bank["state"] != "ready"]
    recast = any(bank["recast_from"] for bank in document["banks"])
    words = (
        f"{size(sum(pending))} to write into {document['folder']}, where "
        f"{size(document['free_bytes'])} are free"
    )
    if recast:
        words += "; MXFP4 is recast to NVFP4, value for value"
    return [*lines, "", *wrapped(words)]


def build_lines(document: Document) -> list[str]:
    rows = [
        [
            bank["node"],
            count(bank["records"]),
            count(bank["kept"]),
            count(bank["written"]),
            size(bank["size_bytes"]),
            "ready before" if bank["ready_before"] else "built",
        ]
        for bank in document["banks"]
    ]
    lines = table(["NODE", "RECORDS", "KEPT", "WRITTEN", "SIZE", ""], rows, "lrrrrl")
    reasons = {bank["discarded"] for bank in document["banks"] if bank["discarded"]}
    lines += [f"begun before and not used: {reason}" for reason in sorted(reasons)]
    return [*lines, "", *wrapped(f"in {document['folder']}, {seconds(document['time_s'])}")]


def stage_lines(document: Document) -> list[str]:
    rows = []
    for node in document["nodes"]:
        failed = node["error"] is not None
        rate = None
        if node["send_s"] and node["payload_bytes"]:
            rate = node["payload_bytes"] / node["send_s"]
        done = "would be sent" if document["dry_run"] else "whole"
        rows.append([
            node["node"], count(node["kept"]), count(node["lacking"]), size(node["payload_bytes"]),
            size(node["wire_bytes"]), "-" if rate is None else f"{size(rate)}/s",
            "failed" if failed else "whole" if not node["lacking"] else done,
        ])  # fmt: skip
    headers = ["NODE", "HAD", "LACKED", "SENT", "ON THE WIRE", "RATE", ""]
    lines = table(headers, rows, "lrrrrrl")
    for node in document["nodes"]:
        if node["error"] is not None:
            lines += wrapped(f"{node['node']}: {node['error']['message']}")
    return [*lines, "", f"measured; {seconds(document['time_s'])}"]


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
    rows = [
        [bank["node"], cut(bank["file"], 46), count(bank["records"]), bank["state"]]
        for bank in document["banks"]
    ]
    lines = table(["NODE", "FILE", "RECORDS", "STATE"], rows, "llrl")
    read = sum(bank["bytes"] for bank in document["banks"])
    lines += _damage_lines(document)
    return [*lines, "", f"measured; {size(read)} read in {seconds(document['time_s'])}"]


def scrub_lines(document: Document) -> list[str]:
    words = f"{size(document['due_bytes'])} of {size(document['total_bytes'])} due"
    if document["dry_run"]:
        return [words]
    words += f", {size(document['bytes'])} read in {seconds(document['time_s'])}"
    if document["rounds"]:
        words += f"; {count(document['rounds'])} banks read through"
    return [*wrapped(f"measured; {words}"), *_damage_lines(document)]


def damage_error(document: Document) -> K3Error | None:
    """The error of a reading that left damage."""
    left = [damage for damage in document["damages"] if not damage["repaired"]]
    if not left:
        return None
    more = f", and {len(left) - 1} more" if len(left) > 1 else ""
    return K3Error(f"damaged: {_damage(left[0])}{more}", hint=_way_out(left[0]))


def list_lines(document: Document) -> list[str]:
    rows = [
        [
            bank["node"],
            bank["model"] or cut(bank["file"], 24),
            "-" if bank["slice"] is None else f"{bank['slice']}/{bank['slices']}",
            (bank["map"] or "-")[:8],
            count(bank["records"]),
            size(bank["bytes"]),
            _age(bank["age_s"]),
            bank["state"],
        ]
        for bank in document["banks"]
    ]
    headers = ["NODE", "MODEL", "SLICE", "MAP", "RECORDS", "SIZE", "AGE", "STATE"]
    return table(headers, rows, "llrlrrrl") if rows else [f"no banks in {document['folder']}"]


def clear_lines(document: Document) -> list[str]:
    lines = []
    for file in document["files"]:
        word = "keep  "
        if file["remove"]:
            word = "removed" if file["removed"] else "remove"
        lines += wrapped(f"{word} {file['node']} {file['file']}: {file['reason']}")
    total = sum(file["bytes"] for file in document["files"] if file["remove"])
    return [*lines, f"{size(total)} {'would be freed' if document['dry_run'] else 'freed'}"]


def _damage_lines(document: Document) -> list[str]:
    lines = []
    for damage in document["damages"][:MOST_NAMED]:
        became = (
            "repaired" if damage["repaired"] else damage["unrepaired_because"] or "not repaired"
        )
        lines += wrapped(f"{_damage(damage)}: {became}")
    more = len(document["damages"]) - MOST_NAMED
    return (
        ["", *lines, *([f"and {more} more; --json has all"] if more > 0 else [])] if lines else []
    )


def _damage(damage: Document) -> str:
    who = "" if damage["layer"] is None else f" layer {damage['layer']} expert {damage['expert']}"
    return f"{damage['node']} {damage['file']}{who}: {damage['reason']}"


def _way_out(damage: Document) -> str:
    return damage["unrepaired_because"] or "repair it: k3ctl bank verify --repair"


def _share(line: Document) -> str:
    total = line["total_bytes"]
    return percent(line["bytes"] / total if total else 1.0)


def _speed(line: Document) -> str:
    rate = line["bytes_per_s"]
    if rate is None:
        return str(line.get("phase", "waiting"))
    return f"{size(rate)}/s, {seconds(line['eta_s'])} left"


def _age(age_s: float) -> str:
    if age_s < 7200:
        return seconds(age_s)
    return f"{age_s / 3600:.0f} h" if age_s < 172_800 else f"{age_s / 86_400:.0f} days"
