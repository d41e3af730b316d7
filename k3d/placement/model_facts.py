"""What planning reads of a checkpoint: a few numbers of its config.json, and no tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from k3d.errors import CheckpointError, NotFound
from k3d.placement.pod import (
    Experts,
    Layers,
    ModelFacts,
    PodDescription,
    model_directory,
)

# An expert is three matrices in 4-bit codes with an 8-bit scale for every 16 of them, and two
# 32-bit scales a matrix.
BITS_PER_WEIGHT = 4 + 8 / 16
MATRICES = 3
GLOBAL_SCALE_BYTES = 8


Width = Annotated[int, msgspec.Meta(ge=1, le=2**20)]


class _TextConfig(msgspec.Struct):
    num_hidden_layers: Layers
    first_k_dense_replace: Annotated[int, msgspec.Meta(ge=0, le=2**12)]
    num_experts: Experts
    routed_expert_hidden_size: Width
    moe_intermediate_size: Width


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
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be used: {error}", hint="fetch it again; is it Kimi-K3's?"
        ) from error
    except ValueError as error:  # a path that the system knows to be none
        raise CheckpointError(
            f"the model's path {str(directory)!r} cannot be used: {error}",
            hint="set model in the pod description to the checkpoint's directory",
        ) from error
    if config.first_k_dense_replace >= config.num_hidden_layers:
        raise CheckpointError(
            f"{path}: {config.first_k_dense_replace} dense layers of {config.num_hidden_layers}; "
            "no layer has routed experts",
            hint="fetch it again; is it Kimi-K3's?",
        )
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
