"""Golden screens of the panes for tiers, placement, banks, events and chat: what is between the
console's own lines at the top and at the foot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.marks import ASCII, UNICODE, Marks
from k3ctl.tui.screens import chat as chat_module
from k3ctl.tui.screens.chat import Question
from k3ctl.tui.screens.placement import PlacementPane
from k3ctl.tui.widgets.expert_map import ExpertMap
from k3ctl.tui.widgets.log_view import LogView
from k3ctl.tui.widgets.row_table import RowTable
from k3d.store.run_file import log_path
from tests.tui.driven import StillSource, drive, opened, until
from tests.tui.fake_station import FakeStation
from tests.tui.screen_text import check_golden, screen_lines, screen_styles
from tests.tui.shown import shows, text
from tests.tui.simulated_pod import BEGIN_MS, SimulatedPod
from tests.tui.test_banks import WORK, Worker, worker
from tests.tui.test_chat import say
from tests.tui.test_placement import IN_FORCE, LAST, SWAP, Asked, asked

__all__ = ["asked", "worker"]  # fixtures of the panes' own tests

REST = 8
"""Looks in a row at which the screen has to be the same."""
SIZES = ((60, 15), (80, 24), (120, 40))
LOOKS: dict[str, tuple[Marks, str]] = {
    "colour": (UNICODE, "k3-dark"), "mono": (UNICODE, "mono"), "ascii": (ASCII, "mono"),
}  # fmt: skip


@pytest.fixture
def station() -> FakeStation:
    return FakeStation(document={**IN_FORCE, "last": LAST})


@pytest.fixture
def source() -> StillSource:
    """A pod that swaps and stages."""
    frame = SimulatedPod().frame(200)
    return StillSource(msgspec.structs.replace(frame, swap=SWAP, bank_work=(WORK,)))


@pytest.fixture
def noted_home(home: Path) -> Path:
    """A home with logs of a known time."""
    words = (
        ("info", "station serves k3-mini on port 44843"),
        ("warning", "spark-3 is slow"),
        ("error", "spark-2 was lost: connection reset by peer"),
        ("info", "spark-2 is back"),
    )
    for at, (level, message) in enumerate(words):
        line = {"ts": BEGIN_MS / 1000 + at, "level": level, "node": "station", "message": message}
        with log_path(home, "station").open("a") as file:
            file.write(json.dumps(line) + "\n")
    return home


class Talk:
    """Stands for a streamed answer."""

    def __init__(self, home: Path, request: Any, tell: Any) -> None:
        self.stopped = False

    def run(self) -> Any:
        from k3ctl.client.conversation import Answer

        answer = Answer()
        for event in say("It lists ", "the files of a directory:\n\n    ls -l /tmp")["chat"]:
            answer.add(event)
        return answer

    def stop(self) -> None:
        self.stopped = True


def body_of(app: ConsoleApp) -> list[str]:
    """The pane's lines."""
    return screen_lines(app)[2:-1]  # type: ignore[arg-type]


def trimmed(lines: list[str]) -> list[str]:
    return "\n".join(lines).rstrip("\n").split("\n")


async def at_rest(app: ConsoleApp, pilot: Any) -> list[str]:
    """The pane's lines once nothing moves any more."""
    seen: list[list[str]] = []

    def same() -> bool:
        seen.append(body_of(app))
        return len(seen) > REST and all(each == seen[-1] for each in seen[-REST:])

    await until(pilot, same)
    return seen[-1]


async def tiers(app: ConsoleApp, pilot: Any) -> None:
    await opened(app, pilot, "tiers", "2")
    await until(pilot, lambda: isinstance(app.focused, ExpertMap))
    await shows(app, pilot, "never")
    await pilot.press("down", "right", "right")


async def tiers_by_tier(app: ConsoleApp, pilot: Any) -> None:
    await tiers(app, pilot)
    await pilot.press("t")
    await shows(app, pilot, "hbm", "spark")


async def expert(app: ConsoleApp, pilot: Any) -> None:
    await tiers(app, pilot)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.focused, RowTable))
    await pilot.press("enter")
    await shows(app, pilot, "held by")


async def placement(app: ConsoleApp, pilot: Any) -> None:
    assert app.home is not None
    (app.home / "live.k3trace").touch()
    await opened(app, pilot, "placement", "3")
    await shows(app, pilot, "contiguous", "swapped in for")
    await until(pilot, lambda: isinstance(app.focused, RowTable))
    await pilot.press("a")
    await until(pilot, lambda: not app.query_one(PlacementPane)._comparing.waiting)
    await shows(app, pilot, "75.0 %")


async def comparison(app: ConsoleApp, pilot: Any) -> None:
    await placement(app, pilot)
    await pilot.press("enter")
    await shows(app, pilot, "beside epoch 7")


async def dry_run(app: ConsoleApp, pilot: Any) -> None:
    await placement(app, pilot)
    await pilot.press("d")
    await shows(app, pilot, "nothing is done")


async def banks(app: ConsoleApp, pilot: Any) -> None:
    await opened(app, pilot, "banks", "4")
    await shows(app, pilot, "damaged", "of/banks")


async def events(app: ConsoleApp, pilot: Any) -> None:
    await opened(app, pilot, "events", "7")
    await shows(app, pilot, "spark-2 is back")
    await until(pilot, lambda: isinstance(app.focused, LogView))
    await pilot.press("up")


async def chat(app: ConsoleApp, pilot: Any) -> None:
    await opened(app, pilot, "chat", "8")
    await until(pilot, lambda: isinstance(app.focused, Question))
    await pilot.press(*"What does ls do", "enter")
    await shows(app, pilot, "tokens/s")


SCENES = {each.__name__: each for each in (tiers, tiers_by_tier, expert, placement, comparison,
                                           dry_run, banks, events, chat)}  # fmt: skip


HEAT = ("tiers", "tiers_by_tier")
"""Scenes that have glyphs of their own where there is no colour; the others read the same."""
CASES = [
    (scene, look, size)
    for scene in SCENES
    for look in LOOKS
    for size in SIZES
    if look != "mono" or scene in HEAT or size == (80, 24)
]


@pytest.mark.parametrize(
    ("scene", "look", "size"),
    CASES,
    ids=[f"{scene}-{look}-{size[0]}x{size[1]}" for scene, look, size in CASES],
)
def test_golden(
    scene: str, look: str, size: tuple[int, int], noted_home: Path, station: FakeStation,
    source: StillSource, asked: Asked, worker: Worker, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In colour, without, and in ASCII."""
    monkeypatch.setattr(chat_module, "AnswerStream", Talk)
    marks, theme = LOOKS[look]

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await SCENES[scene](app, pilot)
        lines = await at_rest(app, pilot)
        assert len(lines) == size[1] - 3
        assert text(app).isascii() == marks.ascii
        for said, style in screen_styles(app):  # type: ignore[arg-type]
            if theme == "mono" and style is not None:
                colours = (style.color, style.bgcolor)  # type: ignore[attr-defined]
                assert all(each is None or each.is_default for each in colours), said
        drawn = "colour" if look == "mono" and scene not in HEAT else look
        check_golden(f"{scene}-{drawn}-{size[0]}x{size[1]}", lines)

    drive(body, size=size, source=source, live=station, home=noted_home, marks=marks, theme=theme)


@pytest.mark.parametrize("look", LOOKS)
def test_k3_at_full_scale(look: str, noted_home: Path) -> None:
    """92 layers of 896 experts in 80 columns."""
    marks, theme = LOOKS[look]

    async def body(app: ConsoleApp, pilot: Any) -> None:
        await tiers(app, pilot)
        check_golden(f"tiers-k3-{look}-80x24", await at_rest(app, pilot))

    drive(body, size=(80, 24), live=FakeStation(92, 896), marks=marks, theme=theme)


def test_a_storm_of_sizes_ends_on_the_screen_of_a_fresh_start(
    noted_home: Path, station: FakeStation, source: StillSource, asked: Asked, worker: Worker,
    seed: int,
) -> None:  # fmt: skip
    import random

    draw = random.Random(seed)

    async def body(app: ConsoleApp, pilot: Any) -> None:
        for scene in (tiers, comparison, banks, events):
            await scene(app, pilot)
            for _ in range(10):
                await pilot.resize_terminal(draw.randrange(1, 200), draw.randrange(1, 60))
            await pilot.resize_terminal(120, 40)
            wanted = Path(__file__).parent / "golden" / f"{scene.__name__}-colour-120x40.txt"
            shown = wanted.read_text().rstrip("\n").split("\n")
            await until(pilot, lambda shown=shown: trimmed(body_of(app)) == shown)
            await pilot.press("escape", "escape")

    drive(body, size=(120, 40), source=source, live=station, home=noted_home, theme="k3-dark")
