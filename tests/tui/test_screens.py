"""Screens of the console as text, in every size that is promised."""

from __future__ import annotations

import pytest

from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.marks import ASCII
from tests.tui.driven import drive, opened, until
from tests.tui.screen_text import screen_lines, screen_styles, settled, shows_golden
from tests.tui.simulated_pod import SimulatedPod

SIZES = ((60, 15), (80, 24), (120, 40), (250, 70))
PANES = (("overview", "1"), ("nodes", "5"), ("lanes", "6"))
SMALL = SimulatedPod(sparks=8)
LARGE = SimulatedPod(sparks=200, lanes=20)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize(("pane", "key"), PANES)
@pytest.mark.parametrize("pod", [SMALL, LARGE], ids=["8", "200"])
def test_golden_screens(pod: SimulatedPod, pane: str, key: str, size: tuple[int, int]) -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, pane, key)
        assert len(screen_lines(app)) == size[1]
        await shows_golden(pilot, f"{pane}-{pod.sparks}-{size[0]}x{size[1]}")

    drive(body, size=size, pod=pod)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize(("pane", "key"), PANES)
def test_ascii_screens(pane: str, key: str, size: tuple[int, int]) -> None:
    """K3_ASCII and LC_ALL=C: not one character beyond ASCII, and nothing lost."""

    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, pane, key)
        await shows_golden(pilot, f"{pane}-ascii-{size[0]}x{size[1]}")
        assert "\n".join(screen_lines(app)).isascii()

    drive(body, size=size, pod=LARGE, marks=ASCII)


@pytest.mark.parametrize(("pane", "key"), PANES)
def test_without_colour_the_screen_says_the_same(pane: str, key: str) -> None:
    """mono sends no colour, not even grey, and the text is that of the coloured screen."""

    async def body(app: ConsoleApp, pilot) -> None:
        await opened(app, pilot, pane, key)
        await shows_golden(pilot, f"{pane}-200-120x40")
        for text, style in screen_styles(app):
            if style is not None:
                for colour in (style.color, style.bgcolor):
                    assert colour is None or colour.is_default, (text, style)

    drive(body, pod=LARGE, theme="mono")


@pytest.mark.parametrize("theme", ["k3-dark", "k3-light", "ansi"])
def test_text_is_never_its_own_background(theme: str) -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        for pane, key in PANES:
            await opened(app, pilot, pane, key)
            for text, style in screen_styles(app):
                if text.strip() and style is not None and style.color is not None:
                    same = style.color == style.bgcolor and not style.color.is_default
                    assert not same, (text, style)

    drive(body, pod=LARGE, theme=theme)


def test_no_color_means_mono(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def body(app: ConsoleApp, pilot) -> None:
        assert app.theme == "mono"
        assert all(
            colour is None or colour.is_default
            for _, style in screen_styles(app)
            if style is not None
            for colour in (style.color, style.bgcolor)
        )

    drive(body, theme="k3-dark")


def test_dialogs_and_palette_are_ascii_too() -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        for key, word in (("question_mark", "This pane"), ("ctrl+p", "Filter rows")):
            await pilot.press(key)
            await until(pilot, lambda word=word: word in "\n".join(screen_lines(app)))
            assert "\n".join(screen_lines(app)).isascii()
            await pilot.press("escape")
        await opened(app, pilot, "lanes", "6")
        await pilot.press("x")
        await until(pilot, lambda: "k3ctl lanes cancel" in "\n".join(screen_lines(app)))
        assert "\n".join(screen_lines(app)).isascii()

    drive(body, marks=ASCII)


@pytest.mark.parametrize("theme", ["k3-dark", "k3-light", "ansi", "mono"])
def test_every_theme_draws_the_palette_dialogs_and_keys(theme: str) -> None:
    async def body(app: ConsoleApp, pilot) -> None:
        await pilot.press("question_mark")
        await settled(pilot)
        assert any("This pane" in line for line in screen_lines(app))
        await pilot.press("escape")
        await pilot.press("ctrl+p")
        await until(pilot, lambda: any("Open Nodes" in line for line in screen_lines(app)))

    drive(body, theme=theme)


def test_resize_storm_ends_on_the_screen_of_a_fresh_start(seed: int) -> None:
    import random

    draw = random.Random(seed)

    async def body(app: ConsoleApp, pilot) -> None:
        for pane, key in PANES:
            await opened(app, pilot, pane, key)
            for _ in range(12):
                await pilot.resize_terminal(draw.randrange(1, 260), draw.randrange(1, 80))
            for width, height in SIZES:
                await pilot.resize_terminal(width, height)
                await shows_golden(pilot, f"{pane}-200-{width}x{height}")

    drive(body, pod=LARGE)
