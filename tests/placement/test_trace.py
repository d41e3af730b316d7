"""The trace format, imports, histograms, and files that are damaged."""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from k3d.errors import ConfigError, K3Error, NotFound
from k3d.placement.trace import BLOCK_TOKENS, Trace, TraceHeader, read_trace
from k3d.placement.trace_import import import_trace
from k3d.placement.trace_stats import overlap, stats
from k3d.placement.trace_writer import TraceWriter

HELDOUT = Path(__file__).resolve().parents[2] / "banks" / "k3-mini" / "heldout.npz"
EXPERTS, LAYERS, TOP_K = 896, (1, 2, 5), 16


def _header(**keys: Any) -> TraceHeader:
    facts = {"layers": LAYERS, "experts": EXPERTS, "top_k": TOP_K, "weights": True}
    return TraceHeader(**{**facts, **keys})


def _ids(tokens: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.argsort(rng.random((tokens, len(LAYERS), EXPERTS)), -1)[..., :TOP_K]


def _write(path: Path, ids: np.ndarray, **keys: Any) -> Trace:
    weights = np.linspace(0, 1, ids.size).reshape(ids.shape) if keys.get("weights", True) else None
    with TraceWriter(path, _header(**keys)) as writer:
        writer.append(ids, weights, np.arange(len(ids)) // 7)
    return read_trace(path)


def test_what_is_written_is_read(tmp_path: Path, seed: int) -> None:
    ids = _ids(2 * BLOCK_TOKENS + 5, seed)
    trace = _write(tmp_path / "t", ids)
    assert (trace.tokens, trace.layers, trace.experts, trace.top_k) == (2053, LAYERS, 896, 16)
    assert np.array_equal(trace.ids.transpose(1, 0, 2), np.sort(ids, -1))
    assert trace.ids.max() == 895
    assert np.array_equal(trace.sequence, np.arange(2053) // 7)
    assert trace.weights is not None
    order = np.argsort(ids, -1)
    weights = np.linspace(0, 1, ids.size).reshape(ids.shape).astype(np.float16)
    assert np.array_equal(trace.weights.transpose(1, 0, 2), np.take_along_axis(weights, order, -1))
    assert read_trace(tmp_path / "t", with_weights=False).weights is None
    assert trace.counts.sum() == ids.size
    assert not (tmp_path / "t.part").exists()


def test_a_sample_is_made_of_stretches(tmp_path: Path, seed: int) -> None:
    trace = _write(tmp_path / "t", _ids(3000, seed), weights=False)
    sample = trace.sampled(500)
    assert 400 <= sample.tokens <= 500
    assert trace.sampled(5000) is trace
    assert trace.sampled(1).tokens == 1


def _read_or_sentence(path: Path) -> Trace | str:
    try:
        return read_trace(path)
    except K3Error as error:
        return error.message


WRONG = [
    ("chose expert 896 in layer 2, which has 896", lambda ids, _: ids.__setitem__((3, 1, 0), 896)),
    ("chose expert -1 in layer 1", lambda ids, _: ids.__setitem__((3, 0, 0), -1)),
    ("token 9 chose expert .* of layer 5 twice",
     lambda ids, _: ids.__setitem__((9, 2, 0), ids[9, 2, 1])),
    ("is not a number from 0", lambda _, w: w.__setitem__((3, 1, 0), np.nan)),
    ("is not a number from 0", lambda _, w: w.__setitem__((3, 1, 0), np.inf)),
    ("is not a number from 0", lambda _, w: w.__setitem__((3, 1, 0), -0.5)),
    ("is not a number from 0", lambda _, w: w.__setitem__((3, 1, 0), 1e9)),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "spoil"), WRONG)
def test_what_cannot_be_is_never_written(
    sentence: str, spoil: Any, tmp_path: Path, seed: int
) -> None:
    ids, weights = _ids(20, seed), np.ones((20, len(LAYERS), TOP_K))
    spoil(ids, weights)
    writer = TraceWriter(tmp_path / "t", _header())
    with pytest.raises(ConfigError, match=sentence), writer:
        writer.append(ids, weights, np.zeros(20))
    assert not (tmp_path / "t").exists()


def test_other_shapes_are_refused(tmp_path: Path, seed: int) -> None:
    ids = _ids(20, seed)
    for wrong, weights, sequence, sentence in (
        (ids[:, :2], None, np.zeros(20), "ids are"),
        (ids.astype(float), None, np.zeros(20), "ids are float64"),
        (ids, None, np.zeros(20), "for all tokens or for none"),
        (ids, np.ones((20, 3, 15)), np.zeros(20), "weights are"),
        (ids, np.ones(ids.shape), np.zeros(19), "19 sequence numbers for 20 tokens"),
    ):
        writer = TraceWriter(tmp_path / "t", _header())
        with pytest.raises(ConfigError, match=sentence), writer:
            writer.append(wrong, weights, sequence)
    empty = TraceWriter(tmp_path / "t", _header())
    with pytest.raises(ConfigError, match="no token"):
        empty.close()
    assert list(tmp_path.iterdir()) == [tmp_path / "t.part"] or not list(tmp_path.iterdir())


def test_any_damage_is_named_and_what_is_whole_is_kept(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "t"
    trace = _write(path, _ids(3 * BLOCK_TOKENS, seed))
    sound = path.read_bytes()
    rng = random.Random(seed)
    for cut in [rng.randrange(len(sound)) for _ in range(40)]:
        path.write_bytes(sound[:cut])
        with pytest.raises(K3Error) as caught:
            read_trace(path)
        assert str(path) in caught.value.message
    for bit in [rng.randrange(8 * len(sound)) for _ in range(60)]:
        spoilt = bytearray(sound)
        spoilt[bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        found = _read_or_sentence(path)
        # only the header's words are free to change
        assert str(path) in found if isinstance(found, str) else found.header != trace.header
    path.write_bytes(sound[:-10])
    with pytest.raises(ConfigError, match="the block after token 2048 is truncated"):
        read_trace(path)
    assert read_trace(path, salvage=True).tokens == 2048


def test_a_block_that_lies_is_refused(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "t"
    _write(path, _ids(10, seed), weights=False)
    sound = path.read_bytes()
    start = sound.index(b"BLK1")
    size = 10 * (4 + len(LAYERS) * TOP_K * 2)

    def block(raw: bytes, tokens: int = 10) -> bytes:
        payload = zlib.compress(raw)
        return struct.pack("<4sIII", b"BLK1", tokens, len(payload), zlib.crc32(payload)) + payload

    for raw, tokens, sentence in (
        (bytes(size), 10, "twice or out of order"),
        (bytes(40) + b"\xff\xff" * (size // 2 - 20), 10, "names expert 65535 of 896"),
        (bytes(size - 1), 10, "does not hold what its header says"),
        (bytes(size + 1), 10, "does not hold what its header says"),
        (bytes(100 << 20), 10, "no sound header|does not hold what"),
        (bytes(size), 2**31, "no sound header"),
        (b"", 0, "no sound header"),
    ):
        path.write_bytes(sound[:start] + block(raw, tokens))
        with pytest.raises(ConfigError, match=sentence):
            read_trace(path)
    path.write_bytes(sound[:start])
    with pytest.raises(ConfigError, match="holds no token"):
        read_trace(path)


def test_held_out_streams_are_imported(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for part, tokens in (("streams", 32 * 256), ("prompts", 653), ("all", 32 * 256 + 653)):
        written = import_trace(HELDOUT, out, experts=64, layers=None, part=part)  # type: ignore
        assert written.tokens == tokens
    trace = read_trace(out)
    assert (trace.layers, trace.experts, trace.top_k) == (tuple(range(1, 13)), 64, 4)
    assert trace.sequence[-1] == 47
    with np.load(HELDOUT) as file:
        assert np.array_equal(trace.ids[:, 256], np.sort(file["stream_experts"][1, 0], -1))
    with pytest.raises(ConfigError, match="does not say how many experts"):
        import_trace(HELDOUT, out, experts=None, layers=None)
    with pytest.raises(ConfigError, match=r"chose expert 6. in layer"):
        import_trace(HELDOUT, out, experts=60, layers=None)


def test_npz_json_and_traces_are_imported_alike(tmp_path: Path, seed: int) -> None:
    ids = _ids(30, seed)
    weights = np.random.default_rng(seed).random(ids.shape)
    np.savez(tmp_path / "a.npz", ids=ids, weights=weights, layers=LAYERS, experts=EXPERTS)
    document = {"ids": ids.tolist(), "weights": weights.tolist(), "layers": LAYERS}
    (tmp_path / "a.json").write_text(json.dumps({**document, "experts": EXPERTS}))
    first = tmp_path / "first"
    import_trace(tmp_path / "a.npz", first, experts=None, layers=None)
    for source in ("a.json", "first"):
        out = tmp_path / "out"
        import_trace(tmp_path / source, out, experts=None, layers=None)
        a, b = read_trace(first), read_trace(out)
        assert np.array_equal(a.ids, b.ids)
        assert np.array_equal(a.weights, b.weights)  # type: ignore[arg-type]


SOURCES = [
    ({}, "has no ids"),
    ([], "not an object"),
    ({"ids": []}, "ids is float64, not numbers"),
    ({"ids": [1, 2]}, r"ids are \[2\]"),
    ({"ids": [[[1, 2]]], "experts": 4, "layers": [1, 2]}, "1 layers, the model has 2"),
    ({"ids": [[[1, 2]]], "experts": 4, "layers": [-1]}, "not ascending layer numbers"),
    ({"ids": [[[1, 2]]], "experts": 1, "layers": [1]}, "2 experts a token of 1"),
    ({"ids": [[[1, 2]]], "experts": 99999, "layers": [1]}, "experts a token of 99999"),
    ({"ids": [[["a", 2]]]}, "ids is .*not numbers"),
    ({"ids": [[[1], [1, 2]]]}, "not an array"),
    ({"ids": [[[1, 2]]], "weights": [[[1.0, float("nan")]]]}, "does not say"),
    ({"ids": [[[1, 2]]], "weights": [[[1.0, float("nan")]]], "experts": 4, "layers": [1]},
     "not a number"),
    ({"ids": [[[1, 2]]], "weights": [[[1.0]]]}, "weights are"),
    ({"ids": [[[1, 2]]], "sequence": [1, 2]}, "sequence has 2 numbers for 1 tokens"),
    ({"ids": [[[1, 2]]], "sequence": [-1]}, "sequence is not numbers from 0"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "sentence"), SOURCES)
def test_a_source_that_cannot_be_is_named(document: Any, sentence: str, tmp_path: Path) -> None:
    source, out = tmp_path / "source.json", tmp_path / "out"
    source.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=rf"source.json.*{sentence}"):
        import_trace(source, out, experts=None, layers=None)
    assert not out.exists()


def test_a_source_that_is_no_file_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        import_trace(tmp_path / "none", tmp_path / "out", experts=1, layers=(1,))
    (tmp_path / "cut.npz").write_bytes(HELDOUT.read_bytes()[:1000])
    (tmp_path / "text").write_bytes(b"\xff\xfe nothing")
    for name in ("cut.npz", "text"):
        with pytest.raises(ConfigError, match=name):
            import_trace(tmp_path / name, tmp_path / "out", experts=1, layers=(1,))


def _trace(picks: list[list[int]], experts: int = 8) -> Trace:
    """One layer; a list of experts a token."""
    ids = np.array([picks], np.uint16)
    header = TraceHeader(layers=(3,), experts=experts, top_k=ids.shape[2], weights=False)
    return Trace(header, ids, None, np.zeros(len(picks), np.uint32))


def test_histograms_and_overlap() -> None:
    a = _trace([[0, 1]] * 6 + [[2, 3]] * 2)
    figures = stats(a)
    assert (figures.tokens, figures.picks, figures.experts, figures.never) == (8, 16, 8, 4)
    assert figures.decile_share[2] == pytest.approx(12 / 16)
    (layer,) = figures.layers
    assert (layer.layer, layer.used, layer.hottest_share) == (3, 4, 6 / 16)
    assert 2 < layer.effective < 4
    found = overlap(a, _trace([[0, 4]] * 3 + [[4, 5]]), 2)
    assert (found.shared, found.by_chance) == (0.5, 0.25)
    assert (found.own_share, found.other_share) == (7 / 8, 3 / 8)
    assert overlap(a, a, 3).shared == 1.0
    with pytest.raises(ConfigError, match="different models"):
        overlap(a, _trace([[0, 1]], experts=9), 2)
    with pytest.raises(ConfigError, match="hot set of 9"):
        overlap(a, a, 9)


def test_populations_of_disjoint_traffic_share_what_chance_gives(tmp_path: Path) -> None:
    parts = []
    for part in ("streams", "prompts"):
        import_trace(HELDOUT, tmp_path / part, experts=64, layers=None, part=part)  # type: ignore
        parts.append(read_trace(tmp_path / part))
    found = overlap(parts[0], parts[1], 154)
    assert found.shared < 0.35
    assert found.other_share < found.own_share


def test_a_header_that_would_steer_a_terminal_or_fill_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for keys, sentence in (
        ({"source": "\x1b[2J"}, "no plain text"),
        ({"layers": list(range(4096)), "experts": 65536}, "are more than 4,194,304"),
        ({"layers": [2, 1]}, "not ascending"),
        ({"top_k": 900}, "900 experts a token of 896"),
        ({"experts": 0}, "header is damaged"),
        ({"schema": "k3-trace/2"}, "header is damaged"),
    ):
        facts = {"schema": "k3-trace/1", "layers": [1], "experts": 896, "top_k": 2}
        text = json.dumps({**facts, "weights": False, **keys}).encode()
        path.write_bytes(b"K3TRACE1" + struct.pack("<I", len(text)) + text)
        with pytest.raises(ConfigError, match=sentence):
            read_trace(path)
