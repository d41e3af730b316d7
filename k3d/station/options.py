"""What a Station's command line may override of its pod description."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

from k3d.placement.pod import PodDescription


@dataclass(frozen=True)
class StationOptions:
    """What a command line may override of the description."""

    transport: str
    placement: str
    dtype: str
    chunk: int
    drafter: str = "none"
    prefix_mib: int = 0
    synthetic_acceptance: float | None = None


def station_options(flags: Namespace, pod: PodDescription) -> StationOptions:
    """Flags over the description."""
    prefix_mib = getattr(flags, "prefix_mib", None)
    return StationOptions(
        transport=flags.transport or pod.transport,
        placement=flags.placement or pod.placement,
        dtype=flags.dtype or pod.dtype,
        chunk=flags.chunk or pod.chunk,
        drafter=getattr(flags, "drafter", None) or pod.drafter,
        prefix_mib=pod.prefix_mib if prefix_mib is None else prefix_mib,
        synthetic_acceptance=getattr(flags, "synthetic_acceptance", None),
    )
