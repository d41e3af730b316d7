"""The tiers pane: the map, a layer, an expert, and what it says when there is nobody to ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k3ctl.client.experts import expert_facts, experts_of, holders_of, map_of_epoch
from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.screens.tiers import TiersPane
from k3ctl.tui.widgets.expert_map import ExpertMap
from k3d.errors import K3Error, NodeLost, NotFound
from k3d.store import use_log
from k3d.store.frame import NodeFrame
from k3d.store.state import StateStore
from k3d.store.telemetry import TelemetryStore
from k3d.store.use_log import ExpertUses
from tests.tui.driven import drive, opened, until
from tests.tui.fake_station import TIERS, FakeStation, placed, tiers, uses
from tests.tui.screen_text import screen_lines, settled
from tests.tui.shown import shows, text
from tests.tui.simulated_pod import BEGIN_MS, SimulatedPod, SimulatedRecording

NODES = (
    NodeFrame(name="station", role="station", state="healthy"),
    NodeFrame(name="spark-1", role="spark", state="healthy", slice="1/2"),
    NodeFrame(name="spark-2", role="spark", state="down", slice="2/2"),
)


def pane_of(app: ConsoleApp) -> TiersPane:
    return app.query_one(TiersPane)


async def with_experts(app: ConsoleApp, pilot: Any) -> TiersPane:
    """The pane open and its experts there."""
    await opened(app, pilot, "tiers", "2")
    pane = pane_of(app)
    await until(pilot, lambda: pane.experts is not None and isinstance(app.focused, ExpertMap))
    await settled(pilot)
    return pane


# Experts


def test_facts_of_an_expert_are_the_stations_and_the_maps() -> None:
    station = FakeStation()
    experts = experts_of(placed(), station.expert_use())
    counted = uses(12, 64)
    for position, expert in ((0, 0), (3, 17), (11, 63)):
        facts = expert_facts(experts, position, expert, NODES)
        assert facts.layer == position + 1
        assert facts.tier == placed().tier(position + 1, expert)
        assert facts.slot == placed().slot(position + 1, expert)
        assert facts.uses == counted[position][expert]
        assert facts.share == pytest.approx(counted[position][expert] / sum(counted[position]))
        assert facts.times_even == pytest.approx((facts.share or 0) * 64)
        assert facts.rank == 1 + sum(use > (facts.uses or 0) for use in counted[position])
        assert facts.holders == holders_of(facts.tier, NODES)


def test_sparks_hold_slices_and_the_station_the_whole() -> None:
    assert holders_of("spark", NODES) == (("spark-1", "1/2"), ("spark-2", "2/2"))
    assert holders_of("hbm", NODES) == (("station", None),)


def test_without_the_station_there_are_tiers_and_no_uses() -> None:
    experts = experts_of(placed(), None, "the Station does not answer")
    facts = expert_facts(experts, 0, 1, NODES)
    assert (facts.uses, facts.share, facts.times_even, facts.rank) == (None,) * 4
    assert facts.slot == placed().slot(1, 1)
    assert experts.uses_reason == "the Station does not answer"


def test_without_a_map_there_are_no_slots() -> None:
    experts = experts_of(None, FakeStation().expert_use())
    assert expert_facts(experts, 0, 0, NODES).slot is None


@pytest.mark.parametrize(
    "spoilt", [{"uses": [[1]]}, {"tiers": [[999] * 64] * 12}, {"layers": "x"}, {"tiers": []}]
)
def test_an_answer_that_is_none_is_one_error(spoilt: dict[str, Any]) -> None:
    with pytest.raises(K3Error, match="Station"):
        experts_of(placed(), {**FakeStation().expert_use(), **spoilt})


def test_with_neither_there_is_nothing() -> None:
    with pytest.raises(NotFound, match="nothing is known"):
        experts_of(None, None)


def test_the_map_of_an_epoch_is_read_from_state_db(home: Path) -> None:
    with pytest.raises(NotFound):
        map_of_epoch(home)
    with StateStore.open_as_writer(home, holder="test") as store:
        for epoch in (1, 2):
            made = placed(epoch=epoch)
            store.record_placement_map(epoch, made.digest, "p", made.to_json())
    assert map_of_epoch(home).epoch == 2
    assert map_of_epoch(home, 1).epoch == 1
    with pytest.raises(NotFound, match="epoch 9"):
        map_of_epoch(home, 9)


# The pane


def test_arrows_move_and_enter_drills_from_map_to_layer_to_expert() -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        pane = await with_experts(app, pilot)
        await pilot.press("down", "down", "right", "right", "right")
        await shows(app, pilot, "layer 3, expert 3")
        await pilot.press("enter")
        await shows(app, pilot, "EXPERT", "layer 3")
        await pilot.press("down", "enter")
        await shows(app, pilot, "layer 3, expert 4")
        facts = expert_facts(pane.experts, 2, 4, ())  # type: ignore[arg-type]
        assert f"tier    {facts.tier}" in text(app)
        assert f"{facts.uses:,} since the Station started (measured)" in text(app)
        assert "held by" in text(app)
        await pilot.press("right")
        await shows(app, pilot, "layer 3, expert 5")
        await pilot.press("escape")
        await shows(app, pilot, "EXPERT")
        await pilot.press("right")
        await shows(app, pilot, "layer 4")
        await pilot.press("escape")
        await settled(pilot)
        heat = app.query_one(ExpertMap)
        assert (heat.position, heat.expert) == (3, 5)

    drive(body, live=FakeStation())


def test_t_turns_between_use_and_tier() -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_experts(app, pilot)
        await shows(app, pilot, "x even")
        await pilot.press("t")
        await shows(app, pilot, "HH hbm")
        lines = screen_lines(app)  # type: ignore[arg-type]
        first = next(line.strip() for line in lines if line.strip().startswith("▸  1 "))
        assert first.split()[-1] == "".join(TIERS[tier][0].upper() for tier in tiers(0, 64))

    drive(body, live=FakeStation())


def test_the_cursor_stays_on_its_expert_whatever_the_size() -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        pane = await with_experts(app, pilot)
        heat = app.query_one(ExpertMap)
        heat.put_cursor(60, 700)
        for size in ((60, 15), (80, 24), (250, 70), (20, 6)):
            await pilot.resize_terminal(*size)
            await settled(pilot)
            assert (heat.position, heat.expert) == (60, 700)
            under = heat.under_cursor
            if under is not None:
                assert 60 in under[0]
                assert 700 in under[1]
        assert pane.chosen() is not None

    drive(body, live=FakeStation(92, 896), size=(120, 40))


def test_moving_the_cursor_computes_no_pixel_again() -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_experts(app, pilot)
        heat = app.query_one(ExpertMap)
        pixels = heat._pixels
        await pilot.press(*["right"] * 10, *["down"] * 10)
        await settled(pilot)
        assert heat._pixels is pixels
        await pilot.press("t")
        assert heat._pixels is not pixels

    drive(body, live=FakeStation(92, 896))


def test_go_to_an_expert_and_to_a_tier() -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_experts(app, pilot)
        assert app.go_to("expert", "5/12")
        await shows(app, pilot, "layer 5, expert 12")
        for wrong in ("99/1", "5/64", "five"):
            assert not app.go_to("expert", wrong)
        await pilot.press("escape", "escape")
        assert app.go_to("tier", "grace")
        assert not app.go_to("tier", "tape")

    drive(body, live=FakeStation())


def test_copies_the_expert_under_the_cursor_and_saves_the_tiers() -> None:
    async def body(app: ConsoleApp, pilot: Any) -> None:
        pane = await with_experts(app, pilot)
        await pilot.press("down", "right")
        await shows(app, pilot, "layer 2, expert 1 ")
        chosen = pane.chosen()
        assert chosen is not None
        assert chosen.id == "2/1"
        assert chosen.record["uses"] == uses(12, 64)[1][1]
        sheet = pane.sheet()
        assert sheet is not None
        assert [row[0] for row in sheet.rows] == ["hbm", "rtx", "grace", "spark"]
        assert "hop_p50_us" in sheet.columns

    drive(body, live=FakeStation())


def test_a_hung_station_leaves_the_tiers_and_the_keys() -> None:
    station = FakeStation()
    station.hold()

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await opened(app, pilot, "tiers", "2")
        assert "9,558 of 9,558" in text(app)
        assert "asking for the experts" in text(app)
        await pilot.press("t", "enter", "down")
        await opened(app, pilot, "nodes", "5")
        await opened(app, pilot, "tiers", "2")
        assert station.asked == ["expert_use"], "one question at a time"
        station.release()
        await shows(app, pilot, "x even")

    drive(body, live=station)


def test_an_absent_station_is_said_and_the_map_is_shown_by_tier(home: Path) -> None:
    made = placed()
    with StateStore.open_as_writer(home, holder="test") as store:
        store.record_placement_map(7, made.digest, "p", made.to_json())
    station = FakeStation(error=NodeLost("station", "station cannot be reached"))

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_experts(app, pilot)
        await shows(app, pilot, "station cannot be reached", "HH hbm")
        await pilot.press("enter", "enter")
        await shows(app, pilot, "held by")
        assert "uses    -" in text(app)

    drive(body, live=station, home=home)


def test_a_station_that_is_lost_later_leaves_uses_that_age() -> None:
    station = FakeStation()

    async def body(app: ConsoleApp, pilot: Any) -> None:
        pane = await with_experts(app, pilot)
        station.error = NodeLost("station", "station cannot be reached")
        pane._asked_number = -9
        pane.show(app.snapshot)
        await shows(app, pilot, "station cannot be reached")
        assert "x even" in text(app)

    drive(body, live=station)


def recorded_home(home: Path, *ends_s: int, experts: int = 64) -> None:
    """A home with the map of epoch 7, and uses of stretches that ended so many seconds into the
    simulated recording: each of as many tokens, all of which chose the first expert alone."""
    made = placed()
    with StateStore.open_as_writer(home, holder="test") as store:
        store.record_placement_map(7, made.digest, "p", made.to_json())
    telemetry = TelemetryStore.open_as_writer(home)
    for end_s in ends_s:
        counts = tuple(end_s if at % experts == 0 else 0 for at in range(12 * experts))
        use_log.record_uses(
            telemetry, ExpertUses(BEGIN_MS + end_s * 1000, 7, end_s, 12, experts, counts)
        )
    telemetry.close()


def replayed(body: Any, home: Path, at_s: int) -> None:
    recording = SimulatedRecording(SimulatedPod(), 3 * use_log.EVERY_S)
    drive(body, source=recording, home=home, start_ms=BEGIN_MS + at_s * 1000)


def test_a_replay_shows_the_heat_of_its_moment(home: Path) -> None:
    recorded_home(home, 1_800, 3_600)

    async def body(app: ConsoleApp, pilot: Any) -> None:
        pane = await with_experts(app, pilot)
        assert pane.experts is not None
        assert pane.experts.layer_uses(3) == [1_800, *[0] * 63]
        await shows(app, pilot, "x even", "used by 1,800 tokens up to")
        told = pane._told
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: app.snapshot.frame.at_ms == BEGIN_MS + 1_501_000)  # type: ignore[union-attr]
        await settled(pilot)
        assert pane._told is told  # the same stretch is not read again
        await app.run_action("prompt('@')")
        app.query_one("#prompt-field").value = "+10m"  # type: ignore[attr-defined]
        await pilot.press("enter")
        await shows(app, pilot, "used by 3,600 tokens up to")
        await pilot.press("enter", "enter")
        await shows(app, pilot, "3,600 by 3,600 tokens up to")

    replayed(body, home, 1_500)


def test_a_moment_that_was_not_written_shows_the_last_before(home: Path) -> None:
    recorded_home(home, 600)

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_experts(app, pilot)
        await shows(app, pilot, "used by 600 tokens up to", "the last recorded before (measured)")

    replayed(body, home, 900)


@pytest.mark.parametrize(
    ("ends_s", "experts", "said"),
    [((), 64, "the use of experts was not recorded yet"),
     ((600,), 32, "are of 12 layers of 32 experts, the map has 12 of 64")],
)  # fmt: skip
def test_a_replay_without_uses_says_why_and_shows_tiers(
    home: Path, ends_s: tuple[int, ...], experts: int, said: str
) -> None:
    recorded_home(home, *ends_s, experts=experts)

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await with_experts(app, pilot)
        await shows(app, pilot, said, "HH hbm")

    replayed(body, home, 300)
