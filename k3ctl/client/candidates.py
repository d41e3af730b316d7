"""Candidates for the placement map: which there are, and what one would change.

What a candidate costs is found by a process of its own (`candidate_work`): planning and simulating
keep a core busy for up to a minute at K3's scale, and whoever asks may be drawing a screen.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Literal

import msgspec

from k3d.errors import K3Error
from k3d.placement.budget import Provenance
from k3d.placement.placement_map import SCHEMA
from k3d.placement.policy import MAP_SUFFIX, TRACED, load_policy
from k3d.placement.policy_files import policy_directories
from k3d.store.paths import run_directory

TRACE_SUFFIXES = (".k3trace", ".trace")
WORK = "k3ctl.client.candidate_work"
LONGEST_S = 300.0
LONGEST_OPENING = 256


@dataclass(frozen=True)
class Choice:
    """A policy or a map that could be served. `reason` is why it cannot be, None where it can.

    `traced` policies rank experts by a trace and need one.
    """

    name: str
    kind: Literal["policy", "map"]
    rule: str
    traced: bool
    reason: str | None = None


class Times(msgspec.Struct, frozen=True):
    """Experts' time of one token, in microseconds."""

    mean_us: float
    p50_us: float
    p99_us: float


class TierPrediction(msgspec.Struct, frozen=True):
    """One tier now and then: its share of choices, and its time in a token."""

    tier: str
    share_now: float
    share_then: float
    time_now_us: float
    time_then_us: float
    cost_provenance: Provenance
    cost_source: str


class Prediction(msgspec.Struct, frozen=True):
    """A trace replayed on both maps. All of it is modelled, from costs that say where they are
    from."""

    trace: str
    tokens: int
    now: Times
    then: Times
    tiers: tuple[TierPrediction, ...]
    provenance: Provenance = "modelled"

    @property
    def gain(self) -> float:
        """Part of the mean time that the candidate saves; negative where it takes longer."""
        return 1 - self.then.mean_us / self.now.mean_us if self.now.mean_us else 0.0


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate beside the map in force. `argument` is what `k3ctl placement swap` takes for it,
    None where the map was not kept. `prediction` is None for the reason `not_predicted`."""

    name: str
    argument: str | None
    epoch: int
    tiers: tuple[str, ...]
    slots: dict[str, int]
    counts_now: dict[str, int]
    counts_then: dict[str, int]
    moves: int
    tier_of: bytes
    notes: tuple[str, ...] = ()
    prediction: Prediction | None = None
    not_predicted: str | None = None


def choices(home: Path) -> list[Choice]:
    """Every policy and every map in a home, each once, by name. One that cannot be read is there
    with its reason. Maps that were planned for a look are their policies' and not listed."""
    found: dict[str, Choice] = {}
    for directory in policy_directories("placement", home):
        for path in sorted(directory.glob("*.toml")):
            found.setdefault(path.stem, _policy(path.stem, home))
    for path in sorted(home.glob(f"*{MAP_SUFFIX}")):
        if _is_map(path):
            found.setdefault(str(path), Choice(str(path), "map", "a map", False))
    return sorted(found.values(), key=lambda choice: (choice.kind == "map", choice.name))


def _policy(name: str, home: Path) -> Choice:
    try:
        policy = load_policy(name, home)
    except K3Error as error:
        return Choice(name, "policy", "-", False, error.message)
    traced = policy.policy in TRACED or bool(policy.layer)
    return Choice(name, "policy", policy.policy, traced)


def _is_map(path: Path) -> bool:
    """Whether a file begins like a map: other JSON may lie beside."""
    try:
        with path.open("rb") as file:
            return SCHEMA.encode() in file.read(LONGEST_OPENING)
    except OSError:
        return False


def maps_directory(home: Path) -> Path:
    """Where maps that were planned for a look at them are kept."""
    return run_directory(home) / "maps"


def newest_trace(home: Path, recorded: str | None = None) -> Path | None:
    """The trace to compare with: the one that the Station recorded last, else the newest of the
    home; None when there is none."""
    if recorded is not None and Path(recorded).is_file():
        return Path(recorded)
    found = [path for suffix in TRACE_SUFFIXES for path in home.glob(f"*{suffix}")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def no_trace(home: Path) -> str:
    """That `newest_trace` found none, and where it looked."""
    looked = " or ".join(str(home / f"*{suffix}") for suffix in TRACE_SUFFIXES)
    return f"there is no trace: no {looked}, and the Station recorded none"


def weigh(home: Path, name: str, trace: Path | None, *, keep: bool) -> Candidate:
    """Plan a candidate and predict what it changes, in a process of its own.

    `keep` lets a map that is planned from a trace be written to the home, without which it cannot
    be served. Raises what stands against it.
    """
    command = [sys.executable, "-m", WORK, str(home), name]
    command += ["--trace", str(trace)] if trace is not None else []
    command += ["--keep"] if keep else []
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=LONGEST_S
        )
    except subprocess.TimeoutExpired:
        raise K3Error(
            f"{name} was not planned within {LONGEST_S:.0f} s",
            hint="plan it by itself: k3ctl placement plan --policy NAME --trace FILE",
        ) from None
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=Candidate)
    raise _failure(name, done.returncode, done.stderr)


def _failure(name: str, code: int, words: bytes) -> K3Error:
    last = (words.splitlines() or [b""])[-1]
    try:
        told = msgspec.json.decode(last, type=dict)
    except msgspec.MsgspecError:
        said = last.decode(errors="replace").strip()
        return K3Error(f"{name} was not planned: {said or f'its process ended with code {code}'}")
    return K3Error(str(told.get("message")), hint=told.get("hint"))


def use_shares(
    uses: Sequence[Sequence[int]], tier_of: bytes, tiers: Sequence[str]
) -> dict[str, float] | None:
    """Share of each tier of the uses that were counted, if experts were placed like this; None
    where there were none. `uses` is [layers][experts]."""
    flat = [use for row in uses for use in row]
    total = sum(flat)
    if not total or len(flat) != len(tier_of):
        return None
    shares = {}
    for number, tier in enumerate(tiers):
        here = tier_of.translate(bytes(other == number for other in range(256)))
        shares[tier] = sum(compress(flat, here)) / total
    return shares
