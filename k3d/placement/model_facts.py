"""What planning reads of a checkpoint: a few numbers of its config.json, and no tensor."""

from __future__ import annotations

from pathlib import Path

import msgspec

from k3d.errors import CheckpointError, NotFound
from k3d.placement.pod import ModelFacts, PodDescription, model_directory

# An expert is three matrices in 4-bit codes with an 8-bit scale for every 16 of them, and two
# 32-bit scales a matrix.
BITS_PER_WEIGHT = 4 + 8 / 16
MATRICES = 3
GLOBAL_SCALE_BYTES = 8


class _TextConfig(msgspec.Struct):
    num_hidden_layers: int
    first_k_dense_replace: int
    num_experts: int
    routed_expert_hidden_size: int
    moe_intermediate_size: int


class _Config(msgspec.Struct):
    text_config: _TextConfig


def read_model_facts(directory: Path) -> ModelFacts:
    """The facts of the checkpoint in a directory; `expert_bytes` is modelled, for NVFP4.

    Raises NotFound without a config.json, CheckpointError naming the key that is missing.
    """
    path = directory / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=_Config).text_config
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no model at {directory}: it has no config.json",
            hint="set model in the pod description to the checkpoint's directory",
        ) from error
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from error
    weights = MATRICES * config.routed_expert_hidden_size * config.moe_intermediate_size
    return ModelFacts(
        layers=config.num_hidden_layers,
        moe_layers=config.num_hidden_layers - config.first_k_dense_replace,
        experts=config.num_experts,
        expert_bytes=int(weights * BITS_PER_WEIGHT / 8) + MATRICES * GLOBAL_SCALE_BYTES,
    )


def facts_of(description: PodDescription, home: Path) -> ModelFacts:
    """The facts of a pod's model: of its checkpoint if it is here, else those it describes."""
    directory = model_directory(description, home)
    if directory is not None and (description.model_facts is None or directory.is_dir()):
        return read_model_facts(directory)
    assert description.model_facts is not None  # a description has one of the two
    return description.model_facts
