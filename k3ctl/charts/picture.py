"""Panels as a PNG or SVG file, through matplotlib: told apart without colour, the same bytes for
the same figures."""

from __future__ import annotations

import io
import logging
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from k3ctl.charts.axis import finite, time_axis, value_axis
from k3ctl.charts.panels import Panel
from k3d.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, ordered so that neighbours differ in lightness as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
MARKS = ("o", "^", "D", "s", "v", "P", "X")
MARKS_A_LINE = 9

WIDTH_IN, PANEL_IN, FRAME_IN, DPI = 9.0, 1.9, 1.15, 144
LETTERS, KEY_LETTERS, LEGEND_PT = 120, 9, 13
INK, FAINT, RULE = "#222222", "#666666", "#DDDDDD"

SETTINGS: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "svg.fonttype": "none",
    "svg.hashsalt": "k3pod",
}


@dataclass(frozen=True)
class Picture:
    """Panels over one span of Unix seconds. `rules` are moments with a label."""

    title: str
    footnote: str
    panels: Sequence[Panel]
    since_s: float
    until_s: float
    rules: Sequence[tuple[float, str]] = ()


def picture_bytes(picture: Picture, form: Literal["png", "svg"]) -> bytes:
    """The file's bytes. Raises ConfigError when matplotlib is not installed."""
    # Its notes about fonts and caches are not for whoever asked for a picture.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "a picture needs matplotlib, which is not installed",
            hint="pip install 'k3pod[plot]'; without --out it is drawn in the terminal",
        ) from None
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a name in letters that no font here has
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)  # type: ignore[arg-type] - its keys are too many to name
        rows = max(1, len(picture.panels))
        figure = Figure(figsize=(WIDTH_IN, FRAME_IN + PANEL_IN * rows), dpi=DPI)
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        for place, panel in zip(axes, picture.panels, strict=False):
            _draw(place, panel, picture)
        _time(axes[-1], picture)
        _words(figure, picture)
        metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
        content = io.BytesIO()
        figure.savefig(content, format=form, metadata=metadata)
    return content.getvalue()


def _draw(axes: Axes, panel: Panel, picture: Picture) -> None:
    known: list[float] = []
    shown = 0
    for number, (name, points) in enumerate(panel.series.items()):
        values = [finite(y) for _, y in points]
        if all(value is None for value in values):
            continue
        shown += 1
        known += [value for value in values if value is not None]
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            [x for x, _ in points],
            [float("nan") if value is None else value for value in values],
            color=colour,
            linestyle=LINES[number % len(LINES)],
            linewidth=1.4,
            marker=MARKS[number % len(MARKS)],
            markersize=3.6,
            markevery=_marked(values, number),
            label=name,
            clip_on=False,
        )
    vertical = value_axis(known, 5, from_zero=panel.from_zero)
    axes.set_ylim(vertical.first, vertical.last)
    axes.set_yticks([t.at for t in vertical.ticks], [t.label for t in vertical.ticks])
    rows = _legend_rows(panel)
    axes.set_title(panel.label, loc="left", fontsize=9, color=INK, pad=6 + LEGEND_PT * (rows - 1))
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for at_s, _ in picture.rules:
        axes.axvline(at_s, color=FAINT, linewidth=0.8, linestyle=(0, (1, 2)))
    if shown > 1:
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=-(-shown // rows),
            frameon=False,
            fontsize=8,
            borderaxespad=0.1,
            handlelength=2.8,
            columnspacing=1.4,
        )


def _legend_rows(panel: Panel) -> int:
    """Lines the legend takes; in its first one the label stands at the left."""
    names = [name for name, points in panel.series.items() if any(y is not None for _, y in points)]
    letters = sum(len(name) + KEY_LETTERS for name in names)
    if letters + len(panel.label) <= LETTERS:
        return 1
    return 1 + -(-letters // LETTERS)


def _marked(values: Sequence[float | None], number: int) -> list[int]:
    """Which points carry a mark: a few of them, others on each line; a point alone always."""
    places = [at for at, value in enumerate(values) if value is not None]
    step = max(1, len(places) // MARKS_A_LINE)
    chosen = set(places[number % step :: step]) | set(places[-1:])
    for at in places:
        before = at > 0 and values[at - 1] is not None
        after = at + 1 < len(values) and values[at + 1] is not None
        if not before and not after:
            chosen.add(at)
    return sorted(chosen)


def _time(axes: Axes, picture: Picture) -> None:
    axis = time_axis(picture.since_s, picture.until_s, 9)
    axes.set_xlim(axis.first, axis.last)
    axes.set_xticks([tick.at for tick in axis.ticks], [tick.label for tick in axis.ticks])


def _words(figure: Any, picture: Picture) -> None:
    """Title above, footnote below; the panels get what is left."""
    height = figure.get_size_inches()[1]
    notes = [f"┊ {label}" for _, label in picture.rules[-5:]]
    lines = [*notes, *textwrap.wrap(picture.footnote, 170)]
    figure.text(0.015, 1 - 0.12 / height, picture.title, fontsize=11, weight="bold", va="top")
    figure.text(
        0.015, 0.1 / height, "\n".join(lines), fontsize=7, color=FAINT, va="bottom", linespacing=1.4
    )
    figure.subplots_adjust(
        left=0.085,
        right=0.975,
        top=1 - 0.68 / height,
        bottom=(0.4 + 0.145 * len(lines)) / height,
        hspace=0.42 + 0.13 * (max(map(_legend_rows, picture.panels), default=1) - 1),
    )
