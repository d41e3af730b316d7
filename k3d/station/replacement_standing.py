"""Where a pod stands that misses a spark, in words: for its status, its events and its console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from k3d.store.frame import Attention

State = Literal["waiting", "short", "placing", "placed", "back", "returning"]


@dataclass(frozen=True)
class Standing:
    """`lost` are the sparks that are missed, or were. `command` is what an operator may do."""

    state: State
    lost: tuple[str, ...]
    sentence: str
    command: str | None = None
    intent: str | None = None

    def document(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "lost": list(self.lost),
            "sentence": self.sentence,
            "intent": self.intent,
        }

    def attention(self, pod: str) -> Attention:
        """A pod that does not serve is an alert."""
        return Attention(
            severity="alert" if self.state in ("waiting", "short") else "warning",
            subject=pod,
            sentence=self.sentence,
            command=self.command,
        )


def sentence_of(
    state: State,
    lost: Sequence[str],
    on_sparks: int,
    after_s: float | None,
    sparks: Sequence[str] | None,
) -> str:
    """`on_sparks` experts are on the sparks now; `after_s` is the policy's wait; `sparks` hold what
    the Station's tiers do not, if any do."""
    names = " and ".join(lost)
    if state == "waiting":
        until = "" if after_s is None else f"; after {after_s:g} s they are placed anew"
        experts = f"the {on_sparks:,} experts on the sparks"
        return f"{names} is lost, and {experts} with it: the pod waits for it{until}"
    if state == "placing":
        return f"{names} is lost: what was on the sparks is being placed in {places(sparks)}"
    if state == "placed":
        return f"{names} is lost: what was on the sparks is served by {places(sparks)}"
    if state == "back":
        return f"{names} is back: what was on the sparks may return to them"
    return f"{names} is back: what was on the sparks returns to them"


def places(sparks: Sequence[str] | None) -> str:
    """Where what was on the sparks is then."""
    if sparks is None:
        return "the Station's tiers"
    held = f"{len(sparks)} slices" if len(sparks) > 1 else "whole experts"
    return f"the Station's tiers and, in {held}, {' and '.join(sparks)}"
