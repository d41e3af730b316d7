"""What the Station knows of one spark, and how long it waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from k3d.fabric.facts import StagedBank
from k3d.station.spark_fill import Filling
from k3d.store.frame import Sensors

LinkState = Literal["connecting", "loading", "ready", "lost", "refused"]
"""`lost` and `connecting` may pass; `refused` needs somebody to mend what its reason names: another
secret, model, slice or version, a damaged record, a damaged run file."""


@dataclass(frozen=True)
class LinkTimes:
    """Deadlines and intervals of a link, in seconds. `hop_row_s` is added to `hop_s` a row.

    A spark is pinged when nothing was heard of it for `ping_every_s`, and between two hops when
    its counters and sensors are `count_every_s` old.
    `refill_s` is the pause after a fill that failed for a reason which waiting does not mend.
    """

    connect_s: float = 1.0
    handshake_s: float = 3.0
    load_s: float = 10.0
    hop_s: float = 2.0
    hop_row_s: float = 0.02
    ping_every_s: float = 0.4
    count_every_s: float = 2.0
    ping_s: float = 0.8
    late_s: float = 1.0
    retry_first_s: float = 0.25
    retry_most_s: float = 2.0
    refill_s: float = 30.0


@dataclass(frozen=True)
class Standing:
    """The state of a link, why it is not `ready` and what to do about it."""

    state: LinkState
    reason: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.reason} ({self.hint})" if self.hint else f"{self.reason}"


class Cut(NamedTuple):
    """What one spark is to hold of every expert on the sparks. `recut` where that is not what its
    own description says."""

    slice_index: int
    slice_count: int
    slots: int
    slice_bytes: int
    recut: bool


@dataclass(frozen=True)
class LinkSnapshot:
    """One spark, now. What has not been measured yet is None.

    `waiting_s` is the age of a dispatch without an answer; `reason` says why the state is not
    ready, or that a ready spark is late with that answer. `staged` is what the spark said of banks
    on its disk, `filling` how it came by its slices, None for one that held them when it joined.
    Everything is `measured`.
    """

    node: str
    state: LinkState
    reason: str | None
    slice_index: int | None
    slice_count: int | None
    slots: int | None
    loaded: int
    epoch: int | None
    progress_age_s: float | None
    waiting_s: float | None
    rtt_us: float | None
    hop_us: float | None
    compute_us: float | None
    pid: int | None
    rss_bytes: int | None
    served_dispatches: int | None
    served_rows: int | None
    version: str | None = None
    sensors: Sensors | None = None
    """As the spark read them, `counters_age_s` ago and its own age."""
    counters_age_s: float | None = None
    joins: int = 0
    """How often it has become ready."""
    staged: StagedBank | None = None
    filling: Filling | None = None
