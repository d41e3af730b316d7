"""What is typed into the prompt, and what comes of it: a filter, a place, a time."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widget import Widget

from k3ctl.tui.body import Body
from k3ctl.tui.deck import Deck, parse_moment
from k3ctl.tui.goto import Place, PlaceSuggester, find_place, places
from k3ctl.tui.pane import Console
from k3ctl.tui.panes_list import PANES
from k3ctl.tui.widgets.prompt import Prompt
from k3d.errors import K3Error

PLACEHOLDERS = {
    "/": "filter: text, !text for all but it, or a regular expression",
    ":": "go to: node, tier, lane, pane by name, expert LAYER/NUMBER",
    "@": "time: 03:12, 03:12:09, -10m, 2026-01-31 03:12",
}


class Typed:
    """Opens the prompt and does what was entered; times are of a `deck`, where there is one."""

    def __init__(self, console: Console, prompt: Prompt, body: Body, deck: Deck | None) -> None:
        self._console = console
        self._prompt = prompt
        self._body = body
        self._deck = deck
        self._suggester = PlaceSuggester()
        self._from: Widget | None = None

    def open(self, mark: str) -> None:
        text = self._body.filter_text if mark == "/" else ""
        if not self._prompt.is_open:
            self._from = self._body.screen.focused
        self._suggester.known = self._places()
        suggester = self._suggester if mark == ":" else None
        self._prompt.open(mark, text, placeholder=PLACEHOLDERS[mark], suggester=suggester)

    def framed(self) -> None:
        """A frame has come: while a place is typed, those of now are completed."""
        opened = self._prompt.is_open and self._prompt.mark == ":"
        self._suggester.known = self._places() if opened else ()

    def changed(self, message: Prompt.Typed) -> None:
        if message.mark == "/":
            self._body.narrow(message.text, quiet=True)

    def ended(self, message: Prompt.Ended) -> None:
        self._body.focus_again(self._from)
        try:
            self._do(message.mark, message.text or "")
        except K3Error as error:
            self._console.say(str(error), "alert")

    def _do(self, mark: str, text: str) -> None:
        match mark:
            case "/":
                self._body.narrow(text)
            case ":" if text.strip():
                place = find_place(text, self._places())
                self._console.go_to(place.kind, place.name)
            case "@" if text and self._deck is not None:
                self._deck.seek(parse_moment(text, self._deck.at_ms or 0))
            case _:
                pass

    def _places(self) -> Sequence[Place]:
        return places(self._console.snapshot, PANES)
