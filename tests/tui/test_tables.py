"""Tables and their rows: order, clicks, pages, and names that are no plain text."""

from __future__ import annotations

import msgspec

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.widgets.row_table import RowTable
from tests.tui.driven import drive, opened, still
from tests.tui.screen_text import screen_lines, settled
from tests.tui.shown import text
from tests.tui.simulated_pod import SimulatedPod

POD = SimulatedPod(sparks=40, lanes=4)


def test_a_page_says_why_a_sensor_is_missing_and_offers_no_caps() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        app.go_to("node", "spark-13")
        await settled(pilot)
        assert "power_w: the driver does not support reading power here" in text(app)
        assert "Setting power and clock caps comes with node operations." in text(app)

    drive(body, pod=POD, size=(120, 60))


def test_sorting_keeps_what_is_unknown_at_the_end() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        assert app.pane is not None
        table = app.pane.table()
        assert isinstance(table, RowTable)
        while table.order != "WATTS":
            await pilot.press("o")
        for reverse in (False, True):
            known = [row.values[2] for row in table.rows if row.values[2] is not None]
            assert known == sorted(known, reverse=reverse)
            assert all(row.values[2] is None for row in table.rows[len(known) :])
            await pilot.press("O")

    drive(body, pod=POD, size=(250, 70))


def test_a_click_chooses_and_a_second_opens() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        await pilot.click(RowTable, offset=(5, 3))
        await settled(pilot)
        assert app.pane is not None
        assert app.pane.chosen().id == "spark-2"  # type: ignore[union-attr]
        await pilot.click(RowTable, offset=(5, 3))
        await settled(pilot)
        assert "Daemon" in text(app)

    drive(body, pod=POD, size=(80, 24))


def test_names_that_steer_a_terminal_do_not() -> None:
    source = still(POD)
    nodes = list(source.frame.nodes)
    nodes[1] = msgspec.structs.replace(nodes[1], name="\x1b[31mred\x07\nnode")
    source.frame = msgspec.structs.replace(source.frame, nodes=tuple(nodes))

    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        await pilot.press("down", "enter")
        await settled(pilot)
        shown = "".join(screen_lines(app))
        assert "\x1b" not in shown
        assert "\x07" not in shown

    drive(body, pod=POD, source=source)
