"""What the placement pane says in lines: the map in force, a swap, a candidate beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3ctl.charts.bars import bar as bar_text
from k3ctl.cli.placement_swap_text import ended_lines, plan_lines
from k3ctl.cli.table import count, duration_us, percent, seconds, size
from k3ctl.client.candidates import Candidate, Prediction
from k3ctl.client.map_name import in_force_shown
from k3ctl.tui.figures import bar, counted
from k3ctl.tui.ink import (
    BLANK,
    Line,
    Span,
    beside,
    heading,
    line,
    pad,
    quiet,
    strong,
    width_of,
    wrap,
)  # fmt: skip
from k3ctl.tui.marks import Marks
from k3ctl.tui.screens.tiers_view import ink_of
from k3ctl.tui.widgets.heat_bins import tier_pixels, tier_sums
from k3ctl.tui.widgets.heat_map import draw, grid_for, tier_legend, tier_pixels_of
from k3d.placement.placement_map import PlacementMap
from k3d.store.frame import Frame, SwapFrame

BAR = 20
LEAST_MAPS_WIDTH = 60
MAP_LINES = 13


@dataclass(frozen=True)
class Compared:
    """A candidate beside the map in force. Shares are of uses that were counted since the Station
    started, under either map; None where none are available."""

    candidate: Candidate
    placed: PlacementMap | None
    shares_now: dict[str, float] | None
    shares_then: dict[str, float] | None


def top_lines(
    frame: Frame | None, document: Mapping[str, Any] | None, marks: Marks, width: int
) -> list[Line]:
    """The map in force and, if there is one, the swap under way."""
    if frame is None:
        return [line(quiet("no frame has come yet"))]
    told = document or {"placement": frame.placement, "policy": frame.policy}
    now = line(quiet("in force  "), strong(f"epoch {frame.epoch}"), "  ", in_force_shown(told))
    tiers: list[Span | str] = []
    for tier in frame.tiers:
        tiers += [Span(tier.name, ink_of(tier.name)), f" {count(tier.experts)}  "]
    lines = [line(now, "   ", *tiers)] if width >= 90 else [now, line(*tiers)]
    if frame.swap is not None:
        lines += swap_lines(frame.swap, marks, width)
    return lines


def swap_lines(swap: SwapFrame, marks: Marks, width: int) -> list[Line]:
    """How far a swap is: phase, wave, bytes, and why it pauses if it does."""
    share = swap.copied_bytes / swap.size_bytes if swap.size_bytes else 1.0
    left = "" if swap.left_s is None else f"  {seconds(swap.left_s)} left (modelled)"
    head = line(
        Span("swapping  ", "accent"), strong(Path(swap.to).name),
        f"  {swap.phase}, wave {swap.wave} of {swap.waves}  ",
    )  # fmt: skip
    told = line(f" {size(swap.copied_bytes)} of {size(swap.size_bytes)}", quiet(left))
    if width >= 90:
        lines = [line(head, bar(share, BAR, marks), told)]
    else:
        lines = [head, line(bar(share, max(4, min(BAR, width - width_of(told))), marks), told)]
    if swap.paused:
        lines.append(line(marks.state("warning"), f": it pauses, {swap.paused}"))
    return lines


def comparison_lines(compared: Compared, marks: Marks, width: int, *, maps: bool) -> list[Line]:
    """A candidate beside the map in force: tiers, predicted time and where that is from."""
    candidate, made = compared.candidate, compared.candidate.prediction
    title = f"{Path(candidate.name).name} beside epoch {candidate.epoch}"
    moves = line(quiet(counted(candidate.moves, "expert moves", "experts move")))
    lines = [heading(title, width, moves, rule=marks.rule)]
    lines += prediction_lines(made, candidate.not_predicted, marks, width)
    lines += [BLANK, *_tier_table(compared, width)]
    lines += [each for note in candidate.notes for each in wrap(note, width, "quiet")]
    if candidate.argument is None:
        words = "the console is read-only, so its map is not kept and cannot be served from here"
        lines += wrap(words, width, "quiet")
    if maps and compared.placed is not None and width >= LEAST_MAPS_WIDTH:
        lines += [BLANK, *_maps(compared.placed, candidate, marks, width)]
    return lines


def prediction_lines(
    made: Prediction | None, missing: str | None, marks: Marks, width: int
) -> list[Line]:
    """What a token would take, with the trace and the costs that say so."""
    if made is None:
        return wrap(f"no prediction: {missing or 'none was asked for'}", width, "warn", indent=2)
    gain = made.gain
    less = Span(f"{abs(gain) * 100:.1f} % {'less' if gain >= 0 else 'more'}",
                "good" if gain > 0 else "bad" if gain < 0 else "quiet")  # fmt: skip
    most = max(made.now.mean_us, made.then.mean_us)
    length = max(6, min(28, width - 46))
    lines = [line("experts' time of a token ", less, quiet(" (modelled)"))]
    for word, times in (("now ", made.now), ("then", made.then)):
        filled = bar_text(times.mean_us, most, length, marks.ascii)
        lines.append(
            line(
                quiet(f"  {word} "), Span(filled.ljust(length), "accent"),
                strong(f" {duration_us(times.mean_us):>8}"),
                quiet(f"  p99 {duration_us(times.p99_us)}"),
            )
        )  # fmt: skip
    return lines + wrap(_source(made), width, "quiet", indent=2)


def _source(made: Prediction) -> str:
    by_source: dict[tuple[str, str], list[str]] = {}
    for tier in made.tiers:
        by_source.setdefault((tier.cost_provenance, tier.cost_source), []).append(tier.tier)
    costs = "; ".join(
        f"{', '.join(tiers)} {provenance} ({source})"
        for (provenance, source), tiers in by_source.items()
    )
    return f"{counted(made.tokens, 'token')} of {Path(made.trace).name} replayed; costs: {costs}"


def _tier_table(compared: Compared, width: int) -> list[Line]:
    """Experts, hits and time of each tier, now and then."""
    candidate, made = compared.candidate, compared.candidate.prediction
    times = {} if made is None else {tier.tier: tier for tier in made.tiers}
    wide = width >= 64
    heads = ["TIER", "SLOTS", "NOW", "THEN", "HITS NOW", "THEN"]
    sizes = [6, 7, 7, 7, 9, 8]
    if wide:
        heads, sizes = [*heads, "TIME NOW", "THEN"], [*sizes, 9, 9]
    rows = [_row([line(quiet(head)) for head in heads], sizes)]
    for tier in candidate.tiers:
        found = times.get(tier)
        now, then = _shares(compared, tier)
        cells = [
            (Span(tier, ink_of(tier)),),
            line(count(candidate.slots.get(tier))),
            line(count(candidate.counts_now.get(tier, 0))),
            _changed(candidate.counts_now.get(tier, 0), candidate.counts_then.get(tier, 0)),
            line(percent(now)),
            line(percent(then)),
        ]
        if wide:
            cells += [
                line(duration_us(found.time_now_us if found else None)),
                line(duration_us(found.time_then_us if found else None)),
            ]
        rows.append(_row(cells, sizes))
    return [*rows, *wrap(_hits_words(compared), width, "quiet", indent=2)]


def _changed(now: int, then: int) -> Line:
    return line(strong(count(then)) if now != then else count(then))


def _shares(compared: Compared, tier: str) -> tuple[float | None, float | None]:
    if compared.shares_now is not None and compared.shares_then is not None:
        return compared.shares_now.get(tier), compared.shares_then.get(tier)
    made = compared.candidate.prediction
    found = None if made is None else next((t for t in made.tiers if t.tier == tier), None)
    return (None, None) if found is None else (found.share_now, found.share_then)


def _hits_words(compared: Compared) -> str:
    if compared.shares_now is not None:
        return (
            "hits: of the choices counted since the Station started (now measured, then modelled)"
        )
    if compared.candidate.prediction is not None:
        return "hits and times: of the replayed trace (modelled)"
    return "hits: no choices were counted and no trace was replayed"


def _row(cells: Sequence[Line], sizes: Sequence[int]) -> Line:
    spans: list[Span] = []
    for at, (cell, width) in enumerate(zip(cells, sizes, strict=True)):
        spans += [*pad(cell, width, right=at > 0), Span(" ")]
    return tuple(spans)


def _maps(placed: PlacementMap, candidate: Candidate, marks: Marks, width: int) -> list[Line]:
    """Both maps by tier, next to each other."""
    half = width // 2 - 1
    left = _map_lines(placed.tier_of, placed, marks, half)
    right = _map_lines(candidate.tier_of, placed, marks, half)
    grid = grid_for(len(placed.layers), placed.experts, half, MAP_LINES, "unicode")
    legend = tuple(Span(run.text, run.ink) for run in tier_legend(placed.tiers, grid))
    return [
        *beside([line(quiet("now")), *left], [line(quiet("then")), *right], half),
        legend,
    ]


def _map_lines(tier_of: bytes, placed: PlacementMap, marks: Marks, width: int) -> list[Line]:
    look = "ascii" if marks.ascii else "unicode"
    grid = grid_for(len(placed.layers), placed.experts, width, MAP_LINES, look)
    sums = tier_sums(tier_of, placed.experts, len(placed.tiers))
    pixels = tier_pixels_of(tier_pixels(sums, grid), placed.tiers)
    return [
        tuple(Span(run.text, run.ink) for run in runs)
        for runs in draw(grid, pixels, placed.layers, look)
    ]


def dry_run_lines(made: Mapping[str, Any], title: str, marks: Marks, width: int) -> list[Line]:
    """Exactly what a swap would do, as `k3ctl placement swap --dry-run` says it."""
    head = heading(f"dry run: {title}", width, line(quiet("nothing is done")), rule=marks.rule)
    told = plan_lines(made)
    if not made["copies"]:
        return [head, *(line(text) for text in told)]
    tables = told[told.index("") :]  # what is before them is the sentence, at another width
    return [head, *wrap(plan_sentence(made), width), *(line(text) for text in tables)]


def plan_sentence(made: Mapping[str, Any]) -> str:
    """What a swap does, in one sentence, for whoever has to say yes to it."""
    waves = made["waves"]
    return (
        f"{counted(made['copies'], 'copy', 'copies')}, {size(made['size_bytes'])}, in "
        f"{counted(len(waves), 'wave')} to epoch {waves[-1]['epoch']}; at least "
        f"{seconds(made['seconds']['value'])} at {size(made['rate_bytes_s'])}/s "
        f"({made['seconds']['provenance']}). The pod serves on and no token changes."
    )


def last_lines(document: Mapping[str, Any] | None, marks: Marks, width: int) -> list[Line]:
    """The last swap that ended, with what hops took before, during and after."""
    last = None if document is None else document.get("last")
    if not last:
        return []
    title = f"the last swap: to {Path(str(last['name'])).name}"
    lines = [heading(title, width, rule=marks.rule)]
    lines += [line(text) for text in ended_lines(last)]
    if last.get("reason"):
        lines += wrap(str(last["reason"]), width, "warn", indent=2)
    return lines
