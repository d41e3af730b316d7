"""The tiny model that tests of banks are about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from k3d.experts.source import ExpertSource
from k3d.model.checkpoint import Checkpoint
from tests.tiny_checkpoint import TinyModel

Tiny = Callable[[TinyModel], Path]


MODEL = TinyModel(seed=1)


def source_of(folder: Path) -> ExpertSource:
    return ExpertSource(Checkpoint(folder))
