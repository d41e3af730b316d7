"""Which hidden rows of the model a drafter reads.

With attention residuals "the output of layer i" is ambiguous, and the wrong stream gives drafts
that are never accepted, without an error. So the stream is named:

| stream | after zero-based layer i |
| --- | --- |
| raw_prefix | the running residual, before any mix or norm |
| materialized | what the next layer's attention mixes from bank and residual, before its norm; |
|              | after the last layer, the output mix |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TapStream = Literal["raw_prefix", "materialized"]


@dataclass(frozen=True)
class Taps:
    """Zero-based layers in ascending order, and the stream their rows are taken from."""

    layers: tuple[int, ...]
    stream: TapStream
