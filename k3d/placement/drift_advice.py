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


def advise(
    drift: Drift,
    gain: Gain | None,
    replan: str,
    measure: str | None = None,
    ask: str | None = None,
) -> Advice:
    """`replan` is the command line that plans for this traffic and swaps, `measure` one that finds
    out what the tiers cost: None where that is known, or cannot be measured. `ask` is one that
    gives the pod traffic and looks again."""
    if not drift.tokens:
        told = "no token was seen yet under the map in force: nothing can be told"
        return Advice(f"{told}; what is asked from now on counts", ask)
    if drift.verdict == "too-few":
        return _wait(drift)
    if gain is None:
        if drift.verdict == "none":
            return Advice("no drift: keep the map in force", None)
        return _unknown(drift, measure)
    pays = gain.share >= drift.limits.gain
    modelled = f"{100 * gain.share:.1f} % less expert time, modelled"
    if drift.verdict == "drift":
        if pays:
            return Advice(f"the traffic has drifted and a replanned map takes {modelled}", replan)
        keep = "the traffic has drifted, but the map in force still serves it well"
        return Advice(f"{keep}: a replanned one takes {modelled}", None)
    if pays:
        start = "no drift, but" if drift.verdict == "none" else "the map in force knows no traffic:"
        return Advice(f"{start} a replanned map takes {modelled}", replan)
    if drift.verdict == "none":
        return Advice("no drift: keep the map in force", None)
    return Advice(f"keep the map in force: a replanned one takes {modelled}", None)


def _unknown(drift: Drift, measure: str | None) -> Advice:
    """What a replanned map gains is not known: the first step is to know it."""
    drifted = drift.verdict == "drift"
    told = "the traffic has drifted" if drifted else "the map in force was planned from no traffic"
    if measure is None:
        return Advice(f"{told}, and what a replanned one gains is unknown", None)
    return Advice(
        f"{told}; what a replanned one gains is told once the tiers are measured", measure
    )


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
