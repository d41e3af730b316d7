"""The four themes: for dark and light terminals, in the terminal's own 16 colours, and without any.

Blue-green, amber and vermilion differ in lightness too, so states can be told apart without colour
vision; beside that every state is a glyph and a word.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache

from rich.style import Style
from textual.theme import Theme

from k3ctl.tui.ink import Ink

THEMES = ("k3-dark", "k3-light", "ansi", "mono")

_DARK = {
    "plain": "#c9d1dc", "quiet": "#77839a", "strong": "bold #eef2f8", "title": "bold #a9b8d4",
    "accent": "#8aaef2", "good": "#5cbfae", "warn": "#e6ae5c", "bad": "bold #f27d62",
    "rule": "#2b3444", "here": "bold #eef2f8 on #26324a", "curve": "#46608f",
    "heat-1": "#33456a", "heat-2": "#3f6fa6", "heat-3": "#4fa3b8", "heat-4": "#d9b15f",
    "heat-5": "bold #f2845f",
    "hbm": "#e6ae5c", "rtx": "#b79df0", "grace": "#5cbfae", "spark": "#8aaef2",
}  # fmt: skip
_LIGHT = {
    "plain": "#2a3140", "quiet": "#6b7688", "strong": "bold #0d1320", "title": "bold #3b4f78",
    "accent": "#2456b8", "good": "#0b7568", "warn": "#9a5b00", "bad": "bold #b3321a",
    "rule": "#cfd6e0", "here": "bold #0d1320 on #d6e1f5", "curve": "#9db4dc",
    "heat-1": "#b9c8e4", "heat-2": "#7fa3d6", "heat-3": "#2f8ba3", "heat-4": "#b07a14",
    "heat-5": "bold #b3321a",
    "hbm": "#9a5b00", "rtx": "#6a45b8", "grace": "#0b7568", "spark": "#2456b8",
}  # fmt: skip
_ANSI = {
    "plain": "", "quiet": "bright_black", "strong": "bold", "title": "bold blue",
    "accent": "blue", "good": "cyan", "warn": "yellow", "bad": "bold red", "rule": "bright_black",
    "here": "bold reverse", "curve": "blue",
    "heat-1": "bright_black", "heat-2": "blue", "heat-3": "cyan", "heat-4": "yellow",
    "heat-5": "bold red",
    "hbm": "yellow", "rtx": "magenta", "grace": "cyan", "spark": "blue",
}  # fmt: skip
_MONO = {
    "plain": "", "quiet": "dim", "strong": "bold", "title": "bold", "accent": "", "good": "",
    "warn": "bold", "bad": "bold reverse", "rule": "dim", "here": "bold reverse", "curve": "dim",
    "heat-1": "dim", "heat-2": "dim", "heat-3": "", "heat-4": "bold", "heat-5": "bold reverse",
    "hbm": "bold", "rtx": "", "grace": "", "spark": "dim",
}  # fmt: skip
_INKS = {"k3-dark": _DARK, "k3-light": _LIGHT, "ansi": _ANSI, "mono": _MONO}


def _variables(cursor: str, cursor_text: str, rule: str, quiet: str, accent: str) -> dict[str, str]:
    """Colours of Textual's own widgets: inputs, scroll bars, the palette."""
    return {
        "k3-cursor": cursor,
        "k3-rule": rule,
        "k3-quiet": quiet,
        "border": rule,
        "border-blurred": rule,
        "block-cursor-background": cursor,
        "block-cursor-foreground": cursor_text,
        "block-cursor-blurred-background": cursor,
        "block-cursor-blurred-foreground": cursor_text,
        "block-hover-background": cursor,
        "input-cursor-background": accent,
        "scrollbar": rule,
        "scrollbar-hover": quiet,
        "scrollbar-active": accent,
    }


_ANSI_VARIABLES = {
    "k3-cursor": "ansi_default",
    "k3-rule": "ansi_bright_black",
    "k3-quiet": "ansi_bright_black",
    "border": "ansi_default",
    "border-blurred": "ansi_default",
    "ansi-background": "ansi_default",
    "ansi-foreground": "ansi_default",
    "block-cursor-background": "ansi_default",
    "block-cursor-foreground": "ansi_default",
    "block-cursor-text-style": "reverse",
    "block-cursor-blurred-text-style": "reverse",
    "block-hover-background": "ansi_default",
    "input-cursor-background": "ansi_default",
    "input-cursor-foreground": "ansi_default",
    "input-cursor-text-style": "reverse",
    "scrollbar": "ansi_bright_black",
    "scrollbar-hover": "ansi_default",
    "scrollbar-active": "ansi_default",
    "scrollbar-background": "ansi_default",
    "scrollbar-background-hover": "ansi_default",
    "scrollbar-background-active": "ansi_default",
    "scrollbar-corner-color": "ansi_default",
}


def all_themes() -> list[Theme]:
    """As Textual wants them."""
    default = "ansi_default"
    return [
        Theme(
            "k3-dark", primary="#8aaef2", secondary="#5cbfae", accent="#8aaef2",
            warning="#e6ae5c", error="#f27d62", success="#5cbfae", foreground="#c9d1dc",
            background="#10141b", surface="#161b24", panel="#1b2230", dark=True,
            variables=_variables("#26324a", "#eef2f8", "#2b3444", "#77839a", "#8aaef2"),
        ),
        Theme(
            "k3-light", primary="#2456b8", secondary="#0b7568", accent="#2456b8",
            warning="#9a5b00", error="#b3321a", success="#0b7568", foreground="#2a3140",
            background="#fbfbf9", surface="#f3f4f3", panel="#e9ecef", dark=False,
            variables=_variables("#d6e1f5", "#0d1320", "#cfd6e0", "#6b7688", "#2456b8"),
        ),
        Theme(
            "ansi", primary="ansi_blue", secondary="ansi_cyan", accent="ansi_blue",
            warning="ansi_yellow", error="ansi_red", success="ansi_cyan", foreground=default,
            background=default, surface=default, panel=default, boost=default, ansi=True,
            variables=_ANSI_VARIABLES,
        ),
        Theme(
            "mono", primary=default, secondary=default, accent=default, warning=default,
            error=default, success=default, foreground=default, background=default,
            surface=default, panel=default, boost=default, ansi=True,
            variables={**_ANSI_VARIABLES, "scrollbar": default, "k3-rule": default,
                       "k3-quiet": default},
        ),
    ]  # fmt: skip


def colourless(theme: str) -> bool:
    """Whether the theme sends no colour at all, not even grey."""
    return theme == "mono"


def cursor_style(theme: str, *, focused: bool) -> Style:
    """Of the row under the cursor; where colours are few it is reversed."""
    if theme == "k3-dark":
        return Style.parse("on #26324a" if focused else "on #1b2230")
    if theme == "k3-light":
        return Style.parse("on #d6e1f5" if focused else "on #e9ecef")
    return Style(reverse=True) if focused else Style(underline=True)


@lru_cache(maxsize=8)
def inks(theme: str) -> dict[Ink, Style]:
    """What each ink looks like in a theme."""
    table = _INKS.get(theme, _ANSI)
    return {ink: Style.parse(style) for ink, style in table.items()}  # type: ignore[misc]


def theme_for(wanted: str | None, environment: Mapping[str, str] | None = None) -> str:
    """The theme asked for; else mono under NO_COLOR, ansi where colours are few, else k3-dark."""
    values = os.environ if environment is None else environment
    if values.get("NO_COLOR"):
        return "mono"
    if wanted is not None:
        return wanted
    term = values.get("TERM", "")
    rich_colour = values.get("COLORTERM") in ("truecolor", "24bit") or "256" in term
    if term in ("dumb", "vt100", "vt220"):
        return "mono"
    return "k3-dark" if rich_colour else "ansi"
