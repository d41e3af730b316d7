"""The pod as a map: the Station, the tiers in it, and the sparks at the end of their links.

With room for every spark the map is a tree; else sparks are a field of glyphs, a row of ten marked
at its first, and those that are not healthy are named under it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from k3ctl.tui.figures import bar, celsius, counted, curve, duration_us, share, size, watts
from k3ctl.tui.ink import (
    TIER_INKS,
    Line,
    Piece,
    Span,
    cut,
    dimmed,
    line,
    pad,
    quiet,
    strong,
    width_of,
)  # fmt: skip
from k3ctl.tui.marks import STATE_INKS, Marks
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.trail import Trail, node_power_w, node_temperature_c
from k3d.store.frame import Frame, NodeFrame, TierFrame

STATES = ("healthy", "degraded", "unknown", "down")
NAME = 9
FIELD_WIDTH = 120


def map_lines(
    snapshot: Snapshot, frame: Frame, trail: Trail, marks: Marks, width: int, height: int
) -> list[Line]:
    """At most `height` lines."""
    stations = [node for node in frame.nodes if node.role == "station"]
    sparks = [node for node in frame.nodes if node.role == "spark"]
    lines = [_node_line(node, snapshot, trail, marks, width, "", width) for node in stations]
    last = len(frame.tiers) - 1
    for order, tier in enumerate(frame.tiers):
        branch = marks.last_branch if order == last else marks.branch
        lines.append(_tier_line(tier, trail, marks, width, branch))
    room = height - len(lines)
    if not sparks or room <= 0:
        return lines[:height]
    if len(sparks) <= room:
        name = max(width_of((Span(node.name),)) for node in sparks) + 2
        for order, node in enumerate(sparks):
            branch = marks.last_branch if order == len(sparks) - 1 else marks.branch
            stem = f"   {branch}{marks.rule} "
            lines.append(_node_line(node, snapshot, trail, marks, width, stem, name))
        return lines
    return [*lines, *_field(sparks, snapshot, marks, width, room)]


def wanted_heights(frame: Frame, width: int) -> tuple[int, int]:
    """Of the whole tree, and with its sparks as a field."""
    sparks = sum(1 for node in frame.nodes if node.role == "spark")
    stem = len(frame.nodes) - sparks + len(frame.tiers)
    field = -(-sparks // _a_row(width)) + 1 if sparks else 0
    return stem + sparks, stem + min(sparks, field)


def _a_row(width: int) -> int:
    """Sparks a row of the field, a multiple of ten."""
    return 10 * max(1, min(width - 3, FIELD_WIDTH) // 11)


def _tier_line(tier: TierFrame, trail: Trail, marks: Marks, width: int, branch: str) -> Line:
    """Name, share of hits, and hop times with their curves as far as there is room."""
    ink = TIER_INKS.get(tier.name, "plain")
    head = line(
        quiet(f"{branch}{marks.rule} "),
        pad((Span(tier.name, ink),), NAME - 3),
        pad(line(share(tier.hit_share)), 5, right=True),
        " ",
    )
    room = width - width_of(head)
    p50 = pad(line(duration_us(tier.hop_p50_us)), 9, right=True)
    p99 = pad(line(duration_us(tier.hop_p99_us)), 9, right=True)
    times = line(quiet("  p50"), p50, quiet("  p99"), p99)
    left = room - width_of(times)
    if left < 0:
        return cut(line(head, quiet(" p99"), p99), width, marks.more)
    drawn = min(48, left - 1 if left >= 9 else 0)
    gauge = max(0, min(12, left - 2 * 14)) if left >= 40 else min(8, left) if left < 9 else 0
    if gauge:
        drawn = min(48, left - gauge - 1)
    half = max(0, (drawn - 1) // 2)
    return line(
        head,
        bar(tier.hit_share, gauge, marks, ink),
        quiet("  p50"), p50, _curve(trail.tier(tier.name, "p50", half), half, marks),
        quiet("  p99"), p99, _curve(trail.tier(tier.name, "p99", half), half, marks),
    )  # fmt: skip


def _curve(values: Sequence[float | None], width: int, marks: Marks) -> Line:
    return line(" ", curve(values, width - 1, marks)) if width > 4 else ()


def _node_line(
    node: NodeFrame,
    snapshot: Snapshot,
    trail: Trail,
    marks: Marks,
    width: int,
    stem: str,
    name: int,
) -> Line:
    """Name, state, link and sensors of a node, as far as there is room."""
    freshness = snapshot.node_freshness(node)
    label = line(strong(node.name) if node.role == "station" else node.name)
    if name < width:
        label = pad(label, name, mark=marks.more)
    else:
        label = line(label, "  ")
    lost = line(Span(" ?", "warn")) if freshness == "lost" and node.state != "unknown" else ()
    state = pad(line(marks.state(node.state), lost), 12)
    pieces: list[Piece] = [quiet(stem), label, state]
    shown = line(*pieces)
    details = _details(node, trail, marks)
    if node.state in ("down", "unknown") and node.reason:
        details = [line(quiet(f" {node.reason}"))]
    for detail in details:
        longer = line(shown, detail)
        if width_of(longer) > width and detail is not details[0]:
            break
        shown = longer
    shown = cut(shown, width, marks.more)
    return dimmed(shown) if freshness != "fresh" else shown


def _details(node: NodeFrame, trail: Trail, marks: Marks) -> list[Line]:
    """What a node's line may say, the most important first."""
    found: list[Line] = []
    if node.role == "spark":
        p99 = pad(line(duration_us(node.hop_p99_us)), 9, right=True)
        found.append(line(quiet(" p99"), p99))
        found.append(line(" ", curve(trail.node(node.name, "hop_p99_us", 10), 10, marks)))
    power, temperature = node_power_w(node), node_temperature_c(node)
    if power is not None or temperature is not None:
        found.append(pad(line(watts(power)), 9, right=True))
        found.append(pad(celsius(temperature, marks), 9, right=True))
    elif node.rss_bytes is not None:
        found.append(pad(line(size(node.rss_bytes)), 11, right=True))
    if node.rtt_us is not None:
        found.append(line(quiet("  rtt "), duration_us(node.rtt_us)))
    return found


def _field(
    sparks: Sequence[NodeFrame], snapshot: Snapshot, marks: Marks, width: int, height: int
) -> list[Line]:
    """A glyph a spark, in tens; then how many are in which state."""
    glyphs = [_glyph(node, snapshot, marks) for node in sparks]
    a_row = _a_row(width)
    lines: list[Line] = []
    for start in range(0, len(glyphs), a_row):
        row: list[Span] = [Span("   ")]
        for at in range(start, min(start + a_row, len(glyphs))):
            row.append(glyphs[at])
            if at % 10 == 9:
                row.append(Span(" "))
        lines.append(tuple(row))
    counts = Counter(node.state for node in sparks)
    words: list[Piece] = [quiet("   ")]
    for state in STATES:
        if counts[state]:
            words += [marks.state(state, word=False), f" {counts[state]} ", quiet(f"{state}   ")]
    words.append(quiet(counted(len(sparks), "spark")))
    summary = cut(line(*words), width, marks.more)
    room = height - 1
    if len(lines) > room:
        lines = lines[: max(0, room)]
    return [*lines, summary]


def _glyph(node: NodeFrame, snapshot: Snapshot, marks: Marks) -> Span:
    if snapshot.node_freshness(node) == "lost" and node.state not in ("down", "unknown"):
        return Span(marks.states["unknown"], "warn")
    return Span(marks.states[node.state], STATE_INKS[node.state])
