"""The table of a layer: each of its experts in a row."""

from __future__ import annotations

from collections.abc import Iterable

from k3ctl.cli.table import count, percent
from k3ctl.client.experts import Experts
from k3ctl.tui.ink import Span, line, strong
from k3ctl.tui.screens.tiers_view import ink_of
from k3ctl.tui.widgets.columns import Column, Row

COLUMNS = (
    Column("expert", "EXPERT", right=True),
    Column("tier", "TIER"),
    Column("slot", "SLOT", right=True),
    Column("uses", "USES", right=True),
    Column("share", "SHARE", right=True),
    Column("times_even", "X EVEN", right=True, drop=1),
)


def layer_rows(experts: Experts, position: int) -> Iterable[Row]:
    """The experts of a layer, by the layer's position."""
    uses = experts.layer_uses(position)
    total = sum(uses) if uses is not None else 0
    start = position * experts.count
    for number in range(experts.count):
        tier = experts.tiers[experts.tier_of[start + number]]
        slot = None if experts.slot_of is None else experts.slot_of[start + number]
        used = None if uses is None else uses[number]
        share = used / total if used is not None and total else None
        times = None if share is None else share * experts.count
        cells = (
            line(strong(str(number))),
            (Span(tier, ink_of(tier)),),
            line(count(slot)),
            line(count(used)),
            line(percent(share)),
            line("-" if times is None else f"{times:.2f}"),
        )
        yield Row(str(number), cells, (number, tier, slot, used, share, times))
