"""config.json of the published drafters: what is read, and what is refused by name."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k3d.errors import ConfigError
from k3d.model.drafter.config import BlockDrafting, ChainDrafting, DrafterConfig, check_target
from k3d.model.drafter.keys import Keys
from k3d.model.drafter.rope import Rope, Yarn
from k3d.model.drafter.vendors import read_config
from k3d.model.taps import Taps
from tests.model.drafter import tiny_configs, tiny_drafter
from tests.model.drafter.conftest import Beside

Document = dict[str, Any]


class Written:
    """Writes config.json of a kind after an edit, and reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(
        self, kind: str, edit: Callable[[Document], object] = copy.copy, block: int | None = None
    ) -> DrafterConfig:
        document = tiny_configs.DOCUMENTS[kind]()
        edit(document)
        tiny_drafter.write(self.folder, kind, document, weights={})
        return read_config(self.folder, block)

    def refusal(
        self, kind: str, edit: Callable[[Document], object], block: int | None = None
    ) -> str:
        with pytest.raises(ConfigError) as caught:
            self.read(kind, edit, block)
        assert "config.json" in caught.value.message
        return str(caught.value)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "drafter")


def inner(**values: object) -> Callable[[Document], None]:
    return lambda document: document["transformer_layer_config"].update(values)


def top(**values: object) -> Callable[[Document], None]:
    return lambda document: document.update(values)


def test_taps_are_zero_based_layers_of_a_named_stream(written: Written) -> None:
    assert written.read("radixark").taps == Taps((1, 4, 8), "materialized")
    assert written.read("own").taps == Taps((0, 3, 7), "materialized")
    assert written.read("inferact").taps == Taps((2, 4, 6), "raw_prefix")
    assert written.read("speculators").taps == Taps((2, 4, 8), "raw_prefix")
    assert written.read("eagle31").taps == Taps((1, 4, 7), "raw_prefix")
    assert written.read("own", top(tap_stream="raw_prefix")).taps.stream == "raw_prefix"
    from_zero = top(tap_id_base=0, aux_hidden_state_layer_ids=[0, 1, 2])
    assert written.read("speculators", from_zero).taps.layers == (0, 1, 2)


def test_how_each_kind_drafts(written: Written) -> None:
    own, radixark = written.read("own"), written.read("radixark")
    temperatures = tuple(tiny_configs.TEMPERATURES)
    assert own.drafting == BlockDrafting(tiny_configs.MASK, tiny_configs.RANK, temperatures)
    assert radixark.drafting == replace(own.drafting, temperatures=(1.0,) * 7)
    assert (own.block, written.read("speculators").block) == (7, 8)
    assert own.causal == (False, False)
    assert written.read("own", top(causal=True)).causal == (True, True)
    sliding = written.read("speculators")
    assert (sliding.windows, sliding.causal) == ((None, 5), (False, True))
    both_ways = written.read("speculators", top(sliding_window_non_causal=True))
    assert both_ways.causal == (False, False)
    assert written.read("radixark", top(markov_rank=24)).drafting == radixark.drafting
    every = inner(layer_types=["sliding_attention"] * 2)  # as RedHatAI published it
    assert written.read("speculators", every).windows == (5, 5)
    assert written.read("speculators", every).causal == (True, True)
    assert written.read("eagle30").drafting == ChainDrafting(128, False, False)
    assert written.read("eagle31").drafting == ChainDrafting(384, True, True)
    assert (written.read("eagle31").block, written.read("eagle31", block=2).block) == (4, 2)


def test_rope_is_read(written: Written) -> None:
    assert written.read("own").rope == Rope(500.0, 16, interleaved=False, yarn=None)
    grown = 0.1 * math.log(16.0) + 1
    assert written.read("radixark").rope == Rope(
        10000.0, 16, interleaved=False, yarn=Yarn(16.0, 64, 32.0, 1.0, grown, 1.0)
    )
    gain = (0.1 * math.log(32.0) + 1) ** 2
    assert written.read("inferact").rope == Rope(
        50000.0, 8, interleaved=True, yarn=Yarn(32.0, 128, 32.0, 1.0, 1.0, gain)
    )
    assert written.read("speculators").rope.yarn is None


@pytest.mark.parametrize(
    ("theta", "factor", "original", "ramp"),
    [(10000.0, 16.0, 65536, (20, 33)), (10000.0, 16.0, 4096, (10, 23)),
     (50000.0, 32.0, 32768, (15, 26))],
)  # fmt: skip
def test_ramps_of_the_published_drafters(
    theta: float, factor: float, original: int, ramp: tuple[int, int]
) -> None:
    rope = Rope(theta, 64, interleaved=False, yarn=Yarn(factor, original, 32.0, 1.0, 1.0, 1.0))
    assert rope.ramp() == ramp
    plain = Rope(theta, 64, interleaved=False, yarn=None).frequencies()
    ratio = (plain / rope.frequencies()).tolist()
    assert ratio[: ramp[0] + 1] == [1.0] * (ramp[0] + 1)
    assert ratio[-1] == pytest.approx(factor) or ramp[1] > 31


def test_inferacts_softmax_scale() -> None:
    gain = (0.1 * math.log(32.0) + 1) ** 2
    assert 192**-0.5 * gain == pytest.approx(0.13086, abs=1e-5)


REQUIRED = {
    "radixark": ("block_size", "head_dim", "hidden_size", "intermediate_size", "rms_norm_eps",
                 "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "vocab_size",
                 "architectures"),
    "own": ("tap_stream", "target_layer_ids", "mask_token_id", "markov_rank", "rope_theta"),
    "inferact": ("block_size", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
                 "qk_rope_head_dim", "v_head_dim", "target_layer_ids", "mask_token_id"),
    "speculators": ("tap_id_base", "tap_stream", "aux_hidden_state_layer_ids", "block_size",
                    "sliding_window_non_causal", "transformer_layer_config", "markov_rank"),
    "eagle30": ("num_speculative_tokens", "kv_lora_rank", "rope_theta", "vocab_size",
                "rms_norm_eps"),
    "eagle31": ("norm_output",),
}  # fmt: skip


@pytest.mark.parametrize("null", [False, True], ids=["absent", "null"])
@pytest.mark.parametrize(("kind", "key"), [(kind, k) for kind, ks in REQUIRED.items() for k in ks])
def test_required_keys_are_named(kind: str, key: str, null: bool, written: Written) -> None:
    def edit(document: Document) -> None:
        document.pop(key)
        if null:
            document[key] = None

    assert f"{key} is missing" in written.refusal(kind, edit)


@pytest.mark.parametrize("key", ["target_layer_ids", "mask_token_id", "markov_rank"])
def test_required_keys_of_a_section_are_named(key: str, written: Written) -> None:
    assert f"{key} is missing" in written.refusal(
        "radixark", lambda document: document["dflash_config"].pop(key)
    )


REFUSED: list[tuple[str, Callable[[Document], object], str]] = [
    ("own", top(layout="medusa"), "layout is 'medusa'"),
    ("radixark", top(architectures=["LlamaForCausalLMEagle3"]), "LlamaForCausalLMEagle3"),
    ("speculators", top(speculators_model_type="eagle3"), "speculators_model_type is 'eagle3'"),
    # Taps.
    ("own", top(tap_stream="residual"), "tap_stream is 'residual'"),
    ("inferact", top(tap_stream="materialized"), "tap_stream is materialized"),
    ("eagle31", top(tap_stream="materialized"), "tap_stream is materialized"),
    ("radixark", top(model_type="llama"), "tap_stream is missing"),
    ("own", top(target_layer_ids=[3, 0, 7]), "target_layer_ids is [3, 0, 7], not ascending"),
    ("own", top(target_layer_ids=[3, 3, 7]), "not ascending"),
    ("own", top(target_layer_ids=[]), "target_layer_ids is []"),
    ("own", top(target_layer_ids=[-1, 3]), "names layer -1"),
    ("own", top(target_layer_ids=["3"]), "target_layer_ids is ['3']"),
    ("eagle30", top(eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 4]}),
     "names layer 0, but its ids count from 1"),
    ("speculators", top(tap_id_base=2), "tap_id_base is 2"),
    ("speculators", top(aux_hidden_state_layer_ids=[0, 1, 2]), "count from 1"),
    ("inferact", top(num_target_layers=5), "num_target_layers is 5"),
    # Block and mask.
    ("own", top(mask_token_id=384), "mask_token_id is 384, outside a vocabulary of 384"),
    ("own", top(mask_token_id=-1), "mask_token_id is -1"),
    ("own", top(block_size=0), "block_size is 0"),
    ("own", top(block_size=8), "confidence_temperatures"),
    ("speculators", top(block_size=9), "block_size is 9, but its own proposal settings draft 8"),
    ("speculators", top(sample_from_anchor=False), "sample_from_anchor is False"),
    # Another architecture than the one that is run.
    ("own", top(attention_bias=True), "attention_bias is True"),
    ("own", top(hidden_act="gelu"), "hidden_act is 'gelu'"),
    ("own", top(markov_head_type="gated"), "markov_head_type is 'gated'"),
    ("own", top(enable_confidence_head=False), "enable_confidence_head is False"),
    ("inferact", top(mla_use_nope=True), "mla_use_nope is True"),
    ("inferact", top(mla_use_output_gate=True), "mla_use_output_gate is True"),
    ("inferact", top(target_hidden_size=7168), "target_hidden_size is 7168"),
    ("speculators", top(draft_vocab_size=100), "draft_vocab_size is 100"),
    ("eagle30", top(draft_vocab_size=1000), "draft_vocab_size is 1000"),
    ("eagle30", top(num_hidden_layers=2), "num_hidden_layers is 2"),
    ("own", top(num_key_value_heads=4), "num_attention_heads is 6"),
    ("own", top(dflash_config={"markov_rank": 7}), "markov_rank is 7, but markov_rank is 24"),
    # Numbers.
    ("own", top(rms_norm_eps=0), "rms_norm_eps is 0"),
    ("own", top(rms_norm_eps="1e-5"), "rms_norm_eps is '1e-5'"),
    ("own", top(causal="no"), "causal is 'no'"),
    ("own", top(hidden_size=True), "hidden_size is True"),
    ("own", top(confidence_temperatures=[1.0] * 6), "confidence_temperatures"),
    ("own", top(confidence_temperatures=[0.0] * 7), "confidence_temperatures"),
    # Positions.
    ("own", lambda document: document.pop("rope_scaling"), "rope_scaling is missing"),
    ("own", top(rope_scaling={"rope_type": "linear", "factor": 2.0}), "rope_type is 'linear'"),
    ("own", top(rope_scaling={"rope_type": "yarn"}), "rope_scaling.factor is missing"),
    ("own", top(rope_scaling={"rope_type": "yarn", "factor": 2.0}),
     "original_max_position_embeddings is missing"),
    ("own", top(rope_scaling={}), "rope_scaling.type is missing"),
    ("radixark", top(rope_parameters={"rope_type": "default"}), "rope_theta is missing"),
    ("own", top(head_dim=15), "head_dim is 15, not even"),
    ("speculators", inner(layer_types=["full_attention"]), "layer_types"),
    ("speculators", inner(layer_types=["full_attention", "chunked"]), "layer_types"),
    ("speculators", inner(sliding_window=None), "sliding_window is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "edit", "said"), REFUSED, ids=[said for _, _, said in REFUSED])
def test_what_cannot_be_run_is_named(
    kind: str, edit: Callable[[Document], object], said: str, written: Written
) -> None:
    assert said in written.refusal(kind, edit)


def test_the_block_size_trap(written: Written) -> None:
    """8 stored is 8 drafts, or 7 if 7 are asked for; nothing else."""
    edit = top(block_size=8, confidence_temperatures=None)
    assert written.read("own", edit).block == 8
    assert written.read("own", edit, block=8).block == 8
    assert written.read("own", edit, block=7).block == 7
    for asked in (6, 9):
        assert f"block_size is 8; asked for {asked}" in written.refusal("own", edit, asked)


def target_refusal(config: DrafterConfig, beside: Beside) -> str:
    with pytest.raises(ConfigError) as caught:
        check_target(config, beside.config, Path("folder/config.json"))
    return str(caught.value)


def test_a_drafter_of_another_model_is_refused(written: Written, beside: Beside) -> None:
    config = written.read("own")
    check_target(config, beside.config, Path("folder/config.json"))
    for change, said in (
        ({"hidden_size": 192}, "hidden_size is 192; the model has 160"),
        ({"vocab_size": 4096}, "vocab_size is 4096; the model has 384"),
        ({"target_layers": 93}, "the number of target layers is 93; the model has 9"),
        ({"taps": Taps((0, 9), "materialized")}, "layer 9, counted from 0"),
    ):
        assert said in target_refusal(replace(config, **change), beside)
    assert "93" in target_refusal(written.read("radixark", top(num_target_layers=93)), beside)
    inferact = written.read("inferact", top(target_num_hidden_layers=93))
    assert "93" in target_refusal(inferact, beside)


def test_a_config_that_is_no_document_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        read_config(tmp_path)
    for text, said in (("{", "cannot be read"), ("[]", "not an object")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=said):
            Keys.from_file(path)
