"""The tiers pane: how much each tier is used, and every expert's use and place on one map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher

from k3ctl.client.experts import Experts, expert_facts
from k3ctl.tui.chrome import age
from k3ctl.tui.ink import Line, Span, dimmed, line, quiet, strong
from k3ctl.tui.pane import Chosen, Pane, Sheet
from k3ctl.tui.screens.tiers_rows import COLUMNS, layer_rows
from k3ctl.tui.screens.tiers_source import Told, question
from k3ctl.tui.screens.tiers_view import expert_lines, pixel_line, tier_lines
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.widgets.columns import Row
from k3ctl.tui.widgets.detail import Detail
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.expert_map import ExpertMap, Mode
from k3ctl.tui.widgets.heat_map import Line as HeatLine
from k3ctl.tui.widgets.row_table import RowTable
from k3d.errors import K3Error

EVERY_FRAMES = 2
"""Uses are asked for with every second frame: they change slowly and are many."""
OLD_INTERVALS = 5


class TiersPane(Pane):
    """Tiers in lines, experts as a heat map; Enter goes from a layer to one of its experts."""

    DEFAULT_CSS = """
    TiersPane ContentSwitcher { height: 1fr; }
    TiersPane.-roomy #tiers-top { margin-bottom: 1; }
    TiersPane.-inside #tiers-top { display: none; }
    TiersPane.-inside.-roomy #tiers-top { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "turn", "by tier or use"),
        Binding("left,h", "layer(-1)", "the one before", show=False),
        Binding("right,l", "layer(1)", "the next one", show=False),
    ]
    HELP: ClassVar[str] = (
        "The map has a row a layer and a column an expert; where they do not all fit, a pixel "
        "stands for several. Its level is the use of the pixel's experts as a multiple of an even "
        "share: what each would have if all were used alike. Arrows move, t turns between use and "
        "tier, Enter opens the layer and then the expert; there left and right go to the next one. "
        "Uses are counted since the Station started (measured). They are recorded every half hour: "
        "in a replay the map shows those of the half hour that the moment lies in."
    )

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._mode: Mode = "use"
        self._told: Told | None = None
        self._reason: str | None = None
        self._asked_number = -EVERY_FRAMES
        self._layer = 0
        self._expert: int | None = None
        self._bound_for: str | None = None

    def compose(self) -> ComposeResult:
        yield Drawing(self._draw_top, fit=True, id="tiers-top")
        with ContentSwitcher(initial="tiers-map"):
            yield ExpertMap(lambda: self.console.marks, id="tiers-map")
            yield RowTable(COLUMNS, lambda: self.console.marks, id="tiers-layer",
                           nothing="no experts")  # fmt: skip
            yield Detail(self._draw_expert, id="tiers-expert")
        yield Drawing(self._draw_foot, id="tiers-foot", fit=True)

    # What is shown

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        self.set_class(self.tall, "-roomy")
        self._ask()
        self._redraw()

    def _ask(self) -> None:
        """Fetch what the frame does not have: uses, and the map of an epoch that is new."""
        frame, console = self.shown.frame, self.console
        every = 1 if console.live is None else EVERY_FRAMES
        if frame is None or self.shown.number - self._asked_number < every:
            return
        asked = question(frame, console.live, console.home, self._told)
        if console.ask("expert-use", asked, self._take, self._fail):
            self._asked_number = self.shown.number

    def _take(self, told: Told) -> None:
        had_uses = self.experts is not None and self.experts.use_sums is not None
        if told.reason is not None and had_uses and self.console.live is not None:
            # The last that was counted stays, and its age shows.
            self._reason = told.reason
        else:
            self._told, self._reason = told, told.reason
        self._redraw()
        self._go_on()
        self._ask()  # a replay may have moved on meanwhile, and then stood still

    def _fail(self, error: K3Error) -> None:
        self._reason = error.message
        self._redraw()
        self._go_on()

    def _go_on(self) -> None:
        """To the expert that was wanted before there were any."""
        name, self._bound_for = self._bound_for, None
        if name is not None and not self.go("expert", name):
            self.console.say(self.lacks("expert", name), "warning")

    @property
    def experts(self) -> Experts | None:
        return None if self._told is None else self._told.data.experts

    @property
    def _view(self) -> str:
        return self.query_one(ContentSwitcher).current or "tiers-map"

    def _redraw(self) -> None:
        if not self.is_attached:
            return
        self.query_one("#tiers-top", Drawing).redraw()
        self.query_one(ExpertMap).show(None if self._told is None else self._told.data, self._mode)
        if self._view == "tiers-layer":
            self.query_one(RowTable).set_rows(self._rows())
        elif self._view == "tiers-expert":
            self.query_one(Detail).redraw()
        self.query_one("#tiers-foot", Drawing).redraw()

    def _draw_top(self, width: int, _: int) -> Sequence[Line]:
        console = self.console
        lines = tier_lines(self.shown.frame, console.trail, console.marks, width)
        return lines if self.shown.freshness == "fresh" else [dimmed(each) for each in lines]

    def _draw_foot(self, width: int, _: int) -> Sequence[Line]:
        experts, heat = self.experts, self.query_one(ExpertMap)
        if experts is None:
            return [line(quiet(self._reason or "asking for the experts"))]
        if self._view == "tiers-layer":
            where = f"layer {experts.layers[self._layer]}"
            return [line(strong(where), quiet("  left and right: the layers beside it"))]
        if self._view == "tiers-expert":
            return [line(quiet("left and right: the experts beside it"))]
        lines = [as_spans(heat.legend())]
        under = heat.under_cursor
        if under is not None:
            lines.append(pixel_line(experts, *under))
        old_s = self._uses_age_s
        if self._reason is not None:
            lines.append(line(Span(self._reason, "warn" if experts.use_sums else "quiet")))
        elif old_s is not None:
            lines.append(line(Span(f"uses were counted {age(old_s)} ago", "warn")))
        elif self._told is not None and self.console.live is None:
            lines.append(line(quiet(f"used {self._told.counted}")))
        return lines

    @property
    def _uses_age_s(self) -> float | None:
        """How old the uses are that are shown; None while they are as new as they get."""
        frame, told = self.shown.frame, self._told
        if frame is None or told is None or told.reason is not None or self.console.live is None:
            return None
        age_s = (frame.at_ms - told.at_ms) / 1000 + self.shown.age_s
        return age_s if age_s > OLD_INTERVALS * max(1.0, self.shown.interval_s) else None

    # One layer, one expert

    def _rows(self) -> Iterable[Row]:
        return () if self.experts is None else layer_rows(self.experts, self._layer)

    def _draw_expert(self, width: int, _: int) -> Sequence[Line]:
        experts, frame = self.experts, self.shown.frame
        if experts is None or self._told is None or self._expert is None:
            return []
        nodes = () if frame is None else frame.nodes
        facts = expert_facts(experts, self._layer, self._expert, nodes)
        used = self._reason if facts.uses is None else self._told.counted
        return expert_lines(facts, used, self.console.marks, width)

    def _open_layer(self, position: int, expert: int) -> None:
        self._layer = position
        table = self.query_one(RowTable)
        self._turn_to("tiers-layer")
        table.set_rows(self._rows())
        table.put_cursor(str(expert))
        table.focus()
        self._redraw()

    @on(ExpertMap.Opened)
    def _open_from_map(self) -> None:
        heat = self.query_one(ExpertMap)
        self._open_layer(heat.position, heat.expert)

    @on(ExpertMap.Moved)
    def _moved(self) -> None:
        self.query_one("#tiers-foot", Drawing).redraw()

    @on(RowTable.Opened)
    def _open_expert(self, event: RowTable.Opened) -> None:
        self._show_expert(int(event.row.key))

    def _show_expert(self, expert: int) -> None:
        self._expert = expert
        self._turn_to("tiers-expert")
        detail = self.query_one(Detail)
        detail.restart()
        detail.focus()
        self._redraw()

    def _turn_to(self, view: str) -> None:
        """Show the map, a layer or an expert, which on few lines have the pane to themselves."""
        self.query_one(ContentSwitcher).current = view
        self.set_class(view != "tiers-map", "-inside")

    def action_layer(self, by: int) -> None:
        """The layer before or after; of one expert, the expert."""
        experts = self.experts
        if experts is None or self._view == "tiers-map":
            return
        if self._view == "tiers-expert" and self._expert is not None:
            self._show_expert(max(0, min(experts.count - 1, self._expert + by)))
            return
        self._layer = max(0, min(len(experts.layers) - 1, self._layer + by))
        self._redraw()

    def action_turn(self) -> None:
        """From use to tier and back."""
        experts = self.experts
        if self._mode == "tier" and experts is not None and experts.use_sums is None:
            self.console.say(f"no uses: {self._reason or 'they are not available'}", "warning")
            return
        self._mode = "tier" if self._mode == "use" else "use"
        self._redraw()

    # The console's keys

    def back(self) -> bool:
        heat = self.query_one(ExpertMap)
        if self._view == "tiers-expert":
            self._turn_to("tiers-layer")
            table = self.query_one(RowTable)
            table.set_rows(self._rows())
            table.put_cursor(str(self._expert))
            table.focus()
        elif self._view == "tiers-layer":
            row = self.query_one(RowTable).row
            self._turn_to("tiers-map")
            heat.put_cursor(self._layer, heat.expert if row is None else int(row.key))
            heat.focus()
        else:
            return False
        self._redraw()
        return True

    def go(self, kind: str, name: str) -> bool:
        if kind == "tier":
            frame = self.shown.frame
            self._mode = "tier"
            self._redraw()
            return frame is not None and any(tier.name == name for tier in frame.tiers)
        experts = self.experts
        if experts is None:
            self._bound_for = name if self._reason is None else None
            return self._reason is None
        layer, expert = _numbers(name)
        if layer not in experts.layers or not 0 <= expert < experts.count:
            return False
        self._open_layer(experts.layers.index(layer), expert)
        self._show_expert(expert)
        return True

    def lacks(self, kind: str, name: str) -> str:
        frame, experts = self.shown.frame, self.experts
        if kind == "tier":
            names = [] if frame is None else [tier.name for tier in frame.tiers]
            return f"there is no tier {name}; there are {', '.join(names) or 'none yet'}"
        if experts is None:
            return f"expert {name} cannot be shown: {self._reason}"
        layer, expert = _numbers(name)
        if layer in experts.layers:
            return f"layer {layer} has no expert {expert}; its experts are 0 to {experts.count - 1}"
        layers = f"layers with experts are {experts.layers[0]} to {experts.layers[-1]}"
        return f"there is no expert {name}; {layers}"

    def table(self) -> RowTable | None:
        return self.query_one(RowTable) if self._view == "tiers-layer" else None

    def chosen(self) -> Chosen | None:
        experts, heat, frame = self.experts, self.query_one(ExpertMap), self.shown.frame
        if experts is None:
            return None
        position, expert = heat.position, heat.expert
        row = self.query_one(RowTable).row
        if self._view == "tiers-layer" and row is not None:
            position, expert = self._layer, int(row.key)
        elif self._view == "tiers-expert" and self._expert is not None:
            position, expert = self._layer, self._expert
        facts = expert_facts(experts, position, expert, () if frame is None else frame.nodes)
        record = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
        return Chosen(f"{facts.layer}/{facts.expert}", record)

    def sheet(self) -> Sheet | None:
        if self._view == "tiers-layer":
            return super().sheet()
        frame = self.shown.frame
        if frame is None:
            return None
        names = tuple(frame.tiers[0].__struct_fields__) if frame.tiers else ()
        rows = tuple(tuple(getattr(tier, name) for name in names) for tier in frame.tiers)
        return Sheet("tiers", names, rows)

    def focus_first(self) -> None:
        views = {"tiers-layer": RowTable, "tiers-expert": Detail}
        view = self.query_one(views.get(self._view, ExpertMap))
        # The first time, what is in front is only settled with the next refresh.
        self.call_after_refresh(view.focus)


def as_spans(runs: HeatLine) -> Line:
    """A line of the heat map as ink."""
    return tuple(Span(run.text, run.ink) for run in runs)


def _numbers(name: str) -> tuple[int, int]:
    """Layer and number of an expert, `3/12`; -1 for what is no number."""
    layer, _, expert = name.partition("/")
    return (int(layer) if layer.isdigit() else -1), (int(expert) if expert.isdigit() else -1)
