from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from k3d.model.config import ModelConfig
from k3d.model.drafter import Drafter, load_drafter
from tests.model.drafter import tiny_drafter
from tests.model.drafter.oracle import DrafterOracle
from tests.tiny_checkpoint import HIDDEN, VOCAB, TinyModel

ROWS = 12


@dataclass(frozen=True)
class Beside:
    """What a drafter gets of its model, and committed rows to draft from."""

    config: ModelConfig
    embed: Tensor
    head: Tensor
    taps: Tensor
    tokens: Tensor

    def load(self, folder: Path, block: int | None = None) -> Drafter:
        return load_drafter(folder, self.config, self.embed, self.head, block=block)

    def oracle(self, folder: Path) -> DrafterOracle:
        return DrafterOracle(folder, self.embed.double().numpy(), self.head.double().numpy())

    def rows(self, drafter: Drafter, count: int = ROWS) -> Tensor:
        """Context rows of the first `count` positions."""
        return drafter.context_rows(self.taps[:count], torch.arange(count), self.tokens[:count])


@pytest.fixture(scope="session")
def beside() -> Beside:
    draw = torch.Generator().manual_seed(7)
    return Beside(
        ModelConfig.from_document(TinyModel().config(), Path("config.json")),
        torch.randn(VOCAB, HIDDEN, generator=draw).bfloat16(),
        (torch.randn(VOCAB, HIDDEN, generator=draw) * 2 / HIDDEN**0.5).bfloat16(),
        torch.randn(ROWS, 3 * HIDDEN, generator=draw).bfloat16(),
        torch.randint(VOCAB, (ROWS,), generator=draw),
    )


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a tiny drafter of a kind. Shared: nobody changes its files."""
    written: dict[str, Path] = {}

    def find(kind: str) -> Path:
        if kind not in written:
            written[kind] = tiny_drafter.write(tmp_path_factory.mktemp(kind) / "drafter", kind)
        return written[kind]

    return find
