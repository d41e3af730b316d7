"""`:` go-to: places of the pod by kind and name, and the completion of what is typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textual.suggester import Suggester

from k3ctl.tui.pane import PaneSpec
from k3ctl.tui.snapshot import Snapshot
from k3d.errors import NotFound

_EXPERT = re.compile(r"^(?:expert )?\s*(\d+)\s*[/ ]\s*(\d+)$")
KINDS = ("pane", "node", "tier", "lane", "expert")


@dataclass(frozen=True)
class Place:
    """Somewhere a pane can show."""

    kind: str
    name: str

    @property
    def words(self) -> str:
        return f"{self.kind} {self.name}"


def places(snapshot: Snapshot, panes: Iterable[PaneSpec]) -> list[Place]:
    """All places that can be named now; experts are too many to list."""
    found = [Place("pane", pane.name) for pane in panes]
    frame = snapshot.frame
    if frame is not None:
        found += [Place("tier", tier.name) for tier in frame.tiers]
        found += [Place("node", node.name) for node in frame.nodes]
        found += [Place("lane", lane.id) for lane in frame.lanes]
    return found


def find_place(text: str, known: Sequence[Place]) -> Place:
    """The place that is meant: `node spark-1`, `spark-1`, `12/63`, or the beginning of one.

    Raises NotFound with what there is, or with the candidates where several begin so.
    """
    wanted = " ".join(text.split()).lower()
    if match := _EXPERT.match(wanted):
        return Place("expert", f"{int(match[1])}/{int(match[2])}")
    for exact in known:
        if wanted in (exact.words.lower(), exact.name.lower()):
            return exact
    begun = matches(wanted, known)
    if len(begun) == 1:
        return begun[0]
    if begun:
        some = ", ".join(place.words for place in begun[:6])
        raise NotFound(f"{text!r} may be {some}{' or others' if len(begun) > 6 else ''}")
    raise NotFound(
        f"there is no {text!r}", hint=f"kinds: {', '.join(KINDS)}; an expert is expert LAYER/NUMBER"
    )


def matches(text: str, known: Sequence[Place]) -> list[Place]:
    """Places whose words or names begin with a text."""
    wanted = " ".join(text.split()).lower()
    return [
        place
        for place in known
        if place.words.lower().startswith(wanted) or place.name.lower().startswith(wanted)
    ]


class PlaceSuggester(Suggester):
    """The rest of the first place that begins with what is typed."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=False)
        self.known: Sequence[Place] = ()

    async def get_suggestion(self, value: str) -> str | None:
        if not value.strip():
            return None
        for place in self.known:
            for words in (place.words, place.name):
                if words.lower().startswith(value.lower()):
                    return words
        return None
