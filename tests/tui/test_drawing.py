"""Drawings: what is painted is what was drawn last."""

from __future__ import annotations

import asyncio

from textual.app import App, ComposeResult

from k3ctl.tui.ink import line
from k3ctl.tui.marks import UNICODE, Marks
from k3ctl.tui.widgets.drawing import Drawing
from tests.tui.screen_text import screen_lines, settled


class OneDrawing(App[None]):
    """A drawing of its own height over another."""

    marks: Marks = UNICODE

    def __init__(self) -> None:
        super().__init__()
        self.words = ["first"]
        self.drawn = Drawing(lambda _width, _height: [line(word) for word in self.words], fit=True)

    def compose(self) -> ComposeResult:
        yield self.drawn
        yield Drawing(lambda _width, _height: [line("below")])


def test_lines_drawn_for_a_layout_are_painted_wherever_it_leaves_them() -> None:
    """Its height is asked for, its lines are new, and nothing else says so."""

    async def body() -> None:
        app = OneDrawing()
        async with app.run_test(size=(40, 6)) as pilot:
            await settled(pilot)
            app.words = ["second"]
            app.drawn.get_content_height(app.size, app.size, 40)
            await settled(pilot)
            assert screen_lines(app)[0] == "second"

    asyncio.run(body())


def test_more_lines_push_what_is_below() -> None:
    async def body() -> None:
        app = OneDrawing()
        async with app.run_test(size=(40, 6)) as pilot:
            await settled(pilot)
            app.words = ["one", "two"]
            app.drawn.redraw()
            await settled(pilot)
            assert screen_lines(app)[:3] == ["one", "two", "below"]

    asyncio.run(body())
