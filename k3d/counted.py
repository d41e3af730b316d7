"""Counts as a person reads them, in every sentence."""

from __future__ import annotations


def counted(number: int | None, thing: str, things: str | None = None) -> str:
    """As 1 token, 85,219 tokens; a dash for a number that is not known. `things` is the plural
    where it is not the singular with an s."""
    named = thing if number == 1 else things or f"{thing}s"
    return f"{'-' if number is None else f'{number:,}'} {named}"


def times(number: int) -> str:
    """As once, 12 times."""
    return "once" if number == 1 else f"{number:,} times"
