"""What changes the pod: shown first, confirmed, and refused where it is not allowed."""

from __future__ import annotations

from typing import Any

import pytest
from textual.command import CommandPalette

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.deeds import Deed
from k3ctl.tui.dialogs import ConfirmDialog
from k3ctl.tui.panes_list import PANES
from k3ctl.tui.writing import WriteGuard
from tests.tui.driven import drive, opened, still, typed, until
from tests.tui.screen_text import screen_lines, settled
from tests.tui.shown import text
from tests.tui.simulated_pod import SimulatedPod, SimulatedRecording

POD = SimulatedPod(sparks=40, lanes=4)


def test_cancelling_a_request_shows_the_line_and_wants_more_than_enter() -> None:
    source = still(POD)

    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "lanes", "6")
        await pilot.press("down", "x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await settled(pilot)
        assert "$ k3ctl lanes cancel req-002" in text(app)
        assert app.focused is not None
        assert app.focused.id == "deed-cancel"
        await pilot.press("enter")
        await settled(pilot)
        assert source.cancelled == []
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("right", "enter")
        await until(pilot, lambda: source.cancelled == ["req-002"])
        await until(pilot, lambda: "request req-002 ends before" in text(app))

    drive(body, pod=POD, source=source)


def test_the_worst_deeds_want_their_word() -> None:
    done: list[str] = []

    async def body(app: ConsoleApp, pilot) -> None:
        deed = Deed("Wipe", "k3ctl wipe spark-1", "All is gone.", lambda: done.append("it") or "ok",
                    word="spark-1")  # fmt: skip
        app.carry_out(deed)
        await until(pilot, lambda: bool(app.screen.query("#deed-do")))
        await settled(pilot)
        assert app.screen.query_one("#deed-do").disabled
        await pilot.press("shift+tab")
        await typed(pilot, "spark-2")
        assert app.screen.query_one("#deed-do").disabled
        await pilot.press("backspace")
        await typed(pilot, "1")
        await pilot.press("enter")
        assert app.focused is not None
        assert app.focused.id == "deed-do"
        await pilot.press("enter")
        await until(pilot, lambda: done == ["it"])

    drive(body, pod=POD)


class Far(WriteGuard):
    """A Station over a network."""

    def __init__(self) -> None:
        super().__init__(None)

    def reason(self) -> str | None:
        return "the Station is on 10.0.0.9; start with --write to allow changes"


def test_read_only_binds_no_deeds_and_refuses_them_too() -> None:
    source = still(POD)

    async def body(app: ConsoleApp, pilot) -> None:
        assert "READ-ONLY" in text(app)
        await opened(app, pilot, "lanes", "6")
        assert "x" not in app.screen.active_bindings
        await pilot.press("x")
        await settled(pilot)
        assert not isinstance(app.screen, ConfirmDialog)
        await app.run_action("cancel", app.pane)
        await settled(pilot)
        assert not isinstance(app.screen, ConfirmDialog)
        assert "the Station is on 10.0.0.9" in text(app)
        assert source.cancelled == []

    drive(body, pod=POD, source=source, guard=Far())


def test_a_station_that_moved_meanwhile_is_not_changed() -> None:
    source = still(POD)
    guard = WriteGuard(None)

    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "lanes", "6")
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        guard.reason = Far().reason  # type: ignore[method-assign]
        await pilot.press("right", "enter")
        await until(pilot, lambda: "nothing was changed" in text(app))
        assert source.cancelled == []

    drive(body, pod=POD, source=source, guard=guard)


async def from_palette(app: ConsoleApp, pilot, words: str) -> None:
    """Choose an entry by its words."""
    await pilot.press("ctrl+p")
    await settled(pilot)
    app.screen.query_one("CommandInput").value = words  # type: ignore[attr-defined]
    await until(pilot, lambda: words in text(app) and bool(app.screen.query("CommandList")))
    await settled(pilot)
    await pilot.press("enter")
    await until(pilot, lambda: not isinstance(app.screen, CommandPalette))


def test_deeds_are_named_for_the_palette_and_are_their_panes_own() -> None:
    titles = [deed.tooltip for pane in PANES for deed in pane.deeds]
    assert len(set(titles)) == len(titles) > 0
    assert all(titles)
    for pane in PANES:
        made = pane.make()
        for deed in pane.deeds:
            assert callable(getattr(made, f"action_{deed.action}")), (pane.name, deed.action)


def test_the_palette_takes_one_to_a_deed_from_any_pane() -> None:
    source = still(POD)

    async def body(app: ConsoleApp, pilot) -> None:
        await from_palette(app, pilot, "Cancel the request chosen")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await until(pilot, lambda: "$ k3ctl lanes cancel req-001" in text(app))
        await pilot.press("enter")
        await settled(pilot)
        assert app.pane_name == "lanes"
        assert source.cancelled == []
        await pilot.press("escape")
        await until(pilot, lambda: app.pane_name == "overview")

    drive(body, pod=POD, source=source)


def test_a_deed_without_its_object_says_so_and_is_not_offered_as_a_key() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "lanes", "6")
        assert "cancel request" not in screen_lines(app)[-1]
        await opened(app, pilot, "nodes", "5")
        await from_palette(app, pilot, "Cancel the request chosen")
        await until(pilot, lambda: "there is no request to cancel" in text(app))
        assert app.pane_name == "lanes"
        await from_palette(app, pilot, "Abort the swap")
        await until(pilot, lambda: "no swap is under way" in text(app) or "no home" in text(app))

    drive(body, pod=SimulatedPod(sparks=2, lanes=0))


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"source": SimulatedRecording(POD, 60)}, "nothing is changed: this is a replay"),
     ({"guard": Far()}, "nothing is changed: the Station is on 10.0.0.9")],
    ids=["replay", "read-only"],
)  # fmt: skip
def test_where_nothing_may_be_changed_the_palette_says_why(
    settings: dict[str, Any], said: str
) -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await until(pilot, lambda: app.snapshot.number > 0)
        for deed in (deed for pane in PANES for deed in pane.deeds):
            await from_palette(app, pilot, deed.tooltip)
            await until(pilot, lambda: said in " ".join(text(app).split()))
            assert app.pane_name == "overview"
            await pilot.press("escape")
            await settled(pilot)
            assert said not in text(app)

    drive(body, pod=POD, **settings)
