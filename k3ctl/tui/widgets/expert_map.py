"""The heat map as a widget: a cursor that stays on its expert whatever the size, Enter opens."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from k3ctl.tui.themes import colourless, inks
from k3ctl.tui.widgets.heat_bins import Grid, tier_pixels, tier_sums, use_levels
from k3ctl.tui.widgets.heat_map import (
    GUTTER,
    Line,
    Look,
    Pixels,
    Run,
    draw,
    draw_axis,
    draw_line,
    grid_for,
    tier_legend,
    tier_pixels_of,
    use_legend,
    use_pixels,
)

if TYPE_CHECKING:
    from textual import events

    from k3ctl.client.experts import Experts
    from k3ctl.tui.marks import Marks

Mode = Literal["use", "tier"]


@dataclass(frozen=True)
class HeatData:
    """Experts with what drawing them takes, made where nothing waits for it."""

    experts: Experts
    tier_sums: list[list[array[int]]]

    @classmethod
    def of(cls, experts: Experts, before: HeatData | None = None) -> HeatData:
        """Made from experts; what was made `before` serves again where they have not moved."""
        same = before is not None and before.experts.tier_of == experts.tier_of
        if same and before is not None and before.experts.count == experts.count:
            return cls(experts, before.tier_sums)
        return cls(experts, tier_sums(experts.tier_of, experts.count, len(experts.tiers)))


class ExpertMap(Widget, can_focus=True):
    """Layers by experts. The cursor is an expert; it moves by what one pixel stands for."""

    DEFAULT_CSS = "ExpertMap { height: 1fr; min-height: 3; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1, 0)", "up", show=False),
        Binding("down,j", "move(1, 0)", "down", show=False),
        Binding("left,h", "move(0, -1)", "left", show=False),
        Binding("right,l", "move(0, 1)", "right", show=False),
        Binding("pageup", "move(-8, 0)", "8 up", show=False),
        Binding("pagedown", "move(8, 0)", "8 down", show=False),
        Binding("home", "edge(-1)", "first expert", show=False),
        Binding("end", "edge(1)", "last expert", show=False),
        Binding("enter", "open", "open the layer"),
    ]

    class Moved(Message):
        """The cursor stands on another pixel."""

    class Opened(Message):
        """Enter, or a click on the pixel of the cursor."""

    def __init__(
        self,
        marks: Callable[[], Marks],
        *,
        id: str | None = None,  # noqa: A002 Textual's own name
    ) -> None:
        super().__init__(id=id)
        self.mode: Mode = "use"
        self.position = 0
        self.expert = 0
        self._marks = marks
        self._data: HeatData | None = None
        self._made: tuple[object, ...] | None = None
        self._grid: Grid | None = None
        self._pixels: Pixels | None = None
        self._lines: list[Line] = []
        self._line: int | None = None

    @property
    def look(self) -> Look:
        if self._marks().ascii:
            return "ascii"
        return "unicode" if colourless(self.app.theme) else "colour"

    @property
    def grid(self) -> Grid | None:
        """None before there is anything to draw."""
        return self._grid

    @property
    def under_cursor(self) -> tuple[range, range] | None:
        """Layer positions and experts of the cursor's pixel."""
        if self._grid is None:
            return None
        row, column = self._grid.pixel(self.position, self.expert)
        return self._grid.layers(row), self._grid.experts(column)

    def legend(self) -> Line:
        """What glyphs and inks mean, in words."""
        if self._data is None or self._grid is None:
            return ()
        if self.mode == "use":
            return use_legend(self.look, self._grid, self.size.width)
        return tier_legend(self._data.experts.tiers, self._grid)

    def show(self, data: HeatData | None, mode: Mode) -> None:
        """Draw these experts; without uses they are shown by tier whatever the mode."""
        came = (data is None) != (self._data is None)
        self._data = data
        if came:
            self.refresh_bindings()
        self.mode = mode if data is not None and data.experts.use_sums is not None else "tier"
        if data is not None:
            self.position = min(self.position, len(data.experts.layers) - 1)
            self.expert = min(self.expert, data.experts.count - 1)
        self._redraw()

    def put_cursor(self, position: int, expert: int) -> None:
        """Move the cursor to an expert of a layer position."""
        self.position, self.expert = position, expert
        self._redraw()
        self.post_message(self.Moved())

    def action_move(self, down: int, right: int) -> None:
        grid = self._grid
        if grid is None:
            return
        row, column = grid.pixel(self.position, self.expert)
        new_row = max(0, min(grid.height - 1, row + down))
        new_column = max(0, min(grid.width - 1, column + right))
        # Within its pixel an expert keeps its exact place: only what moves is rounded.
        position = self.position if new_row == row else grid.rows[new_row]
        expert = self.expert if new_column == column else grid.columns[new_column]
        if (position, expert) != (self.position, self.expert):
            self.put_cursor(position, expert)

    def action_edge(self, side: int) -> None:
        grid = self._grid
        if grid is not None:
            self.action_move(0, side * grid.width)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter is there while there is something to open."""
        return action != "open" or self._data is not None

    def action_open(self) -> None:
        if self._data is not None:
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        grid = self._grid
        if grid is None or event.y >= grid.lines:
            return
        row = 2 * event.y if grid.halved else event.y
        column = (event.x - GUTTER) // grid.wide
        if not 0 <= column < grid.width:
            return
        before = grid.pixel(self.position, self.expert)
        if before[0] in (row, row + grid.halved) and before[1] == column:
            self.action_open()
        else:
            self.put_cursor(grid.rows[row], grid.columns[column])

    def on_resize(self, _: events.Resize) -> None:
        self._redraw()
        self.post_message(self.Moved())

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def _redraw(self) -> None:
        """Draw what has changed: all of it for other experts, mode, size or look; else the lines
        that the cursor left and came to."""
        data, (width, height) = self._data, self.size
        if data is None or not width or not height:
            self._grid, self._lines, self._made = None, [], None
            self.refresh()
            return
        layers, look = data.experts.layers, self.look
        made = (id(data), self.mode, width, height, look)
        if made != self._made or self._pixels is None or self._grid is None:
            grid = grid_for(len(layers), data.experts.count, width, height, look)
            self._made, self._grid, self._pixels = made, grid, self._painted(data, grid, look)
            self._line = None
            self._lines = draw(grid, self._pixels, layers, look)
            self.refresh()
            self.post_message(self.Moved())  # its pixel stands for something else now
        grid, pixels = self._grid, self._pixels
        cursor = grid.pixel(self.position, self.expert)
        line = cursor[0] // 2 if grid.halved else cursor[0]
        for each in {self._line, line} - {None}:
            self._put(each, draw_line(grid, pixels, layers, look, each, cursor))
        self._line = line
        if grid.axis:
            self._put(grid.lines, draw_axis(grid, look, cursor))

    def _put(self, y: int, line: Line) -> None:
        """Show a line at a height, if it is another than before."""
        if y == len(self._lines) or line != self._lines[y]:
            self._lines[y : y + 1] = [line]
            self.refresh(Region(0, y, self.size.width, 1))

    def _painted(self, data: HeatData, grid: Grid, look: Look) -> Pixels:
        experts = data.experts
        if self.mode == "use" and experts.use_sums is not None:
            return use_pixels(use_levels(experts.use_sums, grid), look)
        return tier_pixels_of(tier_pixels(data.tier_sums, grid), experts.tiers)

    def render_lines(self, crop: Region) -> list[Strip]:
        made = self._made
        if self._data is not None and (made is None or made[2:4] != tuple(self.size)):
            # A first size may come without an event.
            self._redraw()
            self.post_message(self.Moved())
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if y >= len(self._lines):
            return Strip.blank(width, base)
        styles = heat_styles(self.app.theme, self.has_focus)
        segments = [Segment(run.text, base + styles(run)) for run in self._lines[y]]
        return Strip(segments).adjust_cell_length(width, base)


def heat_styles(theme: str, focused: bool) -> Callable[[Run], Style]:
    """What a run looks like in a theme: ink in front, the colour of its ground behind."""
    table = inks(theme)

    def style(run: Run) -> Style:
        found = table[run.ink]
        if run.ground is not None:
            # Bold would brighten one of the two colours of a cell in some terminals.
            found = Style(color=found.color, bgcolor=table[run.ground].color)
        if run.cursor and run.ground is None:
            found += Style(reverse=True, bold=focused)
        return found

    return style
