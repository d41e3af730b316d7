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
    matrix = head if isinstance(head, Tensor) else matrix_of(head)
    _check_map(folder / "model.safetensors", config, tensors.get(TO_TARGET))
    return assemble(config, tensors, embed, matrix)


def assemble(
    config: DrafterConfig, tensors: dict[str, Tensor], embed: Tensor, head: Tensor
) -> Drafter:
    """A drafter of the tensors of its layout by part, and the model's embed and head [vocab,
    hidden]."""
    own = dict(tensors)
    embed = _own_unless_equal(own.pop(EMBED, None), embed)
    head = _own_unless_equal(own.pop(HEAD, None), head).float().contiguous()
    offsets = own.pop(TO_TARGET, None)
    parts = {part: tensor.float() for part, tensor in own.items()}
    if isinstance(config.drafting, ChainDrafting):
        ids = None if offsets is None else _target_ids(offsets)
        return Eagle3Drafter(Eagle3Weights.from_tensors(config, parts), embed, head, ids)
    return DSparkDrafter(DSparkWeights.from_tensors(config, parts), embed, head)


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


def _target_ids(offsets: Tensor) -> Tensor:
    """The model's id of each row of a reduced head, i64; the file stores the difference."""
    return torch.arange(offsets.shape[0]) + offsets.long()


def _check_map(path: Path, config: DrafterConfig, offsets: Tensor | None) -> None:
    if offsets is None:
        return
    ids = _target_ids(offsets)
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        raise CheckpointError(
            f"tensor {TO_TARGET} of {path} maps a draft outside the vocabulary of "
            f"{config.vocab_size}",
            hint="the file is damaged or of another model",
        )
