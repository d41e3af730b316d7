"""A bank of a tiny model, and copies of it for tests to damage."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from k3d.experts.bank import build_bank
from tests.experts.bank_copies import MODEL, Tiny, source_of

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def built(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A bank and the digest of its model; tests copy it before they damage it."""
    source = source_of(tiny(MODEL))
    path = tmp_path_factory.mktemp("banks") / "tiny.bank"
    build_bank(source, path)
    return path, source.checkpoint.digest


@pytest.fixture
def copy(built: tuple[Path, str], tmp_path: Path) -> Path:
    path = tmp_path / "tiny.bank"
    path.write_bytes(built[0].read_bytes())
    return path


@pytest.fixture
def digest(built: tuple[Path, str]) -> str:
    return built[1]
