"""A frame's document as the lines of k3ctl top: every figure shown is one of the document."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from k3ctl.cli.output import state_shown, unicode_shown
from k3ctl.cli.table import (
    Columns,
    count,
    counted,
    duration_us,
    percent,
    seconds,
    size,
    times,
    visible,
)
from k3ctl.cli.top_tables import DISPENSABLE, LANES, NODES, TIERS, length, rate
from k3ctl.client.map_name import map_name
from k3ctl.client.moments import length_of_time, local

Document = Mapping[str, Any]
SEVERITIES = {"alert": "‼", "warning": "!", "note": "·"}
ASCII_SEVERITIES = {"alert": "!!", "warning": "!", "note": "-"}
LEAST_ROWS = 2
WORST_FIRST = ("down", "unknown", "degraded", "healthy")


def top_lines(document: Document, width: int, height: int | None = None) -> list[str]:
    """The pod at one moment. With a height, tables are cut to it and say how much they leave out,
    and those without any room are not there; without one, all rows are."""
    head, foot = _head(document, width), _foot(document, width)
    attention = _attention(document, width)
    tables = [
        (NODES, list(document.get("nodes") or ())),
        (TIERS, list(document.get("tiers") or ())),
        (LANES, list(document.get("lanes") or ())),
    ]
    tables = [(columns, rows) for columns, rows in tables if rows]
    if height is None:
        most = [len(rows) for _, rows in tables]
    else:
        attention = attention[: max(2, height // 5)]
        room = height - len(head) - len(attention) - len(foot)
        while tables and (2 + LEAST_ROWS) * len(tables) > room:
            tables.pop()
        most = _shared([len(rows) for _, rows in tables], room - 2 * len(tables))
    lines = [*head, *attention]
    for (columns, rows), shown in zip(tables, most, strict=True):
        lines += ["", *_table(columns, rows, shown, width)]
    return [*lines, "", *foot] if height is None else [*lines, *foot]


def _badness(node: Document) -> int:
    """Where not all nodes have room, those that need a look come first."""
    state = node.get("state")
    return WORST_FIRST.index(state) if state in WORST_FIRST else len(WORST_FIRST)


def _head(document: Document, width: int) -> list[str]:
    state = state_shown(str(document.get("state")))
    at = local(float(document["at_ms"]) / 1000)
    parts = [
        f"{document.get('pod')}",
        state,
        f"up {length_of_time(document.get('uptime_s') or 0.0)}",
        f"epoch {document.get('epoch')} {map_name(document.get('placement'))}",
        at,
    ]
    lines = _fitted(parts, width)
    if document.get("reason"):
        lines += textwrap.wrap(str(document["reason"]), width, subsequent_indent="  ")
    tokens = [
        f"tokens/s: decode {rate(document.get('decode_tokens_per_s'))}",
        f"prompt {rate(document.get('prompt_tokens_per_s'))}",
        f"between tokens: p50 {duration_us(document.get('token_p50_us'))}",
        f"p99 {duration_us(document.get('token_p99_us'))}",
    ]
    lanes = counted(document.get("most_lanes"), "lane")
    requests = [
        f"requests: {document.get('running')} running of {lanes}",
        *(f"{document.get(key)} {key}" for key in ("waiting", "finished", "failed", "refused")),
    ]
    memory = [
        f"pages: {count(document.get('free_pages'))} free of {count(document.get('pages'))}",
        f"prefix hits {percent(document.get('prefix_hit_share'))}",
        f"preempted {document.get('preempted')}",
        f"acceptance {length(document.get('acceptance_length'))}",
    ]
    lines += _fitted(tokens, width) + _fitted(requests, width) + _fitted(memory, width)
    if document.get("synthetic_acceptance") is not None:
        made_up = document["synthetic_acceptance"]
        lines += _fitted([f"SYNTHETIC ACCEPTANCE {made_up}: answers are not the model's"], width)
    return lines + _work(document, width)


def _work(document: Document, width: int) -> list[str]:
    """The swap and the work on banks that are under way."""
    lines: list[str] = []
    swap = document.get("swap")
    if swap:
        lines += _fitted(
            [
                f"swap {swap['intent']} to {map_name(swap['to'])}: {swap['phase']}",
                f"wave {swap['wave']} of {swap['waves']}",
                f"{size(swap['copied_bytes'])} of {size(swap['size_bytes'])}",
                *([f"paused {times(swap['pauses'])}"] if swap["pauses"] else []),
                f"at least {seconds(swap['left_s'])} left (modelled)",
            ],
            width,
        )
    for work in document.get("bank_work") or ():
        lines += _fitted(
            [
                f"{work['kind']} of {work['bank']} on {work['node']}",
                f"{size(work['done_bytes'])} of {size(work['size_bytes'])}",
                f"{size(work['bytes_per_s'])}/s",
                f"{seconds(work['left_s'])} left",
                f"{work['found']} damaged",
            ],
            width,
        )
    return lines


def _attention(document: Document, width: int) -> list[str]:
    signs = SEVERITIES if unicode_shown() else ASCII_SEVERITIES
    lines: list[str] = []
    for each in document.get("attention") or ():
        about = "" if each["subject"] in each["sentence"] else f"{each['subject']}: "
        sign = signs.get(each["severity"], "!")
        text = f"{sign} {each['severity']}: {about}{each['sentence']}"
        if each.get("command"):
            text += f": {each['command']}"
        lines += textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
    return lines


def _foot(document: Document, width: int) -> list[str]:
    """Where the figures come from."""
    said = f"figures of the last {seconds(document.get('interval_s'))}"
    said += f": {document.get('provenance')}"
    tiers = [each["name"] for each in document.get("tiers") or () if each.get("simulated")]
    nodes = [
        each["name"]
        for each in document.get("nodes") or ()
        if (each.get("sensors") or {}).get("simulated")
    ]
    if tiers:
        said += f"; simulated tiers: {', '.join(tiers)}"
    if nodes:
        said += f"; simulated sensors: {', '.join(nodes[:3])}"
        said += f" and {len(nodes) - 3} more" if nodes[3:] else ""
    return textwrap.wrap(said, width, subsequent_indent="  ")


def _table(columns: Columns, rows: Sequence[Document], most: int, width: int) -> list[str]:
    shown = rows if len(rows) <= most else sorted(rows, key=_badness)[: max(1, most - 1)]
    left_out = len(rows) - len(shown)
    lines = columns.fitted(shown, width, DISPENSABLE)
    return [*lines, f"and {left_out} {columns.rows} more"] if left_out else lines


def _shared(wanted: list[int], room: int) -> list[int]:
    """Rows for each table within `room`: all if they fit, else fairly, at least two each."""
    given = [min(LEAST_ROWS, rows) for rows in wanted]
    left = room - sum(given)
    while left > 0 and given != wanted:
        for place, rows in enumerate(wanted):
            if left > 0 and given[place] < rows:
                given[place] += 1
                left -= 1
    return given


def _fitted(parts: Sequence[str], width: int) -> list[str]:
    """Parts beside one another, in as many lines as they need; a part is never broken unless it
    is wider than the line."""
    lines: list[str] = []
    for part in parts:
        joined = f"{lines[-1]}, {part}" if lines else part
        if lines and visible(joined) <= width:
            lines[-1] = joined
        else:
            lines += [part if not lines else f"  {part}"]
    return [part for line in lines for part in _broken(line, width)]


def _broken(line: str, width: int) -> list[str]:
    if visible(line) <= width:
        return [line]
    return textwrap.wrap(line, width, subsequent_indent="  ")
