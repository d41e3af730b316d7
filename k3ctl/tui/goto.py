"""`:` go-to: places of the pod by kind and name, and the completion of what is typed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textual.suggester import Suggester

from k3ctl.tui.pane import PaneSpec
from k3ctl.tui.snapshot import Snapshot
from k3d.errors import NotFound

_EXPERT = re.compile(r"^(?:expert )?\s*(\d+)\s*[/ ]\s*(\d+)$")
KINDS = ("pane", "node", "tier", "lane", "expert")
MOST_NAMED = 6


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

    Raises NotFound with what there is, or with the candidates where several begin so. Whether
    there is such an expert is for the pane to say.
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
        raise NotFound(f"{text!r} may be {some_of([place.words for place in begun])}")
    raise NotFound(f"there is no {text!r}", hint=_hint(wanted, known))


def _hint(wanted: str, known: Sequence[Place]) -> str:
    """What there is instead: of the kind that was named, else what is spelled alike, else kinds."""
    kind, _, _ = wanted.partition(" ")
    if kind == "expert":
        return "an expert is a layer and a number in it, as in expert 3/12"
    names = [place.name for place in known if place.kind == kind]
    if names:
        return f"of {kind}s there are {some_of(names)}"
    by_name = {place.name.lower(): place.words for place in known}
    alike = difflib.get_close_matches(wanted, by_name, n=MOST_NAMED)
    if alike:
        return f"much like it: {', '.join(by_name[name] for name in alike)}"
    return f"a place is one of {', '.join(KINDS)} and its name; an expert's is LAYER/NUMBER"


def some_of(names: Sequence[str]) -> str:
    """A few of them, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


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
