"""Swaps for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from k3ctl.cli.progress import Progress
from k3ctl.cli.table import count, counted, cut, duration_us, seconds, size, table, wrapped
from k3ctl.client.map_name import in_force_shown, map_name

Document = Mapping[str, Any]


def tell(progress: Progress, swap: Document) -> None:
    """How far a swap is; a phase, a wave or a pause that is new is said at once."""
    whole = swap["size_bytes"]
    part = swap["copied_bytes"] / whole if whole else None
    progress(progress_line(swap), part, (swap["phase"], swap["wave"], swap["paused"]))


def progress_line(swap: Document) -> str:
    """Phase, wave and bytes; why it pauses, if it does."""
    line = f"{swap['phase']}, wave {swap['wave']} of {swap['waves']}"
    line += f", {size(swap['copied_bytes'])} of {size(swap['size_bytes'])} copied"
    return line + (f"; pauses: {swap['paused']}" if swap["paused"] else "")


def plan_lines(made: Document) -> list[str]:
    """What a swap does, in full."""
    if not made["copies"]:
        return [f"to {map_name(made['name'])}: nothing moves", *_recut(made), *_waits(made)]
    time, rate = made["seconds"], size(made["rate_bytes_s"])
    waves = made["waves"]
    copies = counted(made["copies"], "copy", "copies")
    lines = wrapped(
        f"to {map_name(made['name'])}: {copies}, {size(made['size_bytes'])}, in "
        f"{counted(len(waves), 'wave')} from epoch {made['epoch']} to "
        f"{waves[-1]['epoch']}; at least {seconds(time['value'])} at {rate}/s "
        f"({time['provenance']})"
    )
    lines += _recut(made) + _waits(made)
    if made["parked"]:
        lines += wrapped(f"{count(made['parked'])} of the copies only make room for others")
    tiers = [
        [
            tier["name"],
            count(tier["slots"]),
            count(tier["experts_now"]),
            count(tier["experts_then"]),
            count(tier["in"]),
            count(tier["out"]),
            count(tier["free_slots_now"]),
            count(tier["most_staged"]),
            size(tier["size_bytes"]),
        ]
        for tier in made["tiers"]
    ]
    headers = ["TIER", "SLOTS", "NOW", "THEN", "IN", "OUT", "FREE", "STAGED", "COPIED"]
    lines += ["", *table(headers, tiers, " rrrrrrrr")]
    nodes = [[node["name"], size(node["size_bytes"])] for node in made["nodes"]]
    lines += ["", *map(cut, table(["NODE", "COPIED"], nodes, " r"))]
    return lines


def token_lines(made: Document) -> list[str]:
    """How to do what a dry run showed, or nothing."""
    told = "to do exactly this, or nothing if the pod has changed since, add"
    return [told, f"  --if-token {made['token']}"]


def _recut(made: Document) -> list[str]:
    """That the sparks are filled anew, where fewer or more of them are to hold slices."""
    sparks = made.get("recut")
    if not sparks:
        return []
    return wrapped(
        f"{', '.join(sparks)} hold a slice of every expert on the sparks from then on, "
        f"1/{len(sparks)} each; they are filled after the turn, and passes wait for that"
    )


def _waits(made: Document) -> list[str]:
    """That a spark is missing which the swap needs."""
    sparks = made.get("waits_for")
    if not sparks:
        return []
    are, them = ("is", "it") if len(sparks) == 1 else ("are", "them")
    return wrapped(f"{' and '.join(sparks)} {are} not ready: the swap waits for {them}")


def ended_lines(swap: Document) -> list[str]:
    """How a swap ended and what it did to hops."""
    lines = [f"swap {swap['intent']} {swap['state']} after {seconds(swap['seconds'])}"]
    return lines + _effect_lines(swap["effects"])


def status_lines(document: Document) -> list[str]:
    tiers = ", ".join(f"{t['name']} {count(t['experts'])}" for t in document["tiers"])
    lines = wrapped(f"epoch {document['epoch']} is in force: {in_force_shown(document)}")
    lines += wrapped(f"experts: {tiers}")
    under_way, last = document["swap"], document["last"]
    if document.get("replacement"):
        lines += ["", *wrapped(document["replacement"]["sentence"])]
    if under_way is not None:
        left = under_way["left_s"]
        to = map_name(under_way["name"])
        lines += ["", f"swap {under_way['intent']} to {to} is under way"]
        lines += wrapped(progress_line(under_way))
        lines.append(f"at least {seconds(left['value'])} to go ({left['provenance']})")
    if last is not None:
        lines += ["", f"the last swap was to {map_name(last['name'])}", *ended_lines(last)]
        if last.get("reason"):
            lines += wrapped(last["reason"])
    return lines


def _effect_lines(effects: Sequence[Document]) -> list[str]:
    rows = [
        [
            effect["tier"],
            effect["moment"],
            count(effect["hops"]),
            duration_us(effect["p50_us"]),
            duration_us(effect["p99_us"]),
            effect["provenance"],
        ]
        for effect in sorted(effects, key=lambda effect: effect["tier"])
        if effect["hops"]
    ]
    if not rows:
        return []
    return ["", *table(["TIER", "MOMENT", "HOPS", "P50", "P99", "LABEL"], rows, "  rrr")]
