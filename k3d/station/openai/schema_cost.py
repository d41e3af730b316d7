"""What a schema may cost. Most of a grammar's cost is bounded while it is compiled and followed;
what is not is bounded here, before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from k3d.errors import ConfigError

MOST_MULTIPLE = 20_000
"""multipleOf becomes a state for each remainder; of several, for each pair of them."""


def check_cost(schema: Any) -> None:
    """Raises ConfigError for a schema whose grammar would take too long to compile."""
    together = math.lcm(*(each for each in _multiples(schema) if each), 1)
    if together > MOST_MULTIPLE:
        raise ConfigError(f"multipleOf: together they exceed {MOST_MULTIPLE}")


def _multiples(schema: Any) -> Iterator[int]:
    if isinstance(schema, list):
        for inner in schema:
            yield from _multiples(inner)
    elif isinstance(schema, dict):
        for key, inner in schema.items():
            if key == "multipleOf" and isinstance(inner, int | float):
                yield abs(Fraction(str(inner)).numerator)
            else:
                yield from _multiples(inner)
