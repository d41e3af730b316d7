"""`?`: the keys that work now, generated from the bindings, and what the pane says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, TextArea

from k3ctl.tui.chrome import key_name
from k3ctl.tui.ink import BLANK, Line, Span, beside, heading, line, wrap
from k3ctl.tui.marks import Marks
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.scroll import Scroll

LAST = {"keys": 1, "quit": 2}
"""How late the foot shows what always has to be there."""
WORDS = {
    "app.focus_next": "next part of the pane",
    "app.focus_previous": "part before",
}
"""What Textual's own actions are called here."""


@dataclass(frozen=True)
class KeyHelp:
    """Keys of one action, and what it does."""

    keys: str
    does: str


def key_help(active: Iterable[ActiveBinding], everywhere: DOMNode) -> tuple[
    list[KeyHelp], list[KeyHelp]
]:  # fmt: skip
    """Bindings in force as (keys of this pane, keys of everywhere), each action once."""
    here: dict[tuple[DOMNode, str], tuple[list[str], str]] = {}
    anywhere: dict[tuple[DOMNode, str], tuple[list[str], str]] = {}
    for each in active:
        binding = each.binding
        if not each.enabled or not binding.description or binding.system:
            continue
        if binding.key.startswith("super+") or isinstance(each.node, Input | TextArea):
            continue  # another name of a key that is listed; the keys of any line of text
        everybodys = each.node is everywhere or isinstance(each.node, Screen)
        group = anywhere if everybodys else here
        words = WORDS.get(binding.action, binding.description)
        names, _ = group.setdefault((each.node, binding.action), ([], words))
        name = key_name(binding)
        if name not in names:
            names.append(name)
    return _listed(here.values()), _listed(anywhere.values())


def _listed(found: Iterable[tuple[list[str], str]]) -> list[KeyHelp]:
    return [KeyHelp(" ".join(names), does) for names, does in found]


class KeysScreen(ModalScreen[None]):
    """Any of its keys, or the key that opened it, closes it."""

    DEFAULT_CSS = """
    KeysScreen { align: center middle; background: $background 60%; }
    KeysScreen:ansi { background: transparent; }
    KeysScreen > Scroll {
        width: 76; max-width: 94%; height: auto; max-height: 95%;
        border: round $accent; background: $surface; padding: 0 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "close", "close"),
    ]

    def __init__(
        self,
        title: str,
        here: Sequence[KeyHelp],
        anywhere: Sequence[KeyHelp],
        words: str,
        marks: Marks,
    ) -> None:
        super().__init__()
        self._title = title
        self._here = here
        self._anywhere = anywhere
        self._words = words
        self._marks = marks

    def compose(self) -> ComposeResult:
        with Scroll() as box:
            box.border_title = f"Keys: {self._title}"
            yield Drawing(self._draw, fit=True, id="keys-list")

    def on_mount(self) -> None:
        self.query_one(Scroll).focus()

    def _draw(self, width: int, _height: int) -> list[Line]:
        lines: list[Line] = []
        for title, keys in (("This pane", self._here), ("Everywhere", self._anywhere)):
            if keys:
                lines.append(heading(title, width, rule=self._marks.rule))
                lines += _columns(keys, width)
                lines.append(BLANK)
        if self._words:
            lines.append(heading("What it shows", width, rule=self._marks.rule))
            for number, paragraph in enumerate(self._words.strip().split("\n\n")):
                lines += [BLANK] * bool(number)
                lines += wrap(" ".join(paragraph.split()), width)
        return lines

    def action_close(self) -> None:
        self.dismiss(None)


def _columns(keys: Sequence[KeyHelp], width: int) -> list[Line]:
    """Two columns where there is room."""
    room = max(len(each.keys) for each in keys)
    entries = [line(Span(each.keys.ljust(room), "accent"), f"  {each.does}") for each in keys]
    if width < 64:
        return entries
    half = (len(entries) + 1) // 2
    return beside(entries[:half], entries[half:], width // 2)


def footer_bindings(active: Iterable[ActiveBinding], everywhere: DOMNode) -> list[Binding]:
    """Bindings that the foot shows: of the pane first, then of everywhere."""
    shown = [each for each in active if each.enabled and each.binding.show]
    shown = [each for each in shown if each.binding.description and not each.binding.system]
    here = [each.binding for each in shown if each.node is not everywhere]
    anywhere = [each.binding for each in shown if each.node is everywhere]
    anywhere.sort(key=lambda binding: LAST.get(binding.action, 0))
    return _once([*here, *anywhere])


def _once(bindings: Iterable[Binding]) -> list[Binding]:
    """One key an action, the plainest."""
    found: dict[str, Binding] = {}
    for binding in bindings:
        known = found.get(binding.action)
        if known is None or len(key_name(binding)) < len(key_name(known)):
            found[binding.action] = binding
    return list(found.values())
