"""What is longer than the screen, moved by the keys that move everything here."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll


class Scroll(VerticalScroll, inherit_bindings=False):
    """Up and down alone: left and right are free for what holds it."""

    DEFAULT_CSS = "Scroll { height: 1fr; scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "up", show=False),
        Binding("down,j", "scroll_down", "down", show=False),
        Binding("pageup,ctrl+b", "page_up", "page up", show=False),
        Binding("pagedown,ctrl+f", "page_down", "page down", show=False),
        Binding("home,g", "scroll_home", "top", show=False),
        Binding("end,G", "scroll_end", "end", show=False),
    ]
