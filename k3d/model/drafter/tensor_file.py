"""A drafter's model.safetensors, read by its layout's table: every tensor once, none unknown."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from k3d.errors import CheckpointError
from k3d.model.config import refuse_shape
from k3d.model.drafter.layouts import TensorSpec
from k3d.safetensors_header import TensorEntry, read_header

_TORCH = {"BF16": torch.bfloat16, "F32": torch.float32, "I64": torch.int64, "I32": torch.int32}


def read_tensors(path: Path, specs: list[TensorSpec]) -> dict[str, Tensor]:
    """The tensors of `path` by part, as stored; optional ones only if they are there.

    Raises CheckpointError naming the tensor that is missing, unknown, of another shape or dtype,
    or holds values that are not numbers.
    """
    entries = {entry.name: entry for entry in read_header(path)}
    wanted = {spec.name: spec for spec in specs}
    _check_names(path, entries, wanted)
    tensors: dict[str, Tensor] = {}
    for name, entry in entries.items():
        spec = wanted[name]
        if entry.shape != spec.shape:
            raise refuse_shape(name, entry.shape, spec.shape)
        if entry.dtype not in spec.dtypes:
            raise CheckpointError(
                f"tensor {name} of {path} is {entry.dtype}, not {' or '.join(spec.dtypes)}",
                hint="the file is of another release format or damaged",
            )
        if spec.part is not None:
            tensors[spec.part] = _load(entry)
    return tensors


def _check_names(path: Path, found: dict[str, TensorEntry], wanted: dict[str, TensorSpec]) -> None:
    missing = sorted(
        name for name, spec in wanted.items() if not spec.optional and name not in found
    )
    if missing:
        raise CheckpointError(
            f"{path} lacks {len(missing)} tensors of this kind of drafter, {missing[0]} among them",
            hint="the file is incomplete or config.json is of another drafter",
        )
    unknown = sorted(found.keys() - wanted.keys())
    if unknown:
        raise CheckpointError(
            f"{path} has {len(unknown)} tensors that config.json has no use for, {unknown[0]} "
            "among them",
            hint="config.json is of another drafter",
        )


def _load(entry: TensorEntry) -> Tensor:
    buffer = bytearray(entry.size_bytes)
    try:
        with entry.path.open("rb") as file:
            file.seek(entry.offset)
            read = file.readinto(buffer)
    except OSError as error:
        raise CheckpointError(f"{entry.path} cannot be read: {error.strerror}") from error
    if read != entry.size_bytes:
        raise CheckpointError(
            f"{entry.path} ends within tensor {entry.name}", hint="fetch it again"
        )
    tensor = torch.frombuffer(buffer, dtype=_TORCH[entry.dtype]).view(entry.shape)
    if not torch.isfinite(tensor).all():
        raise CheckpointError(
            f"tensor {entry.name} of {entry.path} holds values that are not numbers",
            hint="fetch the file again",
        )
    return tensor
