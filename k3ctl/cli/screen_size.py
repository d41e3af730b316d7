"""How much room there is to draw in."""

from __future__ import annotations

import os
import shutil
import sys

from k3ctl.cli.output import stdout_is_terminal

PIPE_COLUMNS, PIPE_LINES = 80, 24
LEAST_COLUMNS, LEAST_LINES = 40, 8


def screen_size() -> tuple[int, int]:
    """Columns and lines of the terminal; 80 x 24 where stdout is none, whoever runs it.

    The terminal's own word counts: COLUMNS and LINES that a shell exported stay what they were when
    its window changes. They count where the terminal does not know.
    """
    if not stdout_is_terminal():
        return PIPE_COLUMNS, PIPE_LINES
    columns, lines = os.get_terminal_size(sys.stdout.fileno())
    if not columns or not lines:
        columns, lines = shutil.get_terminal_size((PIPE_COLUMNS, PIPE_LINES))
    return max(LEAST_COLUMNS, columns), max(LEAST_LINES, lines)
