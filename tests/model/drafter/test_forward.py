"""Every published layout drafts what an independent reading of it drafts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from k3d.model.drafter import Drafter
from tests.model.drafter.conftest import ROWS, Beside
from tests.model.drafter.tiny_configs import BLOCKS, DOCUMENTS

Folder = Callable[[str], Path]


def draft(
    drafter: Drafter, beside: Beside, count: int, at: int = ROWS, start: int = 0
) -> tuple[list[int], list[float]]:
    rows = beside.rows(drafter, at)
    rows[:start] = float("nan")
    anchor = int(beside.tokens[at - 1])
    (found,) = drafter.propose([rows], [anchor], [at], [count], [start])
    return list(found.tokens), list(found.confidence)


@pytest.mark.parametrize("start", [0, 3, 11])
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_drafts_and_confidence_are_the_oracles(
    kind: str, start: int, folder: Folder, beside: Beside
) -> None:
    drafter, oracle = beside.load(folder(kind)), beside.oracle(folder(kind))
    taps = beside.taps.double().numpy()
    tokens = beside.tokens.tolist()
    if kind in BLOCKS:
        wanted = oracle.draft_block(taps, tokens[-1], start)
    else:
        wanted = oracle.draft_chain(taps, tokens, drafter.block, start)
    found = draft(drafter, beside, drafter.block, start=start)
    assert len(found[0]) == drafter.block
    assert found[0] == wanted[0]
    assert found[1] == pytest.approx(wanted[1], rel=1e-3, abs=1e-5)
