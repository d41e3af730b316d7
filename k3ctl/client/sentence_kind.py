"""What a sentence says, whatever its figures."""

from __future__ import annotations

import re

_FIGURES = re.compile(r"(?<![\w.-])\d+(?:[.,:-]\d+)*")


def sentence_kind(sentence: str) -> str:
    """The sentence without its figures: pids, times and sizes differ from one look to the next.

    The number in a name stays: what happened to spark-2 did not happen to spark-3.
    """
    return _FIGURES.sub("#", sentence)
