"""Bars beside figures, in ASCII where nothing else can be shown."""

from __future__ import annotations

from k3ctl.charts import bars
from k3ctl.cli.output import unicode_shown


def bar(value: float, most: float, width: int) -> str:
    """A bar as long as `value` of `most` over `width` columns, at least a mark when not 0."""
    return bars.bar(value, most, width, not unicode_shown())
