"""What `/` takes: a substring, `!` for all but it, a regular expression where it is one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from k3d.errors import ConfigError

_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")


@dataclass(frozen=True)
class Filter:
    """Which texts are kept. Capital letters in the pattern make it mind them."""

    text: str
    pattern: re.Pattern[str] | None
    inverse: bool

    def keeps(self, text: str) -> bool:
        if self.pattern is not None:
            found = self.pattern.search(text) is not None
        else:
            wanted = self.text.removeprefix("!")
            found = wanted in (text if _minds_case(wanted) else text.lower())
        return found != self.inverse


def parse_filter(text: str) -> Filter | None:
    """A filter; None of nothing. Raises ConfigError for a regular expression that is not one."""
    text = text.strip()
    inverse = text.startswith("!")
    wanted = text[1:] if inverse else text
    if not wanted:
        return None
    if not _SPECIAL.search(wanted):
        return Filter(text, None, inverse)
    try:
        flags = re.NOFLAG if _minds_case(wanted) else re.IGNORECASE
        return Filter(text, re.compile(wanted, flags), inverse)
    except re.error as error:
        raise ConfigError(
            f"{wanted!r} is no regular expression: {error}", hint="escape what is meant literally"
        ) from None


def _minds_case(text: str) -> bool:
    return text != text.lower()
