"""The name of the map in force, as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any


def map_name(name: str | None) -> str:
    """A policy's name as it is, of a map's file the last part; a dash for none."""
    return PurePath(name).name if name else "-"


def in_force_shown(document: Mapping[str, Any]) -> str:
    """What a status or a frame says of the map in force, and in place of what a swap put it."""
    name, policy = map_name(document.get("placement")), document.get("policy")
    if not policy or name == map_name(policy):
        return name
    return f"{name}, swapped in for {map_name(policy)}"
