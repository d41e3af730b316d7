"""What the console's keys do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.widgets import Input, TextArea

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.deeds import Deed
from k3ctl.tui.dialogs import ConfirmDialog
from k3ctl.tui.keys import WORDS, KeysScreen
from k3ctl.tui.panes_list import PANES
from k3ctl.tui.widgets.row_table import RowTable
from k3ctl.tui.writing import WriteGuard
from tests.tui.driven import drive, opened, still, until
from tests.tui.screen_text import screen_lines, settled
from tests.tui.simulated_pod import SimulatedPod

POD = SimulatedPod(sparks=40, lanes=4)


def text_of(app: ConsoleApp) -> str:
    return "\n".join(screen_lines(app))


def rows_of(app: ConsoleApp) -> list[str]:
    assert app.pane is not None
    table = app.pane.table()
    assert table is not None
    return [row.key for row in table.rows]


async def typed(pilot, text: str) -> None:
    for character in text:
        await pilot.press(NAMES.get(character, character))


NAMES = {
    "/": "slash", ":": "colon", "-": "minus", "!": "exclamation_mark", " ": "space",
    "^": "circumflex_accent", "$": "dollar_sign", "[": "left_square_bracket", ".": "full_stop",
    "?": "question_mark", "@": "at",
}  # fmt: skip


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
        assert "round trip" in text_of(app)
        assert "NODE " not in text_of(app)
        await pilot.press("escape")
        await settled(pilot)
        assert "NODE " in text_of(app)

    drive(body, pod=POD, size=(80, 24))


def test_a_page_says_why_a_sensor_is_missing_and_offers_no_caps() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        app.go_to("node", "spark-13")
        await settled(pilot)
        assert "power_w: the driver does not support reading power here" in text_of(app)
        assert "Setting power and clock caps comes with node operations." in text_of(app)

    drive(body, pod=POD, size=(120, 60))


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
            assert f"filter {pattern}" in text_of(app)
        await opened(app, pilot, "lanes", "6")
        await opened(app, pilot, "nodes", "5")
        assert len(rows_of(app)) < len(everything)  # kept on return
        await pilot.press("escape")
        await settled(pilot)
        assert rows_of(app) == everything
        assert "filter" not in text_of(app).splitlines()[2]

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
        assert "is no regular expression" in text_of(app)

    drive(body, pod=POD)


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
        assert "there is no 'spark-1x'" in text_of(app)

    drive(body, pod=POD)


def test_copying_id_and_row() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        await pilot.press("down", "c")
        assert app.clipboard == "spark-1"
        await pilot.press("y")
        record = json.loads(app.clipboard)
        assert record["name"] == "spark-1"
        assert record["hop_p99_us"] == app.snapshot.frame.nodes[1].hop_p99_us  # type: ignore[union-attr]

    drive(body, pod=POD)


def test_saving_writes_what_is_shown_and_says_where(tmp_path: Path) -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        await pilot.press("slash")
        await typed(pilot, "spark-2")
        await pilot.press("enter", "s")
        await until(pilot, lambda: "saved" in text_of(app))
        (document,) = (tmp_path / "exports").glob("nodes-*.json")
        rows = json.loads(document.read_text())["rows"]
        assert [row["name"] for row in rows] == rows_of(app)
        table = document.with_suffix(".csv").read_text().splitlines()
        assert len(table) == len(rows) + 1
        assert table[0].startswith("name,state,power_w")
        assert document.with_suffix(".svg").read_text().startswith("<svg")
        missing = next(row for row in rows if row["power_w"] is None)
        assert f"{missing['name']},{missing['state']},," in "\n".join(table)

    drive(body, pod=POD, home=tmp_path)


def test_saving_where_nothing_can_be_written_is_a_sentence(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("not a folder")

    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("s")
        await until(pilot, lambda: "nothing was saved" in text_of(app))

    drive(body, pod=POD, home=home)


def test_pause_keeps_the_frame() -> None:
    source = still(POD)

    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("p")
        assert app.snapshot.source == "paused"
        assert "paused" in text_of(app)
        source.frame = POD.frame(260)
        app._feed.tick()
        await until(pilot, lambda: source.asked >= 2 and app._feed.open_s is None)
        await settled(pilot)
        assert app.snapshot.frame == POD.frame(200)
        await pilot.press("p")
        await until(pilot, lambda: app.snapshot.frame == POD.frame(260))
        assert app.snapshot.source == "live"

    drive(body, pod=POD, source=source)


def test_cancelling_a_request_shows_the_line_and_wants_more_than_enter() -> None:
    source = still(POD)

    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "lanes", "6")
        await pilot.press("down", "x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await settled(pilot)
        assert "$ k3ctl lanes cancel req-002" in text_of(app)
        assert app.focused is not None
        assert app.focused.id == "deed-cancel"
        await pilot.press("enter")
        await settled(pilot)
        assert source.cancelled == []
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("right", "enter")
        await until(pilot, lambda: source.cancelled == ["req-002"])
        await until(pilot, lambda: "request req-002 ends before" in text_of(app))

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
        assert "READ-ONLY" in text_of(app)
        await opened(app, pilot, "lanes", "6")
        assert "x" not in app.screen.active_bindings
        await pilot.press("x")
        await settled(pilot)
        assert not isinstance(app.screen, ConfirmDialog)
        await app.run_action("cancel", app.pane)
        await settled(pilot)
        assert not isinstance(app.screen, ConfirmDialog)
        assert "the Station is on 10.0.0.9" in text_of(app)
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
        await until(pilot, lambda: "nothing was changed" in text_of(app))
        assert source.cancelled == []

    drive(body, pod=POD, source=source, guard=guard)


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
        await until(pilot, lambda: "Open Nodes" in text_of(app))
        await settled(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: app.pane_name == "nodes")

    drive(body, pod=POD)


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
            assert ("▌ ▲ alert" in text_of(app)) is offered

    drive(body, pod=POD, source=source, size=size)


def test_the_chart_takes_the_pane_and_gives_it_back() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("v")
        await settled(pilot)
        assert "Needs attention" not in text_of(app)
        assert "Decoding, tokens/s" in text_of(app)
        await pilot.press("greater_than_sign")
        await settled(pilot)
        assert "Time between tokens, ms" in text_of(app)
        await pilot.press("escape")
        await settled(pilot)
        assert "Needs attention" in text_of(app)

    drive(body, pod=POD, size=(80, 24))


def test_frame_time_is_shown_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K3_DEBUG", "1")

    async def body(app: ConsoleApp, pilot) -> None:
        assert "drawn in " in screen_lines(app)[-1]

    drive(body, pod=POD)


def test_a_click_chooses_and_a_second_opens() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, "nodes", "5")
        await pilot.click(RowTable, offset=(5, 3))
        await settled(pilot)
        assert app.pane is not None
        assert app.pane.chosen().id == "spark-2"  # type: ignore[union-attr]
        await pilot.click(RowTable, offset=(5, 3))
        await settled(pilot)
        assert "Daemon" in text_of(app)

    drive(body, pod=POD, size=(80, 24))


def test_names_that_steer_a_terminal_do_not() -> None:
    import msgspec

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
