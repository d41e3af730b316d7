"""What the console's keys do, and what `?` and the foot say of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, TextArea

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.dialogs import ConfirmDialog
from k3ctl.tui.keys import WORDS, KeysScreen, key_help
from k3ctl.tui.panes_list import PANES
from k3d.store.run_file import log_path
from tests.tui.driven import drive, opened, still, typed, until
from tests.tui.fake_station import FakeStation
from tests.tui.screen_text import screen_lines, settled
from tests.tui.shown import text
from tests.tui.simulated_pod import SimulatedPod, SimulatedRecording

POD = SimulatedPod(sparks=40, lanes=4)


def test_number_keys_open_every_pane() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        for pane in PANES:
            await opened(app, pilot, pane.name, pane.key)
            assert app.pane is not None
            assert app.pane.display
            assert [each.id for each in app.query("#body > *") if each.display] == [app.pane.id]

    drive(body, pod=POD)


def test_keys_of_panes_are_unique_and_ordered() -> None:
    keys = [pane.key for pane in PANES]
    assert keys == sorted(set(keys))
    assert len({pane.name for pane in PANES}) == len(PANES)


def test_enter_drills_and_escape_returns() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        await pilot.press("down", "down", "enter")
        await settled(pilot)
        assert "round trip" in text(app)
        assert "NODE " not in text(app)
        await pilot.press("escape")
        await settled(pilot)
        assert "NODE " in text(app)

    drive(body, pod=POD, size=(80, 24))


def test_pause_keeps_the_frame() -> None:
    source = still(POD)

    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("p")
        assert app.snapshot.source == "paused"
        assert "paused" in text(app)
        source.frame = POD.frame(260)
        app._feed.tick()
        await until(pilot, lambda: source.asked >= 2 and app._feed.open_s is None)
        await settled(pilot)
        assert app.snapshot.frame == POD.frame(200)
        await pilot.press("p")
        await until(pilot, lambda: app.snapshot.frame == POD.frame(260))
        assert app.snapshot.source == "live"

    drive(body, pod=POD, source=source)


def test_keys_are_generated_from_the_bindings_in_force() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        for pane in PANES:
            await opened(app, pilot, pane.name, pane.key)
            app.set_focus(None)
            await settled(pilot)
            assert app.pane is not None
            app.pane.focus_first()
            await settled(pilot)
            bound = {
                WORDS.get(each.binding.action, each.binding.description)
                for each in app.screen.active_bindings.values()
                if each.enabled and each.binding.description and not each.binding.system
                if not each.binding.key.startswith("super+")
                and not isinstance(each.node, Input | TextArea)
            }
            await app.run_action("keys")
            await until(pilot, lambda: isinstance(app.screen, KeysScreen))
            await settled(pilot)
            listed = "\n".join(
                "".join(text for text, _ in line)
                for line in app.screen.query_one("#keys-list").lines  # type: ignore[attr-defined]
            )
            assert not [words for words in bound if words not in listed]
            await pilot.press("escape")
            await settled(pilot)

    drive(body, pod=POD, size=(100, 60))


def test_the_palette_opens_a_pane() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("ctrl+p")
        await settled(pilot)
        await typed(pilot, "open nodes")
        await until(pilot, lambda: "Open Nodes" in text(app))
        await settled(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: app.pane_name == "nodes")

    drive(body, pod=POD)


def test_frame_time_is_shown_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K3_DEBUG", "1")

    async def body(app: ConsoleApp, pilot) -> None:
        assert "drawn in " in screen_lines(app)[-1]

    drive(body, pod=POD)


def listed_keys(app: ConsoleApp) -> dict[str, list[str]]:
    """What `?` would list now: key to what it does, once for every time that it is there."""
    found: dict[str, list[str]] = {}
    for group in key_help(app.screen.active_bindings.values(), app):
        for each in group:
            for key in each.keys.split():
                found.setdefault(key, []).append(each.does)
    return found


@pytest.mark.parametrize("recorded", [False, True], ids=["live", "replay"])
def test_every_key_is_listed_once_in_plain_words(recorded: bool, home: Path) -> None:
    source = SimulatedRecording(POD, 60) if recorded else None

    async def body(app: ConsoleApp, pilot) -> None:
        await until(pilot, lambda: app.snapshot.number > 0)
        for pane in PANES:
            await app.run_action(f"pane('{pane.name}')")
            await until(pilot, lambda pane=pane: pane.name in app._body.opened)
            await settled(pilot)
            assert app.pane is not None
            for widget in (w for w in app.pane.query("*") if w.focusable):
                widget.focus()
                await settled(pilot)
                listed = listed_keys(app)
                doubled = {key: does for key, does in listed.items() if len(does) > 1}
                assert not doubled, (pane.name, widget)
                assert listed["^c"] == ["quit"], (pane.name, widget)
                capitals = [d for does in listed.values() for d in does if d.istitle() and " " in d]
                assert not capitals, "Textual's own words"

    drive(body, pod=POD, source=source, home=home)


@pytest.mark.parametrize("where", ["pane", "line", "prompt", "keys", "dialog", "palette"])
def test_ctrl_c_leaves_the_console_wherever_one_is(where: str, home: Path) -> None:
    source = still(POD)

    async def body(app: ConsoleApp, pilot) -> None:
        match where:
            case "line":
                await opened(app, pilot, "chat", "8")
                await typed(pilot, "hello")
                await pilot.press("shift+home")  # what is selected would be copied
            case "prompt":
                await pilot.press("slash", "a")
            case "keys":
                await pilot.press("question_mark")
            case "palette":
                await pilot.press("ctrl+p")
            case "dialog":
                await opened(app, pilot, "lanes", "6")
                await pilot.press("x")
                await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
            case _:
                pass
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running)
        assert source.cancelled == []

    drive(body, pod=POD, source=source, home=home)


def test_the_line_that_is_typed_tells_how_to_leave(home: Path) -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "chat", "8")
        assert screen_lines(app)[-1].endswith("^c quit")

    drive(body, pod=POD, home=home)


def test_enter_is_offered_where_there_is_something_to_open(home: Path) -> None:
    station = FakeStation()
    station.hold()

    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "events", "7")
        assert "enter" not in screen_lines(app)[-1]
        await opened(app, pilot, "tiers", "2")
        assert "enter" not in screen_lines(app)[-1]
        station.release()
        await until(pilot, lambda: "enter open the layer" in screen_lines(app)[-1])
        await opened(app, pilot, "events", "7")
        with log_path(home, "station").open("a") as file:
            file.write('{"ts": 1796000000, "level": "info", "node": "station", "message": "up"}\n')
        assert app.pane is not None
        app.pane.show(app.snapshot)
        await until(pilot, lambda: "enter whole line" in screen_lines(app)[-1])

    drive(body, pod=POD, home=home, live=station)
