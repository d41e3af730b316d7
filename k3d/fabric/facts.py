"""Facts: what each end of a link says it is, and the sentence when the two do not fit."""

from __future__ import annotations

from typing import Literal

import msgspec

ShapeNumber = int | float | str | list[int]


class Holding(msgspec.Struct, frozen=True):
    """What a spark holds completely: one slice of the experts of one placement.

    `staged` counts slices of a swap beside them, which whoever calls next may not know of.
    """

    model_digest: str | None
    slice_index: int | None
    slice_count: int | None
    epoch: int
    placement_digest: str
    records: int
    staged: int = 0


class StagedBank(msgspec.Struct, frozen=True):
    """What a spark has on its disk of the slices that it is to serve.

    `records` can fill slots, out of `file` or, with None, out of nothing. `ignored` says of other
    banks there why they are of no use, the first few of them.
    """

    file: str | None
    records: int
    ignored: tuple[str, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a link. None on a spark's side means: as the Station says.

    The Station names the spark it means to call in `calling`; `incarnation` grows with every start
    of a Station, so that of two Stations the later one keeps the spark. `shape` are the numbers of
    the experts, opaque to the fabric; `slice_bytes` is the size of one slice record.
    `recut` says that another spark is missing and the slice is not that of the description.
    """

    role: Literal["station", "spark"]
    node: str
    version: str
    capacity_bytes: int
    calling: str | None = None
    incarnation: int = 0
    model_digest: str | None = None
    slice_index: int | None = None
    slice_count: int | None = None
    slots: int | None = None
    slice_bytes: int | None = None
    shape: dict[str, ShapeNumber] | None = None
    dtype: str | None = None
    epoch: int = 0
    placement_digest: str | None = None
    holding: Holding | None = None
    staged: StagedBank | None = None
    recut: bool = False


class Disagreement(msgspec.Struct, frozen=True):
    """Why two ends do not belong together, and what to do about it."""

    sentence: str
    hint: str


def disagreement(station: Facts, spark: Facts) -> Disagreement | None:
    """The first reason why `station` and `spark` cannot serve together, or None."""
    name = spark.node
    if station.role != "station" or spark.role != "spark":
        return Disagreement(
            f"{name} is a {spark.role} and was called by {station.node}, a {station.role}",
            "check the addresses in the pod description",
        )
    if station.calling != name:
        return Disagreement(
            f"{name} answered where {station.node} called {station.calling}",
            "two addresses are swapped: check the pod description",
        )
    if station.version != spark.version:
        return Disagreement(
            f"{name} runs k3d {spark.version}, {station.node} runs {station.version}",
            "install the same k3pod on every node",
        )
    if spark.model_digest is not None and spark.model_digest != station.model_digest:
        return Disagreement(
            f"{name} was started for model {_short(spark.model_digest)}, "
            f"{station.node} serves {_short(station.model_digest)}",
            f"start {name} with the digest of this model, or without --model-digest",
        )
    own = _slice(spark.slice_index, spark.slice_count)
    asked = _slice(station.slice_index, station.slice_count)
    if spark.slice_count is not None and own != asked and not station.recut:
        return Disagreement(
            f"{name} was started for slice {own}, {station.node} gives it slice {asked}",
            "both must read the same pod description",
        )
    return _held_disagreement(station, spark)


def _held_disagreement(station: Facts, spark: Facts) -> Disagreement | None:
    name, held = spark.node, spark.holding
    if held is None:
        return None
    if held.model_digest != station.model_digest:
        return Disagreement(
            f"{name} holds slices of model {_short(held.model_digest)}, "
            f"{station.node} serves {_short(station.model_digest)}",
            f"restart {name} to empty it, or serve the model it holds",
        )
    own = _slice(held.slice_index, held.slice_count)
    asked = _slice(station.slice_index, station.slice_count)
    if own != asked and held.epoch >= station.epoch:
        # What it holds of an epoch that is over may have been cut otherwise, and is dropped.
        return Disagreement(
            f"{name} holds slice {own}, {station.node} gives it slice {asked}",
            f"restart {name} to empty it",
        )
    if held.epoch > station.epoch:
        return Disagreement(
            f"{name} holds epoch {held.epoch}, {station.node} is still at epoch {station.epoch}",
            f"another Station has moved the pod on; restart {name} to empty it",
        )
    return None


def _slice(index: int | None, count: int | None) -> str:
    return f"{index} of {count}"


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:16]
