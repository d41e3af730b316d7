"""A frame: what the pod looked like at one moment, complete in itself.

The Station takes one a second. The console draws frames and nothing else, whether they come from a
running Station or from telemetry.db; `k3ctl top`, `plot` and `report` read the same. Rates, hops
and acceptance are of the interval since the frame before, `interval_s` long; what did not happen in
it, or cannot be read, is None. Counts of tokens and requests are since the Station's start: a
smaller one than before, or a smaller `uptime_s`, says that it was restarted.

A frame may stand for a longer stretch, of which it was made when its seconds were given up (see
k3d.store.frame_merge): then `interval_s` is that stretch. Keys that a later k3pod adds are ignored.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from k3d.errors import StoreError

SCHEMA = "k3d.frame/1"

State = Literal["healthy", "degraded", "down", "unknown"]
Severity = Literal["alert", "warning", "note"]
LanePhase = Literal["waiting", "prompt", "decode"]


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of a node. What it does not report is None, named in `Sensors.missing`."""

    name: str
    power_w: float | None = None
    power_cap_w: float | None = None
    temperature_c: float | None = None
    clock_mhz: float | None = None
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    busy_share: float | None = None
    temperature_limit_c: float | None = None
    """At which it slows itself down, where it says so."""
    energy_j: float | None = None
    """Since its driver was loaded."""
    index: int | None = None
    uuid: str | None = None
    lost: str | None = None
    """Why nothing of it can be read; None while it answers."""
    age_s: float | None = None
    """Since it was read, where that is another time than its node's."""
    throttled: tuple[str, ...] = ()
    """Reasons in words; empty when nothing holds it back."""


class Sensors(msgspec.Struct, frozen=True, kw_only=True):
    """A node's sensors. `missing` says of each that cannot be read why: name -> sentence."""

    age_s: float
    """Since they were read."""
    power_w: float | None = None
    """Of the whole node, where something measures it."""
    temperature_c: float | None = None
    """The hottest of its sensors."""
    temperature_limit_c: float | None = None
    """What that sensor calls critical, where it says so."""
    temperature_source: str | None = None
    """Which sensor that is."""
    cpu_power_w: float | None = None
    """Of its processors, where something measures it."""
    power_source: str | None = None
    """What power_w was read from."""
    profile: str | None = None
    """The hardware profile of a simulated device."""
    clock_mhz: float | None = None
    busy_share: float | None = None
    """Of all its cores."""
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    swap_used_bytes: int | None = None
    disk_free_bytes: int | None = None
    """Of the file system that holds its home."""
    accelerators: tuple[Accelerator, ...] = ()
    missing: dict[str, str] = {}
    simulated: bool = False


class NodeFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One node. Times in microseconds are of the last interval; its own `sensors` may be older."""

    name: str
    role: Literal["station", "spark"]
    state: State
    reason: str | None = None
    link: str | None = None
    """State of its link; None for the Station."""
    version: str | None = None
    pid: int | None = None
    slice: str | None = None
    slots_used: int | None = None
    slots: int | None = None
    rss_bytes: int | None = None
    progress_age_s: float | None = None
    rtt_us: float | None = None
    hop_p50_us: float | None = None
    hop_p99_us: float | None = None
    compute_us: float | None = None
    """Mean a dispatch."""
    hops: int = 0
    bank: str | None = None
    """The bank on its own disk that it was filled from."""
    filled_records: int | None = None
    """Slices that it took from there when it joined; None where it still held them all."""
    sent_records: int | None = None
    """Slices that the Station sent it then."""
    simulated: bool = False
    sensors: Sensors | None = None


class TierFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One tier over the interval."""

    name: str
    experts: int
    slots: int
    hit_share: float | None = None
    """Of the experts that the rows of the interval chose."""
    hop_p50_us: float | None = None
    hop_p99_us: float | None = None
    hops: int = 0
    busy_share: float | None = None
    """Of the interval that its hops took."""
    simulated: bool = False


class LaneFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One request, waiting or in a lane."""

    id: str
    source: str
    """The route it came by: chat, v1/chat/completions, ..."""
    phase: LanePhase
    age_s: float
    prompt_tokens: int
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    written_tokens: int = 0
    most_tokens: int | None = None
    tokens_per_s: float | None = None
    """Over the interval."""
    rows: int | None = None
    """Rows of its last round."""
    acceptance_length: float | None = None
    """Over its life."""
    preempted: int = 0


class SwapFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A swap of the placement map under way."""

    intent: str
    to: str
    phase: str
    wave: int
    waves: int
    copied_bytes: int
    size_bytes: int
    pauses: int = 0
    paused: str | None = None
    left_s: float | None = None
    """Modelled: the bytes that are left at the rate limit."""


class BankWorkFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A build, transfer, verification or scrub of a bank under way, as its process reports it."""

    kind: Literal["build", "stage", "verify", "scrub"]
    node: str
    bank: str
    done_bytes: int
    size_bytes: int
    bytes_per_s: float | None = None
    left_s: float | None = None
    found: int = 0
    """Damaged records so far."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """Something an operator should look at, and the command that shows or mends it."""

    severity: Severity
    subject: str
    sentence: str
    command: str | None = None
    kind: str = ""
    """What it is about, in a word: node, link, request, heat, memory, ... The same subject and kind
    is the same matter, whatever figures its sentence has."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """The pod at `at_ms` (Unix milliseconds)."""

    at_ms: int
    sequence: int
    interval_s: float
    pod: str
    state: State
    reason: str | None = None
    version: str = ""
    model: str = ""
    model_digest: str = ""
    dtype: str = ""
    epoch: int = 0
    placement: str = ""
    """The map in force by its name: a policy's, or a map's file."""
    policy: str = ""
    """What the pod was started with; another name than `placement` where a swap came since."""
    transport: str = ""
    api_url: str | None = None
    uptime_s: float = 0.0
    decode_tokens_per_s: float | None = None
    """Over the interval; None when nothing was decoded in it."""
    prompt_tokens_per_s: float | None = None
    decode_tokens: int = 0
    prompt_tokens: int = 0
    token_p50_us: float | None = None
    """Time between two tokens of one lane."""
    token_p99_us: float | None = None
    acceptance_length: float | None = None
    running: int = 0
    waiting: int = 0
    finished: int = 0
    failed: int = 0
    refused: int = 0
    """Requests that found the queue full."""
    preempted: int = 0
    most_lanes: int = 0
    pages: int = 0
    free_pages: int = 0
    prefix_hit_share: float | None = None
    synthetic_acceptance: float | None = None
    nodes: tuple[NodeFrame, ...] = ()
    tiers: tuple[TierFrame, ...] = ()
    lanes: tuple[LaneFrame, ...] = ()
    swap: SwapFrame | None = None
    bank_work: tuple[BankWorkFrame, ...] = ()
    attention: tuple[Attention, ...] = ()
    provenance: str = "measured"


def encode(frame: Frame) -> bytes:
    """Its JSON, with the schema's name first."""
    return msgspec.json.encode({"schema": SCHEMA, **msgspec.structs.asdict(frame)})


def decode(text: bytes) -> Frame:
    """The frame in JSON. Raises StoreError with the key that is wrong."""
    try:
        return msgspec.json.decode(text, type=Frame)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"a frame cannot be read: {error}") from None
