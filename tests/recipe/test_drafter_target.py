"""Decoding many rows a token at a time gives what whole rows give, taps included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from banks.recipe.config import TEST_SHAPE
from banks.recipe.drafter_target import Decoder, features
from banks.recipe.drafter_text import Prompts, chat_streams, written
from banks.recipe.pieces import mix
from tests.recipe.drafter_shapes import tiny_target

ROOT = Path(__file__).resolve().parents[2]
LAST = TEST_SHAPE.layers - 1


def test_decoding_equals_whole_rows(seed: int) -> None:
    model = tiny_target(seed)
    ids = torch.randint(512, (3, 24), generator=torch.Generator().manual_seed(seed))
    taps, last = features(model, ids, (0, 2, LAST))
    with torch.no_grad():
        torch.testing.assert_close(last.flatten(0, 1), model.hidden(ids))
    decoder = Decoder(model, 3, 24, (0, 2, LAST))
    steps = [decoder.step(ids[:, t]) for t in range(24)]
    torch.testing.assert_close(torch.stack([s[0] for s in steps], 1), taps, atol=2e-3, rtol=1e-3)
    torch.testing.assert_close(torch.stack([s[1] for s in steps], 1), last, atol=2e-3, rtol=1e-3)


def test_taps_are_what_the_next_attention_mixes(seed: int) -> None:
    model = tiny_target(seed)
    ids = torch.randint(512, (2, 16), generator=torch.Generator().manual_seed(seed))
    seen: list[Tensor] = []

    def spy(sources: list[Tensor], norm: Tensor, proj: Tensor, eps: float) -> Tensor:
        seen.append(mix(sources, norm, proj, eps))
        return seen[-1]

    object.__setattr__(model.pieces, "mix", spy)
    with torch.no_grad():
        model.hidden(ids)
    taps, _ = features(model, ids, (0, 2, LAST))
    width = TEST_SHAPE.hidden
    # Layer 0 mixes once (its bank is empty before attention), the others twice, then the output.
    for i, number in enumerate((1, 5, 9)):
        torch.testing.assert_close(
            taps[..., i * width : (i + 1) * width].flatten(0, 1), seen[number]
        )


def test_written_rows_keep_prompts_and_stop(seed: int) -> None:
    model = tiny_target(seed)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(512, (4, 10), generator=generator)
    lengths = torch.tensor([3, 10, 5, 8])
    text = written(model, Prompts(ids, lengths, torch.zeros(4)), 32, (1, 3))
    for row, length in enumerate(lengths.tolist()):
        assert text.ids[row, :length].tolist() == ids[row, :length].tolist()
    with torch.no_grad():
        best = model(text.ids).argmax(-1)
    for row, length in enumerate(lengths.tolist()):  # greedy: each token is the argmax before it
        assert text.ids[row, length:].tolist() == best[row, length - 1 : -1].tolist()
    taps, last = features(model, text.ids, (1, 3))
    torch.testing.assert_close(text.taps, taps, atol=2e-3, rtol=1e-3)
    torch.testing.assert_close(text.last, last, atol=2e-3, rtol=1e-3)
    stop = int(text.ids[0, 6])
    again = written(model, Prompts(ids, lengths, torch.zeros(4)), 32, (1, 3), stop)
    row = again.ids[0].tolist()
    assert int(again.ends[0]) == row.index(stop, 3) + 1


def test_conversations_are_chats_end_to_end() -> None:
    chats = {
        "tokens": np.arange(40, dtype=np.uint16),
        "offsets": np.array([0, 10, 40]),
        "weights": np.array([1.0, 0.0]),
    }
    rows = chat_streams(chats, 2, 16, np.random.default_rng(0))
    assert rows.tolist() == [[*range(10), *range(6)]] * 2


COMPARE = """
import sys, torch
from banks.recipe.drafter_kernel import delta_token as kernel_token, row_losses
from banks.recipe.drafter_loss import CE_SHARE, L1_SHARE, rows_reference
from banks.recipe.drafter_target import delta_token
g = torch.Generator().manual_seed(int(sys.argv[1]))
q, k, v = (torch.randn(3, 2, 16, generator=g) for _ in range(3))
k = torch.nn.functional.normalize(k, dim=-1)
decay, beta = -5.0 * torch.rand(3, 2, 16, generator=g), torch.rand(3, 2, generator=g)
state = torch.randn(3, 2, 16, 16, generator=g)
other = state.clone()
torch.testing.assert_close(kernel_token(q, k, v, decay, beta, other),
                           delta_token(q, k, v, decay, beta, state), atol=1e-5, rtol=1e-5)
torch.testing.assert_close(other, state, atol=1e-5, rtol=1e-5)
z, t = 3.0 * torch.randn(5, 200, generator=g), 3.0 * torch.randn(5, 200, generator=g)
y, w = torch.randint(200, (5,), generator=g), torch.rand(5, generator=g)
expected = rows_reference(z, t, y, w)
for got, want in zip(row_losses(z, t, y, w, CE_SHARE, L1_SHARE), expected):
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
"""


def test_kernels_equal_their_references(seed: int) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, str(seed)],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
