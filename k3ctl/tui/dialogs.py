"""The dialog before a deed: the exact k3ctl line, what it does, and Cancel in focus."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from k3ctl.tui.deeds import Deed
from k3ctl.tui.ink import clean
from k3ctl.tui.widgets.typed_line import TypedLine


class ConfirmDialog(ModalScreen[bool]):
    """True when the person wants it. A deed with a word wants that word typed first."""

    DEFAULT_CSS = """
    ConfirmDialog { align: center middle; background: $background 60%; }
    ConfirmDialog:ansi { background: transparent; }
    ConfirmDialog > Vertical {
        width: 72; max-width: 94%; height: auto; max-height: 95%;
        border: round $accent; background: $surface; padding: 0 1;
    }
    ConfirmDialog Static { width: 1fr; height: auto; }
    ConfirmDialog #deed-command { background: $panel; padding: 0 1; margin: 0 0 1 0; }
    ConfirmDialog #deed-sentence { margin: 0 0 1 0; }
    ConfirmDialog Input {
        height: 1; border: none; padding: 0 1; background: $panel; margin: 0 0 1 0;
        &:focus { border: none; background-tint: $foreground 0%; }
    }
    ConfirmDialog Horizontal { height: 1; align-horizontal: right; }
    ConfirmDialog Button { min-width: 10; margin: 0 0 0 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "cancel"),
        Binding("left", "app.focus_previous", "to the left", show=False),
        Binding("right", "app.focus_next", "to the right", show=False),
    ]

    def __init__(self, deed: Deed) -> None:
        super().__init__()
        self._deed = deed

    def compose(self) -> ComposeResult:
        deed = self._deed
        with Vertical() as box:
            box.border_title = clean(deed.title)
            yield Static(clean(deed.sentence), id="deed-sentence", markup=False)
            yield Static(f"$ {clean(deed.command)}", id="deed-command", markup=False)
            if deed.word is not None:
                yield Static(f"Type {clean(deed.word)} to confirm:", markup=False)
                yield TypedLine(id="deed-word")
            with Horizontal():
                yield Button("Cancel", id="deed-cancel", compact=True)
                yield Button(
                    deed.confirm, id="deed-do", variant="error", compact=True,
                    disabled=deed.word is not None,
                )  # fmt: skip

    def on_mount(self) -> None:
        self.query_one("#deed-cancel").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one("#deed-do", Button).disabled = event.value != self._deed.word

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value == self._deed.word:
            self.query_one("#deed-do").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "deed-do")

    def action_cancel(self) -> None:
        self.dismiss(False)
