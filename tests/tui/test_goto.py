"""Where `:` leads, and what it says of places that there are not."""

from __future__ import annotations

import pytest

from k3ctl.tui.app import ConsoleApp
from tests.tui.driven import drive, opened, typed, until
from tests.tui.fake_station import FakeStation
from tests.tui.screen_text import settled
from tests.tui.shown import text
from tests.tui.simulated_pod import SimulatedPod

POD = SimulatedPod(sparks=40, lanes=4)


@pytest.mark.parametrize(
    ("words", "pane", "chosen"),
    [("node spark-7", "nodes", "spark-7"), ("spark-7", "nodes", "spark-7"),
     ("lane req-003", "lanes", "req-003"), ("pane events", "events", None),
     ("LANES", "lanes", None)],
)  # fmt: skip
def test_go_to(words: str, pane: str, chosen: str | None) -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("colon")
        app.query_one("#prompt-field").value = words  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: app.pane_name == pane and pane in app._body.opened)
        await settled(pilot)
        if chosen is not None:
            assert app.pane is not None
            found = app.pane.chosen()
            assert found is not None
            assert found.id == chosen

    drive(body, pod=POD)


def test_go_to_completes_with_tab_and_names_candidates() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("colon")
        await typed(pilot, "stat")
        await settled(pilot)
        await pilot.press("tab")
        assert app.query_one("#prompt-field").value == "station"  # type: ignore[attr-defined]
        await pilot.press("escape", "colon")
        await typed(pilot, "spark-1x")
        await pilot.press("enter")
        await settled(pilot)
        assert "there is no 'spark-1x'" in text(app)

    drive(body, pod=POD)


@pytest.mark.parametrize(
    ("typed_text", "said"),
    [("expert 3/99", "layer 3 has no expert 99; its experts are 0 to 63"),
     ("99/1", "there is no expert 99/1; layers with experts are 1 to 12"),
     ("expert 3", "an expert is a layer and a number in it, as in expert 3/12"),
     ("node spark-99", "of nodes there are station, spark-1, spark-2, spark-3, spark-4, spark-5 "
      "and 35 more"),
     ("tier tape", "of tiers there are hbm, rtx, grace, spark"),
     ("statoin", "much like it: node station"),
     ("qqqq", "a place is one of pane, node, tier, lane, expert and its name")],
)  # fmt: skip
def test_what_is_not_there_is_told_with_what_there_is(typed_text: str, said: str) -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("colon")
        app.query_one("#prompt-field").value = typed_text  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: said in " ".join(text(app).split()))

    drive(body, pod=POD, live=FakeStation())


def test_an_expert_is_gone_to_before_the_experts_have_come() -> None:
    station = FakeStation()
    station.hold()

    async def body(app: ConsoleApp, pilot) -> None:
        assert app.go_to("expert", "5/12")
        await until(pilot, lambda: "asking for the experts" in text(app))
        station.release()
        await until(pilot, lambda: "layer 5, expert 12" in text(app))

    drive(body, pod=POD, live=station)


def test_a_row_that_the_filter_keeps_out_is_not_said_to_be_gone() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        app._body.narrow("spark-2")
        assert not app.go_to("node", "spark-3")
        await until(pilot, lambda: "spark-3 is not among what the filter leaves" in text(app))
        app._body.narrow("")
        assert not app.go_to("node", "spark-99")
        await until(pilot, lambda: "there are station, spark-1" in text(app))

    drive(body, pod=POD)
