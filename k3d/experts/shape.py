"""What every routed expert of a model looks like, and how it is cut."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from k3d.errors import ConfigError

FP4_GROUP = {"nvfp4": 16, "mxfp4": 32}
ATOM_HEADER_BYTES = 16
# A layer's largest possible contribution keeps this many bits on the int64 grid; with at most 2^7
# atoms in a row's sum it stays below 2^62.
GRID_BITS = 55

ExpertFormat = Literal["nvfp4", "mxfp4"]


@dataclass(frozen=True)
class ExpertShape:
    """Counts and widths; an expert's `width` columns are cut into `atoms` of whole FP4 groups."""

    layers: tuple[int, ...]
    experts: int
    latent: int
    width: int
    top_k: int
    format: ExpertFormat
    situ_beta: float
    situ_linear_beta: float
    grid_exponents: tuple[int, ...]  # one a layer of `layers`

    @property
    def atoms(self) -> int:
        """The finest cut, at most 8: an expert can be sliced over 1, 2, .. `atoms` nodes."""
        group = FP4_GROUP[self.format]
        for atoms in (8, 4, 2, 1):
            if self.width % (atoms * group) == 0:
                return atoms
        raise ConfigError(f"expert width {self.width} is not a whole number of {group}-blocks")

    @property
    def atom_columns(self) -> int:
        return self.width // self.atoms

    @property
    def atom_bytes(self) -> int:
        """Codes and block scales of w1, w3 rows and w2 columns, after a 16-byte header."""
        codes = self.atom_columns * self.latent // 2
        scales = self.atom_columns * self.latent // FP4_GROUP[self.format]
        return ATOM_HEADER_BYTES + 3 * (codes + scales)

    @property
    def record_bytes(self) -> int:
        return self.atoms * self.atom_bytes

    def slice_bytes(self, slice_count: int) -> int:
        self.check_slices(slice_count)
        return self.record_bytes // slice_count

    def check_slices(self, slice_count: int) -> None:
        if slice_count < 1 or self.atoms % slice_count:
            raise ConfigError(
                f"experts of width {self.width} in {self.format} cannot be cut into {slice_count} "
                f"slices of whole FP4 blocks",
                hint=f"use a divisor of {self.atoms} sparks",
            )

    def grid_exponent(self, layer: int) -> int:
        return self.grid_exponents[layer - self.layers[0]]


def grid_exponent(largest_down: float, columns: int, situ_bound: float, scaling: float) -> int:
    """Exponent of a layer's contribution grid: |contribution| <= 2^GRID_BITS quanta always.

    |w * sum_c down_c h_c| <= max(1, scaling) * columns * largest_down * situ_bound.
    """
    bound = max(1.0, scaling) * columns * max(largest_down, 2.0**-100) * situ_bound
    return math.frexp(bound)[1] - GRID_BITS
