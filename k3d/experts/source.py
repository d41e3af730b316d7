"""Routed experts of a checkpoint, one record at a time, whatever release format they are in.

| release | codes (U8) | scales | value |
| --- | --- | --- | --- |
| modelopt NVFP4 | weight | weight_scale F8_E4M3, weight_scale_2 F32 | code * scale * scale_2 |
| packed NVFP4 | weight_packed | weight_scale, weight_global_scale F32 | code * scale / global |
| packed MXFP4 | weight_packed | weight_scale U8 | code * 2^(scale - 127) |

"packed" are the compressed-tensors layouts. Activation scales (input_scale) are not used. The
suffixes present decide, never the config or the repository's name.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from k3d.errors import CheckpointError
from k3d.experts.recast import recast
from k3d.experts.record import ExpertTensors, pack_record
from k3d.experts.shape import FP4_GROUP, ExpertFormat, ExpertShape, grid_exponent
from k3d.model.checkpoint import Checkpoint
from k3d.safetensors_header import TensorEntry

PROJECTIONS = ("w1", "w3", "w2")
UNKNOWN_EXPONENT = -100
"""As many bytes in a header as a real one."""
_LARGEST_NVFP4 = 6.0 * 448.0
_LARGEST_CODE = 6.0
_LARGEST_E8M0 = 252  # 6 * 2^126 is beyond float32


class ExpertSource:
    """Records in any order; `shape` carries what the whole pod must agree on.

    With `as_nvfp4` an MXFP4 release gives NVFP4 records of the very same values, where both are cut
    into as many atoms. The grid of contributions stays the release's, so that tokens do.
    """

    def __init__(self, checkpoint: Checkpoint, *, as_nvfp4: bool = False) -> None:
        self.checkpoint = checkpoint
        config = checkpoint.config
        self._format, self._packed, self._divides = _release_of(checkpoint)
        released = _shape(checkpoint, self._format)
        exponents = tuple(
            grid_exponent(
                self._largest_down(layer),
                released.atom_columns,
                config.situ_bound,
                config.routed_scaling,
            )
            for layer in config.moe_layers
        )
        self.recast_from: ExpertFormat | None = None
        shape = planned_shape(checkpoint, as_nvfp4=as_nvfp4)
        if shape.format != self._format:
            self.recast_from = self._format
        self.shape = replace(shape, grid_exponents=exponents)

    def record(self, layer: int, expert: int) -> bytes:
        """The packed record of one expert. Raises CheckpointError naming the tensor."""
        projections = [self._projection(layer, expert, name) for name in PROJECTIONS]
        if self.recast_from is not None:
            projections = self._recast(layer, expert, projections)
        codes, scales, global_scales = zip(*projections, strict=True)
        return pack_record(self.shape, ExpertTensors(codes, scales, global_scales))

    def entries(self, layer: int, expert: int) -> list[TensorEntry]:
        """Where the tensors of one expert lie."""
        names = [name for p in PROJECTIONS for name in self._tensor_names(layer, expert, p)]
        return [self.checkpoint.entry(name) for name in names]

    def _recast(
        self, layer: int, expert: int, projections: list[tuple[Tensor, Tensor, float]]
    ) -> list[tuple[Tensor, Tensor, float]]:
        matrices = [(codes, scales) for codes, scales, _ in projections]
        both, down = recast(matrices[:2]), recast(matrices[2:])
        if both is None or down is None:
            name = self._name(layer, expert, "w2" if both is not None else "w1")
            raise CheckpointError(
                f"tensor {name}.weight_scale spreads over more powers of two than NVFP4 holds: "
                f"layer {layer} expert {expert} cannot be recast exactly",
                hint="keep the release's own format: --as-released",
            )
        return both + down

    def skip(self) -> None:
        """Count every expert tensor as consumed: a staged bank serves them."""
        for layer in self.shape.layers:
            for expert in range(self.shape.experts):
                for name in PROJECTIONS:
                    self.checkpoint.claim(self._tensor_names(layer, expert, name))

    def _name(self, layer: int, expert: int, projection: str) -> str:
        return _name(layer, expert, projection)

    def _tensor_names(self, layer: int, expert: int, projection: str) -> list[str]:
        name = self._name(layer, expert, projection)
        suffixes = ["weight_packed" if self._packed else "weight", "weight_scale"]
        if self._format == "nvfp4":
            suffixes.append("weight_global_scale" if self._divides else "weight_scale_2")
        names = [f"{name}.{suffix}" for suffix in suffixes]
        optional = [f"{name}.{suffix}" for suffix in ("input_scale", "input_global_scale")]
        return names + [extra for extra in optional if extra in self.checkpoint]

    def _projection(self, layer: int, expert: int, projection: str) -> tuple[Tensor, Tensor, float]:
        shape = self.shape
        out, width = (
            (shape.latent, shape.width) if projection == "w2" else (shape.width, shape.latent)
        )
        names = self._tensor_names(layer, expert, projection)
        read = self.checkpoint.read
        codes = read(names[0], (out, width // 2), "U8")
        scales = read(names[1], (out, width // FP4_GROUP[self._format]), *self._scale_dtypes)
        self._check_scales(names[1], scales)
        if self._format == "mxfp4":
            return codes, scales, 1.0
        global_scale = self._global_scale(names[2])
        self.checkpoint.claim(names[2:])  # activation scales serve FP4 activations, not used here
        return codes, scales, global_scale

    @property
    def _scale_dtypes(self) -> tuple[str, ...]:
        return ("F8_E4M3",) if self._format == "nvfp4" else ("U8", "F8_E8M0")

    def _check_scales(self, name: str, scales: Tensor) -> None:
        """An e4m3 0x7f / 0xff or an e8m0 0xff is NaN: no release stores one."""
        if self._format == "nvfp4":
            bad = (scales & 0x7F) == 0x7F
        else:
            bad = scales > _LARGEST_E8M0
        if bad.any():
            raise CheckpointError(
                f"tensor {self.checkpoint.entry(name).name} holds a scale that is not a number",
                hint="fetch the shard again",
            )

    def _global_scale(self, name: str) -> float:
        entry = self.checkpoint.entry(name)
        if math.prod(entry.shape) != 1 or entry.dtype != "F32":
            raise CheckpointError(f"tensor {entry.name} is {entry.dtype} {list(entry.shape)}, not "
                                  "one F32 scale")  # fmt: skip
        value = float(self.checkpoint.peek(name).view(()))
        if not math.isfinite(value) or value <= 0:
            raise CheckpointError(f"tensor {entry.name} is {value}, not a scale")
        return 1.0 / value if self._divides else value

    def _largest_down(self, layer: int) -> float:
        """A bound on |w2| over a layer's experts, from scales alone."""
        largest = 0.0
        config = self.checkpoint.config
        shape = (config.latent_size, config.expert_width // FP4_GROUP[self._format])
        for expert in range(config.experts):
            name = self._name(layer, expert, "w2")
            if self._format == "nvfp4":
                suffix = "weight_global_scale" if self._divides else "weight_scale_2"
                scale = self._global_scale(f"{name}.{suffix}")
                largest = max(largest, _LARGEST_NVFP4 * scale)
            else:
                scales = self.checkpoint.peek(f"{name}.weight_scale", shape, *self._scale_dtypes)
                largest = max(largest, _LARGEST_CODE * 2.0 ** (int(scales.max()) - 127))
        return largest


def planned_shape(checkpoint: Checkpoint, *, as_nvfp4: bool = False) -> ExpertShape:
    """The shape of an ExpertSource without reading scales: all is right but its grid."""
    released = _shape(checkpoint, _release_of(checkpoint)[0])
    recast = replace(released, format="nvfp4")
    # Atoms are what contributions are rounded by: other atoms would be other tokens.
    return recast if as_nvfp4 and recast.atoms == released.atoms else released


def _release_of(checkpoint: Checkpoint) -> tuple[ExpertFormat, bool, bool]:
    """The format, whether names are the packed ones, and whether global scales divide."""
    first = _name(checkpoint.config.moe_layers[0], 0, "w1")
    packed = f"{first}.weight_packed" in checkpoint
    divides = f"{first}.weight_global_scale" in checkpoint
    return ("mxfp4" if packed and not divides else "nvfp4"), packed, divides


def _shape(checkpoint: Checkpoint, form: ExpertFormat) -> ExpertShape:
    config = checkpoint.config
    return ExpertShape(
        layers=config.moe_layers,
        experts=config.experts,
        latent=config.latent_size,
        width=config.expert_width,
        top_k=config.top_k,
        format=form,
        situ_beta=config.situ_beta,
        situ_linear_beta=config.situ_linear_beta,
        grid_exponents=(UNKNOWN_EXPONENT,) * len(config.moe_layers),
    )


def _name(layer: int, expert: int, projection: str) -> str:
    return f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{projection}"
