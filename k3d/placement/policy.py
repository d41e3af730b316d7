"""Placement policies: rules that make a placement map (policies/placement/*.toml).

single          every expert in one tier
contiguous      whole layers in a row to one tier, then to the next
layer-balanced  every layer split alike between the tiers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from k3d.errors import ConfigError
from k3d.placement.placement_map import PlacementMap, number_slots
from k3d.placement.pod import TIERS, convert_toml, find_policy

SCHEMA = "k3-placement/1"


class PlacementPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule. `share` gives each tier a part of all experts; without it tiers fill in `order`."""

    schema: Literal["k3-placement/1"]
    policy: Literal["single", "contiguous", "layer-balanced"]
    tier: str | None = None
    order: tuple[str, ...] = TIERS
    share: dict[str, float] | None = None
    name: str = ""


def load_policy(name_or_path: str, home: Path | None = None) -> PlacementPolicy:
    """Read a policy by name (policies/placement/NAME.toml) or by path.

    Raises NotFound when there is none, ConfigError with the key path of what is wrong.
    """
    path = find_policy("placement", name_or_path, home)
    try:
        policy = convert_toml(path.read_bytes(), PlacementPolicy)
        _check(policy)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    return msgspec.structs.replace(policy, name=policy.name or path.stem)


def plan(
    layers: Sequence[int],
    experts: int,
    slots: Mapping[str, int],
    policy: PlacementPolicy,
    *,
    epoch: int = 1,
) -> PlacementMap:
    """Place `experts` experts of each of `layers` into tiers of the given slots.

    The same arguments always give the same map. Raises ConfigError naming what is short.
    """
    _check(policy)
    total = len(layers) * experts
    counts = _counts(policy, slots, total)
    tiers = tuple(slots)
    for tier, count in counts.items():
        if count > slots.get(tier, 0):
            raise ConfigError(
                f"tier {tier} is short: the policy {policy.name or policy.policy} puts {count} "
                f"experts there and it has {slots.get(tier, 0)} slots",
                hint="give the tier more slots in the pod description, or use another policy",
            )
    wanted = [counts.get(tier, 0) for tier in tiers]
    order = [tiers.index(tier) for tier in policy.order if tier in tiers]
    if policy.policy == "layer-balanced":
        tier_of = _interleaved(wanted, order)
    else:
        tier_of = b"".join(bytes([number]) * wanted[number] for number in order)
    return number_slots(epoch, tiers, layers, experts, tier_of)


def _check(policy: PlacementPolicy) -> None:
    unknown = [tier for tier in policy.order if tier not in TIERS]
    if unknown or len(set(policy.order)) != len(policy.order):
        raise ConfigError(
            f"order: {', '.join(policy.order)} is not a list of different tiers",
            hint=f"tiers: {', '.join(TIERS)}",
        )
    if (policy.policy == "single") != (policy.tier is not None):
        raise ConfigError(
            "tier: given for the policy single and for no other",
            hint='say policy = "single" and tier = "spark", or leave tier out',
        )
    if policy.tier is not None and policy.tier not in policy.order:
        raise ConfigError(
            f"tier: there is no tier {policy.tier!r}", hint=f"tiers: {', '.join(policy.order)}"
        )
    if policy.share is not None:
        _check_share(policy.share, policy.order)


def _check_share(share: Mapping[str, float], order: Sequence[str]) -> None:
    for tier, part in share.items():
        if tier not in order:
            raise ConfigError(f"share.{tier}: not a tier of order ({', '.join(order)})")
        if not 0.0 <= part <= 1.0:
            raise ConfigError(f"share.{tier}: {part} is not between 0 and 1")
    if abs(sum(share.values()) - 1.0) > 1e-6:
        raise ConfigError(
            f"share: the parts sum to {sum(share.values()):g}, not 1", hint="make them sum to 1"
        )


def _counts(policy: PlacementPolicy, slots: Mapping[str, int], total: int) -> dict[str, int]:
    """How many experts each tier gets. Raises ConfigError when all slots together are too few."""
    if policy.tier is not None:
        return {policy.tier: total}
    if policy.share is not None:
        return _largest_remainders(policy.share, total)
    counts = {}
    left = total
    for tier in policy.order:
        counts[tier] = min(left, slots.get(tier, 0))
        left -= counts[tier]
    if left:
        listed = ", ".join(f"{tier} {slots[tier]}" for tier in policy.order if tier in slots)
        raise ConfigError(
            f"the pod is short of {left} slots: {total} experts and {total - left} slots "
            f"({listed or 'none'})",
            hint="give a tier more slots in the pod description",
        )
    return counts


def _largest_remainders(share: Mapping[str, float], total: int) -> dict[str, int]:
    """Whole numbers in the proportions of `share` that sum to `total`."""
    exact = {tier: part * total for tier, part in share.items()}
    counts = {tier: int(part) for tier, part in exact.items()}
    short = total - sum(counts.values())
    by_remainder = sorted(exact, key=lambda tier: counts[tier] - exact[tier])
    for tier in by_remainder[:short]:
        counts[tier] += 1
    return counts


def _interleaved(wanted: Sequence[int], order: Sequence[int]) -> bytes:
    """Tiers alternating in proportion to what they get.

    Any stretch of the result, a layer above all, holds each tier's proportion to within two.
    """
    places = sorted(
        ((position + 0.5) / wanted[number], rank, number)
        for rank, number in enumerate(order)
        for position in range(wanted[number])
    )
    return bytes(number for _, _, number in places)
