"""Placement policies: rules that make a placement map (policies/placement/*.toml).

single          every expert in one tier
contiguous      whole layers in a row to one tier, then to the next
layer-balanced  every layer split alike between the tiers
map             a placement map that was planned before, from a file

The others rank experts by a trace, and so are planned by `k3ctl placement plan` (planners.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from k3d.errors import ConfigError, NotFound
from k3d.placement.budget import TierName
from k3d.placement.placement_map import PlacementMap, number_slots
from k3d.placement.pod import TIERS
from k3d.placement.policy_files import convert_toml, find_policy

SCHEMA = "k3-placement/1"
SHIPPED = "compare it with the shipped ones in policies/placement"
TRACED = ("hot-cold", "cost-ranked", "frequency", "optimised")
FINDS_ORDER = ("map", "cost-ranked", "optimised")
MAP_SUFFIX = ".json"


class LayerBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many experts of any one layer a tier may hold."""

    least: Annotated[int, msgspec.Meta(ge=0)] = 0
    most: Annotated[int, msgspec.Meta(ge=0)] | None = None


class PlacementPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule. `share` gives each tier a part of all experts; without it tiers fill in `order`.

    `overflow` "next" lets what a tier's share has no slots for go to the other tiers in order.
    `layer` bounds, `replicate` and `rows` are for policies that rank by a trace: copies of hot
    experts in spare slots, and the rows of the passes that are planned for.
    """

    schema: Literal["k3-placement/1"]
    policy: Literal[
        "single",
        "contiguous",
        "layer-balanced",
        "hot-cold",
        "cost-ranked",
        "frequency",
        "optimised",
        "map",
    ]
    tier: str | None = None
    order: tuple[str, ...] = TIERS
    share: dict[str, float] | None = None
    overflow: Literal["refuse", "next"] = "refuse"
    layer: dict[TierName, LayerBounds] = {}
    replicate: bool = False
    rows: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    map: str | None = None
    name: str = ""


def load_policy(name_or_path: str, home: Path | None = None) -> PlacementPolicy:
    """Read a policy by name (policies/placement/NAME.toml) or by path; a .json path is a map.

    Raises NotFound when there is none, ConfigError with the key path of what is wrong.
    """
    if name_or_path.endswith(MAP_SUFFIX):
        return PlacementPolicy(schema=SCHEMA, policy="map", map=name_or_path, name=name_or_path)
    path = find_policy("placement", name_or_path, home)
    try:
        policy = convert_toml(path.read_bytes(), PlacementPolicy, SHIPPED)
        check_policy(policy)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="check who may read it"
        ) from error
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
    check_policy(policy)
    if policy.policy in TRACED or policy.layer:
        what = "moves" if policy.layer else "ranks"
        raise ConfigError(
            f"the policy {policy.name or policy.policy} {what} experts by a trace",
            hint="plan it first (k3ctl placement plan --trace ... --out MAP.json) and name the map",
        )
    if policy.map is not None:
        return _planned_before(policy.map, layers, experts, slots).with_epoch(epoch)
    total = len(layers) * experts
    counts = tier_counts(policy, slots, total)
    tiers = tuple(slots)
    wanted = [counts.get(tier, 0) for tier in tiers]
    order = [tiers.index(tier) for tier in policy.order if tier in tiers]
    if policy.policy == "layer-balanced":
        tier_of = interleaved(wanted, order)
    else:
        tier_of = b"".join(bytes([number]) * wanted[number] for number in order)
    return number_slots(epoch, tiers, layers, experts, tier_of)


def read_map(path: Path) -> PlacementMap:
    """A placement map from its file. Raises NotFound, ConfigError naming the file."""
    try:
        return PlacementMap.from_json(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no placement map {path}",
            hint="make one: k3ctl placement plan --policy NAME --trace FILE --out MAP.json",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="check who may read it"
        ) from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error


def check_map(
    placed: PlacementMap, layers: Sequence[int], experts: int, slots: Mapping[str, int]
) -> None:
    """Raises ConfigError unless a map is of this model and fits this pod's slots."""
    if placed.experts != experts or placed.layers != tuple(layers):
        theirs = f"{len(placed.layers)} layers of {placed.experts} experts"
        ours = f"{len(layers)} of {experts}"
        if theirs == f"{len(layers)} layers of {experts} experts":
            ours = "others of the same number"
        raise ConfigError(
            f"placement map: it places {theirs}, the model has {ours}",
            hint="plan a map for this model",
        )
    placed.require_slots(slots)


def _planned_before(
    name: str, layers: Sequence[int], experts: int, slots: Mapping[str, int]
) -> PlacementMap:
    """The map of a file with the pod's own tiers. Raises NotFound, ConfigError."""
    path = Path(os.path.expanduser(name))  # noqa: PTH111 Path's raises for ~nobody
    placed = read_map(path)
    try:
        check_map(placed, layers, experts, slots)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error
    return placed.with_tiers(tuple(slots))


def check_policy(policy: PlacementPolicy) -> None:
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
    if (policy.policy == "map") != (policy.map is not None):
        raise ConfigError(
            "map: given for the policy map and for no other",
            hint='say policy = "map" and map = "FILE.json", or leave map out',
        )
    if policy.tier is not None and policy.tier not in policy.order:
        raise ConfigError(
            f"tier: there is no tier {policy.tier!r}", hint=f"tiers: {', '.join(policy.order)}"
        )
    _check_unused(policy)
    if policy.share is not None:
        _check_share(policy.share, policy.order)


def _check_unused(policy: PlacementPolicy) -> None:
    """Raise ConfigError for a key that would be read and change nothing."""
    whole = policy.policy in ("single", "map")
    traced = policy.policy in (*TRACED, "layer-balanced")
    unused = {
        "share": whole and policy.share is not None,
        "overflow": policy.share is None and policy.overflow != "refuse",
        "layer": not traced and bool(policy.layer),
        "replicate": policy.policy != "optimised" and policy.replicate,
        "order": policy.policy in FINDS_ORDER and policy.order != TIERS,
    }
    for key, is_unused in unused.items():
        if is_unused:
            beside = " without share" if key == "overflow" else ""
            raise ConfigError(
                f"{key}: the policy {policy.policy}{beside} makes no use of it",
                hint=f"leave {key} out, or use another policy",
            )


def _check_share(share: Mapping[str, float], order: Sequence[str]) -> None:
    for tier, part in share.items():
        if tier not in order:
            raise ConfigError(
                f"share.{tier}: not a tier of order ({', '.join(order)})",
                hint="name it in order too, or leave order out",
            )
        if not 0.0 <= part <= 1.0:
            raise ConfigError(
                f"share.{tier}: {part} is not between 0 and 1",
                hint="a share is a part of all experts",
            )
    if abs(sum(share.values()) - 1.0) > 1e-6:
        raise ConfigError(
            f"share: the parts sum to {sum(share.values()):g}, not 1", hint="make them sum to 1"
        )


def tier_counts(policy: PlacementPolicy, slots: Mapping[str, int], total: int) -> dict[str, int]:
    """How many experts each tier gets. Raises ConfigError naming the tier or pod that is short."""
    if policy.tier is not None:
        return _within({policy.tier: total}, slots, policy)
    counts = dict.fromkeys(policy.order, 0)
    if policy.share is not None:
        counts |= _largest_remainders(policy.share, total)
        if policy.overflow == "refuse":
            return _within(counts, slots, policy)
        counts = {tier: min(count, slots.get(tier, 0)) for tier, count in counts.items()}
    left = total - sum(counts.values())
    for tier in policy.order:
        more = min(left, slots.get(tier, 0) - counts[tier])
        counts[tier] += more
        left -= more
    if left:
        listed = ", ".join(f"{tier} {slots[tier]}" for tier in policy.order if tier in slots)
        raise ConfigError(
            f"the pod is short of {left} slots: {total} experts and {total - left} slots "
            f"({listed or 'none'})",
            hint="give a tier more slots in the pod description",
        )
    return counts


def _within(
    counts: dict[str, int], slots: Mapping[str, int], policy: PlacementPolicy
) -> dict[str, int]:
    """The counts, if every tier has the slots for its own."""
    for tier, count in counts.items():
        if count > slots.get(tier, 0):
            raise ConfigError(
                f"tier {tier} is short: the policy {policy.name or policy.policy} puts {count} "
                f"experts there and it has {slots.get(tier, 0)} slots",
                hint="give the tier more slots in the pod description, or use another policy",
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


def interleaved(wanted: Sequence[int], order: Sequence[int]) -> bytes:
    """Tiers alternating in proportion to what they get.

    Any stretch of the result, a layer above all, holds each tier's proportion to within two.
    """
    places = sorted(
        ((position + 0.5) / wanted[number], rank, number)
        for rank, number in enumerate(order)
        for position in range(wanted[number])
    )
    return bytes(number for _, _, number in places)
