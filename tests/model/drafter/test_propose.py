"""What the engine relies on: rows, lanes, counts, cold starts, and nothing unsound escaping."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from k3_kernels import Weight
from torch import Tensor

from k3d.model.drafter import Drafter, Proposal, load_drafter
from k3d.model.drafter.dspark import (
    BlockContext,
    DSparkDrafter,
    DSparkWeights,
    block_hidden,
    confidence_logits,
    context_rows,
)
from k3d.model.drafter.layouts import EMBED, HEAD, tensor_list
from k3d.model.drafter.reader import matrix_of
from k3d.model.drafter.tensor_file import read_tensors
from k3d.model.drafter.vendors import read_config
from tests.model.drafter import tiny_configs, tiny_drafter
from tests.model.drafter.conftest import ROWS, Beside
from tests.model.drafter.tiny_configs import BLOCKS, DOCUMENTS, TEMPERATURES
from tests.tiny_checkpoint import HIDDEN, VOCAB

Folder = Callable[[str], Path]
EVERY_KIND = pytest.mark.parametrize("kind", DOCUMENTS)


def propose(
    drafter: Drafter, rows: Tensor, anchor: int = 5, count: int = 99, start: int = 0
) -> Proposal:
    return drafter.propose([rows], [anchor], [len(rows)], [count], [start])[0]


@EVERY_KIND
def test_rows_do_not_depend_on_how_they_are_chunked(
    kind: str, folder: Folder, beside: Beside
) -> None:
    drafter = beside.load(folder(kind))
    whole = beside.rows(drafter)
    assert whole.shape == (ROWS, drafter.row_width)
    assert whole.dtype == torch.float32
    bounds = [0, 1, 2, 7, ROWS]
    parts = [
        drafter.context_rows(beside.taps[a:b], torch.arange(a, b), beside.tokens[a:b])
        for a, b in pairwise(bounds)
    ]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-5, atol=1e-5)


@EVERY_KIND
def test_only_a_chain_reads_the_tokens_that_follow(
    kind: str, folder: Folder, beside: Beside
) -> None:
    drafter = beside.load(folder(kind))
    shifted = drafter.context_rows(beside.taps, torch.arange(ROWS), (beside.tokens + 1) % VOCAB)
    assert torch.equal(shifted, beside.rows(drafter)) == (kind in BLOCKS)


@EVERY_KIND
def test_lanes_together_draft_what_each_drafts_alone(
    kind: str, folder: Folder, beside: Beside
) -> None:
    drafter = beside.load(folder(kind))
    rows = beside.rows(drafter)
    contexts = [rows, rows[:4], rows[:9], rows[:0], rows]
    anchors, counts, starts = [5, 300, 77, 6, 5], [7, 3, 0, 5, 1], [0, 1, 0, 0, 6]
    positions = [len(context) for context in contexts]
    together = drafter.propose(contexts, anchors, positions, counts, starts)
    assert together[2] == Proposal((), ())
    for lane, found in enumerate(together):
        alone = drafter.propose(
            [contexts[lane]], [anchors[lane]], [positions[lane]], [counts[lane]], [starts[lane]]
        )[0]
        assert found.tokens == alone.tokens
        assert found.confidence == pytest.approx(alone.confidence, rel=1e-4)
        started = kind in BLOCKS or positions[lane] > 0
        assert len(found.tokens) == (min(counts[lane], drafter.block) if started else 0)


@EVERY_KIND
def test_fewer_drafts_are_the_first_ones(kind: str, folder: Folder, beside: Beside) -> None:
    drafter = beside.load(folder(kind))
    rows = beside.rows(drafter)
    most = propose(drafter, rows)
    assert len(most.tokens) == drafter.block
    assert all(0 < chance < 1 for chance in most.confidence)
    for count in range(drafter.block + 1):
        few = propose(drafter, rows, count=count)
        assert few.tokens == most.tokens[:count]
        assert few.confidence == pytest.approx(most.confidence[:count], rel=1e-4)


def test_a_causal_block_is_only_as_long_as_it_is_asked_to_be(
    tmp_path: Path, beside: Beside
) -> None:
    document = tiny_configs.own() | {"causal": True}
    drafter = beside.load(tiny_drafter.write(tmp_path / "drafter", "own", document))
    rows = beside.rows(drafter)
    most = propose(drafter, rows)
    for count in range(1, drafter.block):
        few = propose(drafter, rows, count=count)
        assert few.tokens == most.tokens[:count]
        assert few.confidence == pytest.approx(most.confidence[:count], rel=1e-4)


@EVERY_KIND
def test_rows_that_are_not_committed_are_not_read(
    kind: str, folder: Folder, beside: Beside
) -> None:
    """Before the start of a cold lane and behind the anchor there is garbage."""
    drafter = beside.load(folder(kind))
    rows = beside.rows(drafter)
    clean = propose(drafter, rows, start=6)
    dirty = torch.cat((rows, torch.full((3, drafter.row_width), float("nan"))))
    dirty[:6] = float("nan")
    found = drafter.propose([dirty], [5], [ROWS], [99], [6])[0]
    assert found == clean != propose(drafter, rows)
    nothing = drafter.propose([dirty], [5], [ROWS], [99], [ROWS])[0]
    assert len(nothing.tokens) == (drafter.block if kind in BLOCKS else 0)


@EVERY_KIND
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_what_is_not_a_number_costs_drafts_and_nothing_else(
    kind: str, poison: float, folder: Folder, beside: Beside
) -> None:
    drafter = beside.load(folder(kind))
    rows = beside.rows(drafter)
    bad = rows.clone()
    bad[-1] = poison
    sound, unsound = drafter.propose([rows, bad], [5, 5], [ROWS, ROWS], [99, 99])
    assert sound.tokens == propose(drafter, rows).tokens
    assert unsound == Proposal((), ())


@EVERY_KIND
@pytest.mark.parametrize("anchor", [-1, VOCAB, 2**40])
def test_an_anchor_outside_the_vocabulary_drafts_something(
    kind: str, anchor: int, folder: Folder, beside: Beside
) -> None:
    drafter = beside.load(folder(kind))
    found = propose(drafter, beside.rows(drafter), anchor)
    assert len(found.tokens) == drafter.block
    assert all(0 <= token < VOCAB for token in found.tokens)


def test_a_context_shorter_than_its_lane_is_an_error(folder: Folder, beside: Beside) -> None:
    drafter = beside.load(folder("own"))
    with pytest.raises(ValueError, match="lane 0 is at 12 with 11 context rows"):
        drafter.propose([beside.rows(drafter)[1:]], [5], [ROWS], [7])


def test_a_poisoned_markov_row_ends_the_block_behind_it(
    tmp_path: Path, folder: Folder, beside: Beside
) -> None:
    """A huge row overflows the logits of the draft after its token, not those before."""
    first = propose(beside.load(folder("own")), beside.rows(beside.load(folder("own")))).tokens[0]
    weights = tiny_drafter.tensors("own")
    weights["markov_head.markov_w1.weight"][first] = 3e38
    drafter = beside.load(tiny_drafter.write(tmp_path / "drafter", "own", weights=weights))
    found = propose(drafter, beside.rows(drafter), anchor=5)
    assert found.tokens == (first,)


def test_temperatures_calibrate_the_confidence(
    tmp_path: Path, folder: Folder, beside: Beside
) -> None:
    plain = tiny_drafter.write(
        tmp_path / "plain", "own", tiny_configs.own() | {"confidence_temperatures": None}
    )
    raw = propose(beside.load(plain), beside.rows(beside.load(plain)))
    calibrated = propose(beside.load(folder("own")), beside.rows(beside.load(folder("own"))))
    assert raw.tokens == calibrated.tokens
    logits = torch.logit(torch.tensor(raw.confidence, dtype=torch.float64))
    wanted = torch.sigmoid(logits / torch.tensor(TEMPERATURES))
    assert calibrated.confidence == pytest.approx(wanted.tolist(), rel=1e-4)


def test_blocks_of_one_sequence_are_those_of_its_lanes(folder: Folder, beside: Beside) -> None:
    """The form that training uses, many blocks over one context, is the form that drafts."""
    for kind in BLOCKS:
        drafter = beside.load(folder(kind))
        assert isinstance(drafter, DSparkDrafter)
        rows = beside.rows(drafter)
        at = torch.tensor([3, 8, ROWS])
        embedded = torch.randn(3, 5, HIDDEN, generator=torch.Generator().manual_seed(1))
        visible = torch.arange(ROWS) < at.unsqueeze(1)
        shared = block_hidden(drafter.weights, embedded, at, [BlockContext(rows, 3, visible)])
        apart = [BlockContext(rows[:end]) for end in at.tolist()]
        torch.testing.assert_close(
            shared, block_hidden(drafter.weights, embedded, at, apart), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("kind", BLOCKS)
def test_gradients_reach_every_tensor_that_is_trained(
    kind: str, folder: Folder, beside: Beside
) -> None:
    config = read_config(folder(kind))
    stored = read_tensors(folder(kind) / "model.safetensors", tensor_list(config))
    tables = {EMBED, HEAD}
    leaves = {n: t.float().requires_grad_() for n, t in stored.items() if n not in tables}
    weights = DSparkWeights.from_tensors(config, leaves)
    rows = context_rows(weights, beside.taps, torch.arange(ROWS))
    embedded = beside.embed[:14].float().view(2, 7, HIDDEN)
    at = torch.tensor([4, 9])
    visible = torch.arange(ROWS) < at.unsqueeze(1)
    hidden = block_hidden(weights, embedded, at, [BlockContext(rows, 2, visible)])
    before = weights.markov_w1[torch.arange(14).view(2, 7)]
    logits = hidden @ beside.head.float().t() + before @ weights.markov_w2.t()
    sure = confidence_logits(weights, hidden, before)
    (logits.logsumexp(-1).sum() + sure.square().sum()).backward()
    for name, leaf in leaves.items():
        assert leaf.grad is not None, name
        assert leaf.grad.abs().sum() > 0, name


@pytest.mark.parametrize("scaled", [False, True])
def test_a_prepared_head_is_the_matrix_it_was_made_of(scaled: bool) -> None:
    matrix = torch.randn(12, 300, generator=torch.Generator().manual_seed(3)).bfloat16()
    scale = torch.tensor([[0.5, 2.0, 4.0]]).expand(12, 3) if scaled else None
    found = matrix_of(Weight.from_matrix(matrix.double(), scale, fine=True))
    wanted = matrix.float()
    if scaled:
        wanted = wanted * torch.tensor([0.5] * 128 + [2.0] * 128 + [4.0] * 44)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)


def test_a_prepared_head_drafts_as_its_matrix(folder: Folder, beside: Beside) -> None:
    prepared = load_drafter(
        folder("own"), beside.config, beside.embed, Weight.from_matrix(beside.head.double())
    )
    plain = beside.load(folder("own"))
    rows = beside.rows(plain)
    assert propose(prepared, rows).tokens == propose(plain, rows).tokens


def test_copies_of_the_models_tables_are_kept_once(
    tmp_path: Path, folder: Folder, beside: Beside
) -> None:
    weights = tiny_drafter.tensors("speculators")
    weights["embed_tokens.weight"], weights["lm_head.weight"] = beside.embed, beside.head
    head = beside.head.float()
    copies = tiny_drafter.write(tmp_path / "drafter", "speculators", weights=weights)
    drafter = load_drafter(copies, beside.config, beside.embed, head)
    assert isinstance(drafter, DSparkDrafter)
    assert drafter.embed is beside.embed
    assert drafter.head is head
    other = load_drafter(folder("speculators"), beside.config, beside.embed, head)
    assert isinstance(other, DSparkDrafter)
    assert not torch.equal(other.embed, beside.embed)
