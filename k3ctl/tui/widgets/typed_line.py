"""A line that is typed into: every key that writes a character is the line's."""

from __future__ import annotations

from textual.keys import REPLACED_KEYS, key_to_character
from textual.widgets import Input


class TypedLine(Input):
    """Knows all keys that it takes, so that none of them is offered as a key of the console.
    Textual does not find the characters of those it has names of its own for, as `slash`."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        if character is None:
            character = key_to_character(REPLACED_KEYS.get(key, key))
        return super().check_consume_key(key, character)
