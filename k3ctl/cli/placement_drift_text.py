"""Drift, for a person and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from k3ctl.cli.output import unicode_shown
from k3ctl.cli.placement_text import costs_document
from k3ctl.cli.table import count, counted, duration_us, percent, table, wrapped
from k3ctl.client.drift_inputs import Seen
from k3ctl.client.map_in_force import InForce
from k3d.errors import K3Error
from k3d.placement.costs import Costs
from k3d.placement.drift import Drift
from k3d.placement.drift_advice import Advice
from k3d.placement.drift_gain import Gain
from k3d.placement.population import Population

FORMULA = "1 - mean expert time of a token on the replanned map / on the map in force"
VERDICTS = {
    "none": "no drift",
    "drift": "drift",
    "too-few": "too few tokens to tell",
    "no-origin": "nothing to compare with",
}


def drift_document(
    in_force: InForce,
    seen: Seen,
    expected: Population | None,
    found: Drift,
    gain: Gain | None,
    costs: Costs | None,
    unknown: K3Error | None,
    advice: Advice,
) -> dict[str, Any]:
    origin, divergence = in_force.placed.origin, found.divergence
    return {
        "pod": in_force.pod.name,
        "epoch": in_force.placed.epoch,
        "policy": in_force.policy,
        "verdict": found.verdict,
        "seen": {
            "tokens": found.tokens,
            "source": seen.population.source,
            "provenance": seen.population.provenance,
            "since_s": seen.since_s,
        },
        "expected": None
        if expected is None or origin is None
        else {
            "tokens": expected.tokens,
            "source": expected.source,
            "provenance": expected.provenance,
            "policy": origin.policy,
            "spread": expected.spread,
        },
        "expected_missing": None if expected else _no_origin(in_force),
        "tiers": [asdict(tier) for tier in found.tiers],
        "divergence": divergence
        and {
            **asdict(divergence),
            "beyond_noise": divergence.beyond_noise,
            "limit_bits": found.limits.divergence_bits,
        },
        "hot_sets": found.hot_sets and {**asdict(found.hot_sets), "limit": found.limits.overlap},
        "needed_tokens": found.needed_tokens,
        "gain": None if gain is None or costs is None else _gain(gain, costs, found),
        "gain_missing": unknown.message if unknown else None,
        "advice": advice.sentence,
        "command": advice.command,
    }


def drift_lines(
    in_force: InForce,
    seen: Seen,
    expected: Population | None,
    found: Drift,
    gain: Gain | None,
    costs: Costs | None,
    unknown: K3Error | None,
    advice: Advice,
) -> list[str]:
    lines = wrapped(
        f"{VERDICTS[found.verdict]}: epoch {in_force.placed.epoch} of pod {in_force.pod.name}"
    )
    lines += wrapped(f"seen: {counted(found.tokens, 'token')}, {seen.population.source}")
    if expected is None:
        lines += wrapped(f"expected: {_no_origin(in_force)}")
    else:
        lines += wrapped(f"expected: {counted(expected.tokens, 'token')}, {expected.source}")
    about = "±" if unicode_shown() else "+-"
    rows = [
        [
            tier.tier,
            count(tier.held),
            percent(tier.expected),
            percent(tier.seen) + ("" if tier.error is None else f" {about} {100 * tier.error:.1f}"),
        ]
        for tier in found.tiers
    ]
    lines += ["", *table(["TIER", "EXPERTS", "EXPECTED", "SEEN"], rows, " rrr"), ""]
    if found.divergence is not None and found.hot_sets is not None:
        bits, hot = found.divergence, found.hot_sets
        chance = "more than" if bits.beyond_noise else "within what"
        lines += wrapped(
            f"divergence {bits.bits:.4f} bits a layer, {chance} chance gives: "
            f"{bits.noise_bits:.4f}, {bits.most_bits:.4f} at most"
        )
        lines += wrapped(
            f"hot sets: {percent(hot.shared)} of the {count(hot.hot)} most chosen experts are the "
            f"same; {percent(hot.by_noise)} would be in the same traffic, "
            f"{percent(hot.by_chance)} by chance"
        )
        if found.verdict == "drift" and hot.shared <= found.limits.overlap:
            lines += wrapped(
                f"warning: {percent(found.limits.overlap)} or less is what two populations of "
                "traffic have in common"
            )
    if gain is not None and costs is not None:
        lines += _gain_lines(gain, costs)
    elif unknown is not None:
        lines += wrapped(f"gain of replanning unknown: {unknown.message}")
    lines += ["", *wrapped(advice.sentence)]
    return lines + ([f"  {advice.command}"] if advice.command else [])


def _gain(gain: Gain, costs: Costs, found: Drift) -> dict[str, Any]:
    return {
        "share": gain.share,
        "provenance": "modelled",
        "formula": FORMULA,
        "limit": found.limits.gain,
        "policy": gain.policy,
        "moved": gain.moved,
        "now_us": asdict(gain.now.token),
        "replanned_us": asdict(gain.best.token),
        "tokens": gain.now.tokens,
        "traffic": "made up from counts" if gain.made_up else "recorded",
        "costs": costs_document(costs),
        "contention": costs.contention,
    }


def _gain_lines(gain: Gain, costs: Costs) -> list[str]:
    sources = ", ".join(
        dict.fromkeys(
            f"{cost.provenance}, from {'telemetry' if 'telemetry' in cost.source else cost.source}"
            for cost in costs.tiers
        )
    )
    traffic = "traffic made up from the counts" if gain.made_up else "the trace"
    lines = wrapped(
        f"replanning ({gain.policy}): {duration_us(gain.now.token.mean_us)} to "
        f"{duration_us(gain.best.token.mean_us)} a token, {percent(gain.share)} less, modelled on "
        f"{traffic}; {counted(gain.moved, 'expert')} would move"
    )
    return lines + wrapped(f"what the tiers cost is {sources}")


def _no_origin(in_force: InForce) -> str:
    return f"the map in force was made by the policy {in_force.policy}, without a trace"
