"""What to do about drift, in one sentence, with the command line that does it."""

from __future__ import annotations

from dataclasses import dataclass

from k3d.placement.drift import Drift
from k3d.placement.drift_gain import Gain


@dataclass(frozen=True)
class Advice:
    """`command` is None when there is nothing to do."""

    sentence: str
    command: str | None


def advise(drift: Drift, gain: Gain | None, replan: str) -> Advice:
    """`replan` is the command line that plans for this traffic and swaps."""
    if not drift.tokens:
        return Advice("no token was seen yet: nothing can be told", None)
    if drift.verdict == "too-few":
        return _wait(drift)
    pays = gain is not None and gain.share >= drift.limits.gain
    modelled = "" if gain is None else f"{100 * gain.share:.1f} % less expert time, modelled"
    if drift.verdict == "drift":
        if pays:
            return Advice(f"the traffic has drifted and a replanned map takes {modelled}", replan)
        if gain is not None:
            keep = "the traffic has drifted, but the map in force still serves it well"
            return Advice(f"{keep}: a replanned one takes {modelled}", None)
        return Advice("the traffic has drifted: plan for it and compare", replan)
    if pays:
        start = "no drift, but" if drift.verdict == "none" else "the map in force knows no traffic:"
        return Advice(f"{start} a replanned map takes {modelled}", replan)
    if drift.verdict == "none":
        return Advice("no drift: keep the map in force", None)
    if gain is not None:
        return Advice(f"keep the map in force: a replanned one takes {modelled}", None)
    return Advice("the map in force knows no traffic, and what tiers cost is unknown", None)


def _wait(drift: Drift) -> Advice:
    if drift.needed_tokens is None:
        return Advice(
            f"too few tokens to tell: the map was planned from {drift.expected_tokens:,}, which "
            "leaves too much to chance",
            None,
        )
    return Advice(
        f"too few tokens to tell: {drift.tokens:,} were seen, about {drift.needed_tokens:,} are "
        "needed",
        None,
    )
