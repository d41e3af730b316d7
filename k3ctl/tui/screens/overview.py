"""The pod at a glance: figures, the map, what needs attention, and one big chart."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical

from k3ctl.tui.chart_lines import FIGURES, chart_lines
from k3ctl.tui.ink import BLANK, Line, Span, beside, heading, line, quiet, wrap
from k3ctl.tui.marks import STATE_INKS, Marks
from k3ctl.tui.pane import Pane
from k3ctl.tui.screens.overview_tiles import tile_lines
from k3ctl.tui.screens.pod_map import map_lines, wanted_heights
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.widgets.columns import Column, Row
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.row_table import RowTable
from k3d.store.frame import Attention, Frame

COLUMNS = (
    Column("severity", "SEVERITY"),
    Column("subject", "WHAT", most=20),
    Column("sentence", "WHY", most=120),
    Column("command", "SEE", drop=1, most=40),
)
SEVERITIES = ("alert", "warning", "note")
LEAST_CHART = 8
WORDS_LINES = 4
TWO_ACROSS, TWO_DOWN = 170, 28


class OverviewPane(Pane):
    """Arranged by the size of the terminal: see `plan`."""

    DEFAULT_CSS = """
    OverviewPane #tiles { height: 4; }
    OverviewPane #middle { layout: vertical; height: 1fr; }
    OverviewPane #attention-side { height: 1fr; }
    OverviewPane #attention-title { height: 1; }
    OverviewPane #attention-words { display: none; padding: 1 0 0 2; }
    OverviewPane #chart { height: 0; }
    OverviewPane.beside #middle { layout: horizontal; }
    OverviewPane.beside #map { width: 3fr; height: 1fr; }
    OverviewPane.beside #attention-side { width: 2fr; padding: 0 0 0 3; }
    OverviewPane.beside #attention-words { display: block; }
    OverviewPane.chart-only #tiles, OverviewPane.chart-only #middle { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "chart_only", "chart"),
        Binding("greater_than_sign,right", "figure(1)", "next chart", key_display=">"),
        Binding("less_than_sign,left", "figure(-1)", "chart before", show=False, key_display="<"),
    ]
    HELP = """
    The map shows the Station, its tiers with their share of hits and hop times, and the sparks.
    Curves are the last minutes, the newest at the right. The chart shows the last ten minutes;
    < and > choose its figure, v gives it the whole pane.

    Enter on something that needs attention opens the node it is about.
    """

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - as Textual calls it
        super().__init__(id=id)
        self._figure = 0

    def compose(self) -> ComposeResult:
        yield Drawing(self._draw_tiles, id="tiles")
        with Container(id="middle"):
            yield Drawing(self._draw_map, id="map")
            with Vertical(id="attention-side"):
                yield Drawing(self._draw_attention_title, id="attention-title")
                yield RowTable(
                    COLUMNS, lambda: self.console.marks, nothing="", headed=False,
                    id="attention",
                )  # fmt: skip
                yield Drawing(self._draw_attention, id="attention-words")
        yield Drawing(self._draw_chart, id="chart")

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        frame, marks = snapshot.frame, self.console.marks
        found = () if frame is None else frame.attention
        found = sorted(found, key=lambda each: SEVERITIES.index(each.severity))
        rows = [attention_row(number, each, marks) for number, each in enumerate(found)]
        self.query_one("#attention", RowTable).set_rows(rows)
        self._arrange()
        for drawing in self.query(Drawing):
            if drawing.display and drawing.size.height:
                drawing.redraw()

    def on_resize(self, _: events.Resize) -> None:
        self._arrange()

    def table(self) -> RowTable | None:
        return self.query_one("#attention", RowTable)

    def back(self) -> bool:
        if not self.has_class("chart-only"):
            return False
        self.action_chart_only()
        return True

    def on_row_table_opened(self, event: RowTable.Opened) -> None:
        event.stop()
        subject = event.row.values[1]
        frame = self.shown.frame
        if frame is not None and any(node.name == subject for node in frame.nodes):
            self.console.go_to("node", subject)
        else:
            self.console.say(event.row.values[3] or event.row.values[2])

    def on_row_table_moved(self, event: RowTable.Moved) -> None:
        event.stop()
        self.query_one("#attention-words", Drawing).redraw()

    def action_chart_only(self) -> None:
        self.toggle_class("chart-only")
        self._arrange()
        self.focus_first()

    def focus_first(self) -> None:
        if self.has_class("chart-only"):
            self.focus()
        else:
            super().focus_first()

    def action_figure(self, by: int) -> None:
        self._figure = (self._figure + by) % len(FIGURES)
        self.query_one("#chart", Drawing).redraw()

    def _arrange(self) -> None:
        """Heights for the size of the pane and what there is to show."""
        frame = self.shown.frame
        width, height = self.size.width, self.size.height
        if frame is None or not height:
            return
        alone = self.has_class("chart-only")
        plan = plan_heights(frame, width, height, beside=self.wide, alone=alone)
        self.set_class(self.wide, "beside")
        for name, lines in plan.items():
            widget = self.query_one(f"#{name}")
            if widget.styles.height is None or widget.styles.height.value != lines:
                widget.styles.height = lines
        rows = len(frame.attention)
        table = self.query_one("#attention")
        if self.wide:
            table.styles.height = max(0, min(rows, plan.get("middle", 0) - 1 - WORDS_LINES))
            self.query_one("#map").styles.height = "1fr"
            self.query_one("#attention-side").styles.height = "1fr"
        else:
            table.styles.height = "1fr"

    def _draw_tiles(self, width: int, height: int) -> list[Line]:
        frame = self.shown.frame
        if frame is None:
            return []
        return tile_lines(frame, self.console.trail, self.console.marks, width, height)

    def _draw_map(self, width: int, height: int) -> list[Line]:
        frame, marks = self.shown.frame, self.console.marks
        if frame is None:
            return [line(quiet("waiting for the first frame"))]
        note = line(quiet(frame.provenance if not _simulated(frame) else "simulated"))
        title = heading("Pod", width, note, marks.rule)
        return [
            title,
            *map_lines(self.shown, frame, self.console.trail, marks, width, height - 1),
        ]

    def _draw_attention_title(self, width: int, _height: int) -> list[Line]:
        frame, marks = self.shown.frame, self.console.marks
        count = 0 if frame is None else len(frame.attention)
        if frame is None or self.shown.freshness == "lost":
            unknown = Span(f"{marks.states['unknown']} not known now", "warn")
            return [heading("Needs attention", width, line(unknown), marks.rule)]
        if not count:
            calm = Span(f"{marks.states['healthy']} nothing", "good")
            return [heading("Needs attention", width, line(calm), marks.rule)]
        return [heading("Needs attention", width, line(f"{count}"), marks.rule)]

    def _draw_attention(self, width: int, height: int) -> list[Line]:
        """The row under the cursor in full, and the command that shows or mends it."""
        row = self.query_one("#attention", RowTable).row
        if row is None:
            return []
        _, subject, sentence, command = row.values
        words = sentence if sentence.startswith(subject) else f"{subject}: {sentence}"
        lines = wrap(words, width)
        return [*lines, line(quiet("$ "), Span(command, "accent"))] if command else lines

    def _draw_chart(self, width: int, height: int) -> list[Line]:
        trail, marks = self.console.trail, self.console.marks
        if not height:
            return []
        across, down = (2 if width >= TWO_ACROSS else 1), (2 if height >= TWO_DOWN else 1)
        size = (width - 3) // 2 if across == 2 else width
        lines: list[Line] = []
        at = self._figure
        note = line(quiet(f"{at + 1} of {len(FIGURES)} "), Span("< >", "accent"))
        for row in range(down):
            room = height // down - 1 if row else height - height // down * (down - 1) - 1
            charts = [
                chart_lines(
                    FIGURES[(at + row * across + each) % len(FIGURES)], trail, marks, size, room,
                    note if not row and not each else BLANK,
                )
                for each in range(across)
            ]  # fmt: skip
            drawn = charts[0] if across == 1 else beside(charts[0], charts[1], size, 3)
            lines += [BLANK, *drawn, *[BLANK] * (room - len(drawn))]
        return lines


def plan_heights(
    frame: Frame, width: int, height: int, *, beside: bool, alone: bool
) -> dict[str, int]:
    """Lines for tiles, middle, map, attention-side and chart; the map first, then what fits."""
    if alone:
        return {"chart": height}
    tiles = 2 if height < 14 else 3 if height < 17 else 4
    room = height - tiles
    found = len(frame.attention)
    tree, field = wanted_heights(frame, width * 3 // 5 if beside else width)
    if beside:
        most = room * 6 // 10
        wanted = 1 + (tree if tree < most else field)
        middle = min(room, max(wanted, min(found + 1, most), 9))
        chart = room - middle
        if chart < LEAST_CHART:
            middle, chart = room, 0
        return {"tiles": tiles, "middle": middle, "chart": chart}
    attention = 1 + min(found, max(1, room // 4)) if found else 1
    whole = 1 + tree <= room - attention
    map_lines = min(room - attention, 1 + (tree if whole else field))
    chart = room - map_lines - attention
    if chart < LEAST_CHART:
        attention, chart = max(1, room - map_lines), 0
    return {
        "tiles": tiles, "middle": map_lines + attention, "map": map_lines,
        "attention-side": attention, "chart": chart,
    }  # fmt: skip


def attention_row(number: int, each: Attention, marks: Marks) -> Row:
    cells: tuple[Line, ...] = (
        marks.state(each.severity),
        line(Span(each.subject, STATE_INKS[each.severity])),
        line(each.sentence),
        line(quiet(each.command or "")),
    )
    values = (each.severity, each.subject, each.sentence, each.command)
    return Row(f"{number} {each.subject}", cells, values)


def _simulated(frame: Frame) -> bool:
    return any(node.simulated for node in frame.nodes)
