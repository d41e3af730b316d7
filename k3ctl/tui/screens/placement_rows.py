"""The table of candidates: what is known of each, in a row."""

from __future__ import annotations

from pathlib import Path

from k3ctl.cli.table import count, duration_us
from k3ctl.client.candidates import Choice
from k3ctl.tui.ink import Span, line, quiet, strong
from k3ctl.tui.screens.placement_comparing import Comparing
from k3ctl.tui.widgets.columns import Column, Row

COLUMNS = (
    Column("name", "CANDIDATE", most=24),
    Column("rule", "RULE", drop=2, most=16),
    Column("token_us", "A TOKEN", right=True),
    Column("gain", "GAIN", right=True),
    Column("moves", "MOVES", right=True, drop=1),
)


def candidate_row(choice: Choice, comparing: Comparing) -> Row:
    """A candidate, with what a token would take and how it compares, where that is known."""
    compared = comparing.compared.get(choice.name)
    made = None if compared is None else compared.candidate.prediction
    moves = None if compared is None else compared.candidate.moves
    if choice.name in comparing.waiting:
        token = line(quiet("planning"))
    elif choice.name in comparing.refused or choice.reason is not None:
        token = line(Span("no trace" if choice.traced else "refused", "warn"))
    elif compared is not None and made is None:
        token = line(quiet("unknown"))
    else:
        token = line("-" if made is None else duration_us(made.then.mean_us))
    gain = None if made is None else made.gain
    ink = "good" if gain and gain > 0 else "bad" if gain and gain < 0 else "plain"
    return Row(
        choice.name,
        (
            line(strong(Path(choice.name).name)),
            line(quiet(choice.rule)),
            token,
            (Span("-" if gain is None else f"{100 * gain:+.1f} %", ink),),
            line(count(moves)),
        ),
        (choice.name, choice.rule, None if made is None else made.then.mean_us, gain, moves),
    )
