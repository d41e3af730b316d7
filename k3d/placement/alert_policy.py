"""Alert policies: what an operator is told of (policies/alerts/*.toml).

A rule watches one thing and has one level that raises it and one that clears it. It is raised
after `for_s` seconds beyond the first and cleared after `clear_s` seconds on the good side of the
second; between the two levels nothing changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from k3d.errors import ConfigError
from k3d.placement.budget import TierName
from k3d.placement.drift_limits import DriftLimits
from k3d.placement.policy_files import convert_toml, find_policy

SHIPPED = "compare it with the shipped ones in policies/alerts"
Wait = Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)]
Every = Annotated[float, msgspec.Meta(ge=1.0, le=86_400.0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Microseconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
Celsius = Annotated[float, msgspec.Meta(ge=-50.0, le=200.0)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Rule(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="watch"
):
    """What every rule has."""

    severity: Literal["alert", "warning", "note"] = "warning"
    for_s: Wait = 0.0
    clear_s: Wait = 0.0


class NodeDown(Rule, frozen=True, kw_only=True, tag="node-down"):
    """A node that does not serve: a spark that is lost, refused or not there yet."""


class Drifted(Rule, frozen=True, kw_only=True, tag="drift"):
    """Traffic that has drifted from what the map in force was planned from ([drift])."""


class TierP99(Rule, frozen=True, kw_only=True, tag="tier-p99"):
    """The slowest hundredth of a tier's hops, microseconds."""

    tier: TierName
    above_us: Microseconds
    clear_us: Microseconds | None = None


class Temperature(Rule, frozen=True, kw_only=True, tag="temperature"):
    """The hottest sensor of each node, or of the one named."""

    above_c: Celsius
    clear_c: Celsius | None = None
    node: str | None = None


class DiskFree(Rule, frozen=True, kw_only=True, tag="disk"):
    """What is left on the file system of each node's home, or of the one named."""

    below_bytes: Bytes
    clear_bytes: Bytes | None = None
    node: str | None = None


AnyRule = NodeDown | Drifted | TierP99 | Temperature | DiskFree


class DriftTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[drift]: from where on drift matters (k3d.placement.drift), how often it is looked for, and
    how far back traffic counts."""

    divergence_bits: Share = 0.05
    overlap: Share = 0.35
    gain: Share = 0.05
    every_s: Every = 300.0
    window_s: Every = 3600.0

    @property
    def limits(self) -> DriftLimits:
        return DriftLimits(self.divergence_bits, self.overlap, self.gain)


class AlertPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A policy. `every_s` is how often its rules are held against what is known."""

    schema: Literal["k3-alerts/1"]
    every_s: Every = 5.0
    drift: DriftTable = DriftTable()
    rules: tuple[AnyRule, ...] = msgspec.field(name="rule", default=())


def load_alerts(name_or_path: str, home: Path | None = None) -> AlertPolicy:
    """Read a policy by name (policies/alerts/NAME.toml) or by path.

    Raises NotFound when there is none, ConfigError with the key path of what is wrong.
    """
    path = find_policy("alerts", name_or_path, home)
    try:
        policy = convert_toml(path.read_bytes(), AlertPolicy, SHIPPED)
        _check(policy)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="check who may read it"
        ) from error
    return policy


def drift_limits(name_or_path: str, home: Path | None = None) -> DriftLimits:
    """What a policy says of drift. Raises as `load_alerts`."""
    return load_alerts(name_or_path, home).drift.limits


def _check(policy: AlertPolicy) -> None:
    seen: set[tuple[object, ...]] = set()
    for index, rule in enumerate(policy.rules):
        where = f"rule[{index}]"
        pair = _levels(rule)
        if pair is not None and pair[1] > pair[0]:
            raise ConfigError(
                f"{where}: it would be cleared at a level that raises it",
                hint="clear_us and clear_c lie below above_us and above_c, clear_bytes above "
                "below_bytes",
            )
        key = (
            type(rule),
            getattr(rule, "tier", None),
            getattr(rule, "node", None),
            rule.severity,
        )
        if key in seen:
            raise ConfigError(
                f"{where}: a second rule of severity {rule.severity} for the same thing",
                hint="make them one, or give them different severities",
            )
        seen.add(key)


def _levels(rule: AnyRule) -> tuple[float, float] | None:
    """The level that raises and the one that clears, the way round that more is worse."""
    match rule:
        case TierP99():
            return rule.above_us, rule.above_us if rule.clear_us is None else rule.clear_us
        case Temperature():
            return rule.above_c, rule.above_c if rule.clear_c is None else rule.clear_c
        case DiskFree():
            clear = rule.below_bytes if rule.clear_bytes is None else rule.clear_bytes
            return -rule.below_bytes, -clear
        case _:
            return None
