"""One dispatch on its way: what its answer must be, and how long it may take."""

from __future__ import annotations

from time import monotonic_ns
from typing import NamedTuple

from k3d.errors import FabricError
from k3d.fabric.control import failure_sentence
from k3d.fabric.frames import Frame, Kind
from k3d.station.link_state import LinkTimes


class Hop(NamedTuple):
    """A dispatch without an answer; begun_ns is of the monotonic clock."""

    sequence: int
    epoch: int
    layer: int
    rows: int
    begun_ns: int

    @property
    def age_ns(self) -> int:
        return monotonic_ns() - self.begun_ns

    def left_s(self, times: LinkTimes) -> float:
        """Seconds until its answer is too late."""
        return max(0.0, times.hop_s + self.rows * times.hop_row_s - self.age_ns / 1e9)

    def is_answered_by(self, frame: Frame) -> bool:
        return (
            frame.kind is Kind.PARTIAL
            and frame.sequence == self.sequence
            and frame.epoch == self.epoch
            and frame.layer == self.layer
            and frame.rows == self.rows
        )

    def wrong_answer(self, frame: Frame, node: str) -> str:
        """What `node` did instead of answering."""
        if frame.kind is Kind.ERROR:
            try:
                return f"{node} did not serve layer {self.layer}: {failure_sentence(frame, node)}"
            except FabricError as error:
                return error.message
        return (
            f"{node} answered {frame.kind.name} sequence {frame.sequence} epoch {frame.epoch} "
            f"layer {frame.layer} rows {frame.rows} to dispatch {self.sequence} epoch "
            f"{self.epoch} layer {self.layer} rows {self.rows}"
        )
