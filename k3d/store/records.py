"""What state.db holds, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StoredPod:
    """A pod description as it was when the pod came up."""

    ts_ms: int
    name: str
    digest: str
    description: dict[str, Any]


@dataclass(frozen=True)
class StoredMap:
    """The placement map of one epoch, in its JSON form (PlacementMap.from_json reads it)."""

    epoch: int
    ts_ms: int
    digest: str
    policy: str
    map_json: bytes


@dataclass(frozen=True)
class Event:
    """Something that happened, to a node or to the pod (node None)."""

    id: int
    ts_ms: int
    node: str | None
    kind: str
    message: str
    detail: dict[str, Any] | None


@dataclass(frozen=True)
class Intent:
    """A change that was asked for and how far it got."""

    id: str
    kind: str
    state: str
    request_id: str | None
    plan: dict[str, Any]
    created_ms: int
    updated_ms: int


@dataclass(frozen=True)
class Receipt:
    """A measured result with what is needed to measure it again."""

    id: str
    ts_ms: int
    kind: str
    provenance: str
    command: str
    figures: dict[str, Any]
    environment: dict[str, Any]
