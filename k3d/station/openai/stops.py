"""Stop strings in text that comes in pieces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scanned:
    """What a piece settles: text that may go out, and the stop string that was met."""

    text: str
    met: str | None = None


class StopScanner:
    """Finds the stop string that completes first; of those that complete together, the one that
    began first. How the text is cut into pieces changes nothing. Text that may be the beginning
    of a stop string is held; nothing of a stop string that was met ever goes out.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    @property
    def held(self) -> int:
        """Characters that are held."""
        return len(self._held)

    def push(self, text: str) -> Scanned:
        """Call no more once a stop was met."""
        if not self._stops:
            return Scanned(text)
        text = self._held + text
        met = min(
            ((at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0),
            default=None,
        )
        if met is not None:
            self._held = ""
            return Scanned(text[: met[1]], met[2])
        kept = self._beginning(text)
        self._held = text[len(text) - kept :]
        return Scanned(text[: len(text) - kept])

    def finish(self) -> str:
        """What is held when no text will follow."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """Length of the longest end of `text` with which a stop string begins."""
        longest = max(len(stop) for stop in self._stops) - 1
        for length in range(min(longest, len(text)), 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
