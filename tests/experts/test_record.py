"""Records: cut, joined and decoded to exactly what the release stores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from k3_kernels import expert_contributions

from k3d.errors import ConfigError
from k3d.experts.record import decode_atoms, pack_record
from k3d.experts.shape import ExpertFormat, ExpertShape, grid_exponent
from tests.experts.tiny_experts import decode, draw_dispatch, draw_tensors, tiny_shape

FORMATS = ("nvfp4", "mxfp4")


def matrices_of(shape: ExpertShape, record: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """w1, w3, w2 back from decoded atoms."""
    weights = decode_atoms(shape, torch.frombuffer(bytearray(record), dtype=torch.uint8))
    gate_up = weights.gate_up
    assert gate_up.scale is not None
    values = (gate_up.codes.double() * gate_up.scale)[0].permute(2, 0, 1)
    values = values.reshape(values.shape[0], -1)[:, : shape.latent].numpy()
    rows = values.shape[0] // 2
    down = weights.down[0].double().permute(2, 0, 1) * weights.down_scale
    return values[:rows], values[rows:], down.reshape(shape.latent, -1).numpy()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("width", "latent"), [(128, 96), (64, 160), (32, 32)])
def test_decoding_a_record_is_exact(form: ExpertFormat, width: int, latent: int) -> None:
    shape = tiny_shape(form, width=width, latent=latent)
    tensors = draw_tensors(shape, width + latent)
    record = pack_record(shape, tensors)
    assert len(record) == shape.record_bytes
    for index, found in enumerate(matrices_of(shape, record)):
        assert np.array_equal(found, decode(shape, tensors, index))


@pytest.mark.parametrize("form", FORMATS)
def test_a_slice_is_a_run_of_bytes(form: ExpertFormat) -> None:
    """Slice i of n decodes to its own columns of w2 and rows of w1 and w3."""
    shape = tiny_shape(form)
    tensors = draw_tensors(shape, 3)
    record = pack_record(shape, tensors)
    whole = [decode(shape, tensors, index) for index in range(3)]
    for count in (n for n in (1, 2, 4, 8) if shape.atoms % n == 0):
        size, columns = shape.slice_bytes(count), shape.width // count
        for part in range(count):
            cut = slice(part * columns, (part + 1) * columns)
            w1, w3, w2 = matrices_of(shape, record[part * size : (part + 1) * size])
            assert np.array_equal(w1, whole[0][cut])
            assert np.array_equal(w3, whole[1][cut])
            assert np.array_equal(w2, whole[2][:, cut])


@pytest.mark.parametrize("form", FORMATS)
def test_contributions_are_the_experts_output(form: ExpertFormat) -> None:
    shape = tiny_shape(form)
    tensors = draw_tensors(shape, 5)
    record = torch.frombuffer(bytearray(pack_record(shape, tensors)), dtype=torch.uint8)
    asked = draw_dispatch(shape, 1, 6)
    found = expert_contributions(
        asked.x.unsqueeze(0), asked.weights[:, 0].unsqueeze(0), decode_atoms(shape, record),
        beta=4.0, linear_beta=25.0, grid_exponent=-40,
    )[0]  # fmt: skip
    w1, w3, w2 = (decode(shape, tensors, index) for index in range(3))
    x = asked.x.double().numpy()
    gate, up = x @ w1.T, x @ w3.T
    hidden = 4 * np.tanh(gate / 4) / (1 + np.exp(-gate)) * 25 * np.tanh(up / 25)
    wanted = asked.weights[:, :1].double().numpy() * (hidden @ w2.T)
    error = np.linalg.norm(found.numpy() * 2.0**-40 - wanted) / np.linalg.norm(wanted)
    assert error < 1e-6


def test_the_real_record() -> None:
    """18,579,480 bytes of an expert less its twelve-byte scalars' room, in eight atoms."""
    shape = tiny_shape(width=3072, latent=3584)
    assert shape.atoms == 8
    scalars = 3 * 2 * 4
    assert shape.record_bytes - 8 * 16 == 18_579_480 - scalars
    assert tiny_shape("mxfp4", width=3072, latent=3584).record_bytes - 8 * 16 == 17_547_264


@pytest.mark.parametrize(
    ("form", "width", "atoms"),
    [("nvfp4", 128, 8), ("nvfp4", 64, 4), ("nvfp4", 48, 1), ("mxfp4", 128, 4), ("mxfp4", 64, 2)],
)
def test_atoms_are_whole_groups(form: ExpertFormat, width: int, atoms: int) -> None:
    shape = tiny_shape(form, width=width)
    assert shape.atoms == atoms
    for count in range(-1, 17):
        if count > 0 and atoms % count == 0:
            assert shape.slice_bytes(count) * count == shape.record_bytes
        else:
            with pytest.raises(ConfigError, match=f"into {count} slices"):
                shape.slice_bytes(count)


def test_a_width_of_no_whole_group_is_refused() -> None:
    with pytest.raises(ConfigError, match="24"):
        _ = tiny_shape(width=24).atoms


@pytest.mark.parametrize("scaling", [0.1, 1.0, 2.5])
@pytest.mark.parametrize("largest", [1e-30, 0.03, 1.0, 2688.0, 1e6])
def test_the_grid_leaves_room_for_every_contribution(scaling: float, largest: float) -> None:
    exponent = grid_exponent(largest, 384, 100.0, scaling)
    most = max(1.0, scaling) * 384 * max(largest, 2.0**-100) * 100.0
    quanta = most * 2.0**-exponent
    assert quanta <= 2.0**55
    assert quanta * 2**7 < 2.0**63
    assert quanta > 2.0**53  # and no bit is given away
