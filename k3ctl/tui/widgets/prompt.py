"""The one line that is typed into: `/` filter, `:` go-to, `@` a time."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, Static

from k3ctl.tui.widgets.typed_line import TypedLine


class Prompt(Horizontal):
    """Hidden until it is opened; says what was typed while it is, and how it ended."""

    DEFAULT_CSS = """
    Prompt { height: 1; display: none; background: $panel; }
    Prompt.open { display: block; }
    Prompt Static { width: auto; padding: 0 0 0 1; color: $accent; text-style: bold; }
    Prompt Input {
        width: 1fr; height: 1; border: none; padding: 0; background: $panel;
        &:focus { border: none; background-tint: $foreground 0%; }
    }
    """

    class Typed(Message):
        """The text while it is typed."""

        def __init__(self, mark: str, text: str) -> None:
            super().__init__()
            self.mark = mark
            self.text = text

    class Ended(Message):
        """Entered, or given up: then the text is None."""

        def __init__(self, mark: str, text: str | None) -> None:
            super().__init__()
            self.mark = mark
            self.text = text

    def __init__(self, *, id: str) -> None:  # noqa: A002 - as Textual calls it
        super().__init__(id=id)
        self.mark = ""

    def compose(self) -> ComposeResult:
        yield Static("", id="prompt-mark", markup=False)
        yield _Field(id="prompt-field", select_on_focus=False)

    @property
    def hints(self) -> list[Binding]:
        """Keys that mean something while it is open."""
        return [each for each in _Field.BINDINGS if isinstance(each, Binding)]

    @property
    def is_open(self) -> bool:
        return self.has_class("open")

    def open(
        self,
        mark: str,
        text: str = "",
        *,
        placeholder: str = "",
        suggester: Suggester | None = None,
    ) -> None:
        """Take the focus and what is typed."""
        self.mark = mark
        self.query_one("#prompt-mark", Static).update(mark)
        field = self.query_one("#prompt-field", _Field)
        field.suggester = suggester
        field.placeholder = placeholder
        with field.prevent(Input.Changed):
            field.value = text
        field.cursor_position = len(text)
        self.add_class("open")
        field.focus()

    def close(self) -> None:
        self.remove_class("open")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.is_open:
            self.post_message(self.Typed(self.mark, event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._end(event.value)

    def give_up(self) -> None:
        self._end(None)

    def _end(self, text: str | None) -> None:
        self.close()
        self.post_message(self.Ended(self.mark, text))


class _Field(TypedLine):
    """Tab takes the suggestion, Esc gives up, arrows do not leave the line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "do it"),
        Binding("tab", "accept", "complete"),
        Binding("escape", "give_up", "give up"),
    ]

    def action_accept(self) -> None:
        if self._suggestion:
            self.value = self._suggestion
            self.cursor_position = len(self.value)

    def action_give_up(self) -> None:
        prompt = self.parent
        assert isinstance(prompt, Prompt)
        prompt.give_up()
