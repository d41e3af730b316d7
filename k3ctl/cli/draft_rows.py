"""The value of --draft-rows."""

from __future__ import annotations

import click

MOST_ROWS = 64
"""More than any drafter fills; the engine verifies what its drafter gives."""


class DraftRows(click.ParamType):
    """A number of rows, or auto (None)."""

    name = "rows"

    def convert(
        self, value: str | int | None, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value is None or isinstance(value, int) or value == "auto":
            return value if isinstance(value, int) else None
        # Short enough to be one: Python refuses to read numbers of thousands of digits.
        rows = int(value) if value.isdecimal() and len(value) < 9 else 0
        if not 1 <= rows <= MOST_ROWS:
            self.fail(f"{value[:40]!r} is neither auto nor 1 to {MOST_ROWS}", param, ctx)
        return rows
