"""The overview: what needs attention, and the chart."""

from __future__ import annotations

import pytest

from k3ctl.tui.app import ConsoleApp
from tests.tui.driven import drive, opened, still, until
from tests.tui.screen_text import screen_lines, settled
from tests.tui.shown import text
from tests.tui.simulated_pod import SimulatedPod

POD = SimulatedPod(sparks=40, lanes=4)


def test_attention_opens_the_node_it_is_about() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: app.pane_name == "nodes" and "nodes" in app._body.opened)
        await settled(pilot)
        assert app.pane is not None
        found = app.pane.chosen()
        assert found is not None
        assert found.id == "spark-29"  # the alert comes before the warning of spark-17

    drive(body, pod=POD)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_enter_is_offered_where_a_row_is_under_the_cursor(size: tuple[int, int]) -> None:
    source = still(POD)
    whole, calm = source.frame, SimulatedPod(sparks=8).frame(201)

    async def body(app: ConsoleApp, pilot) -> None:
        for frame, offered in ((calm, False), (whole, True)):
            source.frame = frame
            app._feed.tick()
            await until(pilot, lambda frame=frame: app.snapshot.frame == frame)
            await settled(pilot)
            assert ("enter open" in screen_lines(app)[-1]) is offered
            assert ("▌ ▲ alert" in text(app)) is offered

    drive(body, pod=POD, source=source, size=size)


def test_the_chart_takes_the_pane_and_gives_it_back() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("v")
        await settled(pilot)
        assert "Needs attention" not in text(app)
        assert "Decoding, tokens/s" in text(app)
        await pilot.press("greater_than_sign")
        await settled(pilot)
        assert "Time between tokens, ms" in text(app)
        await pilot.press("escape")
        await settled(pilot)
        assert "Needs attention" in text(app)

    drive(body, pod=POD, size=(80, 24))


def test_escape_leads_back_to_where_enter_was_pressed() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: app.pane_name == "nodes" and "nodes" in app._body.opened)
        await settled(pilot)
        await pilot.press("escape")
        await settled(pilot)
        assert app.pane_name == "nodes"  # out of the page first
        await pilot.press("escape")
        await until(pilot, lambda: app.pane_name == "overview")
        await pilot.press("escape")
        await settled(pilot)
        assert app.pane_name == "overview"
        await opened(app, pilot, "nodes", "5")
        await pilot.press("escape")
        await settled(pilot)
        assert app.pane_name == "nodes"  # a pane's own key leads nowhere back

    drive(body, pod=POD, size=(80, 24))
