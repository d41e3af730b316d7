"""What `/` narrows, and how it is given up."""

from __future__ import annotations

from k3ctl.tui.app import ConsoleApp
from tests.tui.driven import drive, opened, rows_of, typed
from tests.tui.screen_text import settled
from tests.tui.shown import text
from tests.tui.simulated_pod import SimulatedPod

POD = SimulatedPod(sparks=40, lanes=4)


def test_filter_narrows_inverts_and_takes_expressions() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        everything = rows_of(app)
        for pattern, kept in (
            ("spark-1", lambda name: "spark-1" in name),
            ("!spark", lambda name: "spark" not in name),
            ("^spark-3$|station", None),
        ):
            await pilot.press("slash")
            for _ in range(20):
                await pilot.press("backspace")
            app.query_one("#prompt-field").value = pattern  # type: ignore[attr-defined]
            await pilot.press("enter")
            await settled(pilot)
            if kept is not None:
                assert rows_of(app) == [name for name in everything if kept(name)]
            assert f"filter {pattern}" in text(app)
        await opened(app, pilot, "lanes", "6")
        await opened(app, pilot, "nodes", "5")
        assert len(rows_of(app)) < len(everything)  # kept on return
        await pilot.press("escape")
        await settled(pilot)
        assert rows_of(app) == everything
        assert "filter" not in text(app).splitlines()[2]

    drive(body, pod=POD)


def test_filter_applies_while_it_is_typed_and_escape_gives_up() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        count = len(rows_of(app))
        await pilot.press("slash")
        await typed(pilot, "down")
        await settled(pilot)
        assert 0 < len(rows_of(app)) < count
        await pilot.press("escape")
        await settled(pilot)
        assert len(rows_of(app)) == count

    drive(body, pod=POD)


def test_a_bad_expression_is_a_sentence() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        await pilot.press("slash")
        await typed(pilot, "spark[")
        await pilot.press("enter")
        await settled(pilot)
        assert "is no regular expression" in text(app)

    drive(body, pod=POD)
