"""Membership: the sparks of a pod as its Station sees them. They share no lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic

from k3d.station.link_state import LinkSnapshot, LinkTimes
from k3d.station.spark_link import SparkLink

__all__ = ["LinkSnapshot", "LinkTimes", "Membership", "SparkLink"]


class Membership:
    """One link a spark, in the order of their slices."""

    def __init__(self, links: Sequence[SparkLink]) -> None:
        self.links = tuple(links)
        self.serving = self.links
        """Those that hold slices, in their order; the others are kept up and hold nothing."""

    def __iter__(self) -> Iterator[SparkLink]:
        return iter(self.links)

    def __len__(self) -> int:
        return len(self.links)

    def serve_by(self, sparks: Sequence[str]) -> None:
        """From now on these hold the slices, in this order."""
        by_name = {link.node: link for link in self.links}
        self.serving = tuple(by_name[name] for name in sparks)

    def start(self) -> None:
        for link in self.links:
            link.start()

    def ready(self) -> bool:
        """Whether every spark can serve."""
        return all(link.ready for link in self.links)

    def states(self) -> tuple[LinkSnapshot, ...]:
        return tuple(link.snapshot() for link in self.links)

    def wait_all_ready(self, timeout_s: float) -> None:
        """Return once every spark can serve; raises as SparkLink.wait_ready for the first not."""
        deadline = monotonic() + timeout_s
        for link in self.links:
            link.wait_ready(max(0.0, deadline - monotonic()))

    def settle(self) -> None:
        """After a pass that failed: drop the answers that are still on their way."""
        for link in self.links:
            link.settle()

    def close(self) -> None:
        for link in self.links:
            link.close()
