"""What the tiers pane says in lines: the tiers, the pixel under the cursor, one expert."""

from __future__ import annotations

from collections.abc import Sequence

from k3ctl.charts.bars import bar
from k3ctl.cli.table import count, duration_us, percent
from k3ctl.client.experts import ExpertFacts, Experts
from k3ctl.tui.figures import counted, curve
from k3ctl.tui.ink import BLANK, TIER_INKS, Ink, Line, Span, heading, line, pad, quiet, strong
from k3ctl.tui.marks import Marks
from k3ctl.tui.trail import Trail
from k3d.store.frame import Frame, TierFrame

BAR = 12
CURVE = "  P99, 30 FRAMES"
CURVE_COLUMNS = 30
_HEADS = (("TIER", 6), ("EXPERTS", 16), ("HITS", 7), ("", BAR), ("HOP P50", 9), ("P99", 9),
          ("HOPS", 7), ("BUSY", 7), (CURVE, CURVE_COLUMNS + 2))  # fmt: skip
_RIGHT = {"EXPERTS", "HITS", "HOP P50", "P99", "HOPS", "BUSY"}


def ink_of(tier: str) -> Ink:
    return TIER_INKS.get(tier, "accent")


def tier_lines(frame: Frame | None, trail: Trail, marks: Marks, width: int) -> list[Line]:
    """A line a tier: how full it is, its share of choices and what its hops took, and have taken
    where there is room."""
    if frame is None:
        return [line(quiet("no frame has come yet"))]
    columns = _fitting(width)
    head = [pad(line(quiet(title)), size, right=title in _RIGHT) for title, size in columns]
    most = max((tier.hit_share or 0.0 for tier in frame.tiers), default=0.0)
    rows = [_joined(head)]
    for tier in frame.tiers:
        cells = _tier_cells(tier, most, marks)
        lately = trail.tier(tier.name, "p99", CURVE_COLUMNS)
        cells[CURVE] = line("  ", curve(lately, CURVE_COLUMNS, marks, ink_of(tier.name)))
        rows.append(
            _joined([pad(cells[title], size, right=title in _RIGHT) for title, size in columns])
        )
    return rows


def _fitting(width: int) -> list[tuple[str, int]]:
    """The columns that fit: the curve and the bar go first, then those at the end."""
    columns = list(_HEADS)
    for title in (CURVE, "", "BUSY", "HOPS", "P99"):
        if sum(size + 1 for _, size in columns) <= width:
            break
        columns = [column for column in columns if column[0] != title]
    return columns


def _tier_cells(tier: TierFrame, most: float, marks: Marks) -> dict[str, Line]:
    ink = ink_of(tier.name)
    filled = bar(tier.hit_share, most, BAR, marks.ascii)
    return {
        "TIER": (Span(tier.name, ink),),
        "EXPERTS": line(count(tier.experts), quiet(f" of {count(tier.slots)}")),
        "HITS": line(strong(percent(tier.hit_share))),
        "": (Span(filled, ink),) if filled else BLANK,
        "HOP P50": line(duration_us(tier.hop_p50_us)),
        "P99": line(duration_us(tier.hop_p99_us)),
        "HOPS": line(count(tier.hops)),
        "BUSY": line(percent(tier.busy_share)),
    }


def _joined(cells: Sequence[Line]) -> Line:
    spans: list[Span] = []
    for cell in cells:
        spans += [*cell, Span(" ")]
    return tuple(spans)


def pixel_line(experts: Experts, layers: range, numbers: range) -> Line:
    """What the pixel under the cursor stands for."""
    where = f"{_span('layer', experts.layers[layers.start], experts.layers[layers.stop - 1])}, "
    where += _span("expert", numbers.start, numbers.stop - 1)
    pieces: list[Span | str] = [strong(where)]
    uses, times = experts.uses(layers, numbers), experts.times_even(layers, numbers)
    if uses is not None:
        even = "" if times is None else f", {times:.2f} x even"
        pieces.append(f"  {counted(uses, 'use')}{even}")
    pieces.append("  ")
    held = experts.tier_counts(layers, numbers)
    alone = len(layers) * len(numbers) == 1
    for tier, number in held.items():
        pieces.append(Span(tier if alone else f"{tier} {count(number)}", ink_of(tier)))
        pieces.append(" ")
    return line(*pieces)


def _span(what: str, first: int, last: int) -> str:
    return f"{what} {first}" if first == last else f"{what}s {first}-{last}"


def expert_lines(facts: ExpertFacts, used: str | None, marks: Marks, width: int) -> list[Line]:
    """One expert: where it is, how much it is used and who holds it. `used` says when its uses were
    counted, or why there are none."""
    rows = [
        ("tier", (Span(facts.tier, ink_of(facts.tier)),)),
        ("slot", line("-" if facts.slot is None else count(facts.slot))),
        ("uses", _uses(facts, used)),
    ]
    if facts.share is not None:
        times = "" if facts.times_even is None else f", {facts.times_even:.2f} x an even share"
        rows.append(("share", line(percent(facts.share), quiet(f" of its layer's choices{times}"))))
    if facts.rank is not None:
        rows.append(("rank", line(count(facts.rank), quiet(" of its layer, by use"))))
    title = f"layer {facts.layer}, expert {facts.expert}"
    lines = [heading(title, width, rule=marks.rule)]
    lines += [line(pad((quiet(name),), 8), value) for name, value in rows]
    lines += [BLANK, line(quiet("held by"))]
    names = [f"{node}" if cut is None else f"{node} slice {cut}" for node, cut in facts.holders]
    return lines + (_columns(names, width) if names else [line(quiet("  no node is known"))])


def _uses(facts: ExpertFacts, used: str | None) -> Line:
    if facts.uses is None:
        return line("-", quiet(f"  {used}") if used else "")
    return line(strong(count(facts.uses)), quiet(f" {used}"))


def _columns(names: Sequence[str], width: int) -> list[Line]:
    """Names side by side, as many as fit."""
    size = max(map(len, names)) + 2
    across = max(1, (width - 2) // size)
    return [
        line("  " + "".join(name.ljust(size) for name in names[at : at + across]).rstrip())
        for at in range(0, len(names), across)
    ]
