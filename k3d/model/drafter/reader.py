"""Loads a drafter of any published layout beside the model it drafts for."""

from __future__ import annotations

from pathlib import Path

import torch
from k3_kernels import Weight
from torch import Tensor

from k3d.errors import CheckpointError
from k3d.model.config import ModelConfig
from k3d.model.drafter.config import ChainDrafting, DrafterConfig, check_target
from k3d.model.drafter.dspark import DSparkDrafter, DSparkWeights
from k3d.model.drafter.eagle3 import Eagle3Drafter, Eagle3Weights
from k3d.model.drafter.layouts import EMBED, HEAD, TO_TARGET, tensor_list
from k3d.model.drafter.proposal import Drafter
from k3d.model.drafter.tensor_file import read_tensors
from k3d.model.drafter.vendors import read_config


def load_drafter(
    folder: Path,
    target: ModelConfig,
    embed: Tensor,
    head: Weight | Tensor,
    *,
    block: int | None = None,
) -> Drafter:
    """The drafter in `folder` (config.json, model.safetensors) for the model `target`.

    embed [vocab, hidden] as stored and head [vocab, hidden] are the model's own; a drafter that
    brings copies uses the model's where they are equal. `block` is how many drafts a round has at
    most, if it is not the file's number. Raises ConfigError or CheckpointError, by name.
    """
    config = read_config(folder, block)
    check_target(config, target, folder / "config.json")
    tensors = read_tensors(folder / "model.safetensors", tensor_list(config))
    embed = _own_unless_equal(tensors.pop(EMBED, None), embed)
    to_target = _to_target(folder, config, tensors.pop(TO_TARGET, None))
    matrix = head if isinstance(head, Tensor) else matrix_of(head)
    matrix = _own_unless_equal(tensors.pop(HEAD, None), matrix).float().contiguous()
    parts = {part: tensor.float() for part, tensor in tensors.items()}
    if isinstance(config.drafting, ChainDrafting):
        return Eagle3Drafter(Eagle3Weights.from_tensors(config, parts), embed, matrix, to_target)
    return DSparkDrafter(DSparkWeights.from_tensors(config, parts), embed, matrix)


def matrix_of(weight: Weight) -> Tensor:
    """What a prepared weight multiplies by: f32 [out, in]."""
    blocks = weight.codes.float()
    if weight.rest is not None:
        blocks = blocks + weight.rest.float()
    if weight.scale is not None:
        blocks = blocks * weight.scale.float()
    return blocks.flatten(0, 1)[: weight.in_features].t().contiguous()


def _own_unless_equal(own: Tensor | None, target: Tensor) -> Tensor:
    """A drafter's copy that is the model's table need not be kept twice."""
    if own is None or (own.shape == target.shape and torch.equal(own.float(), target.float())):
        return target
    return own


def _to_target(folder: Path, config: DrafterConfig, stored: Tensor | None) -> Tensor | None:
    """i64 [draft_vocab]: the model's id of each row of a reduced head."""
    if stored is None:
        return None
    ids = torch.arange(stored.shape[0]) + stored.long()
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        raise CheckpointError(
            f"tensor {TO_TARGET} of {folder / 'model.safetensors'} maps a draft outside the "
            f"vocabulary of {config.vocab_size}",
            hint="the file is damaged or of another model",
        )
    return ids
