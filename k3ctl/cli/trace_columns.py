"""Columns of traces: apart from what reads traces, which needs numpy."""

from k3ctl.cli.table import Column, Columns, count, percent

LAYERS = Columns(
    "layers",
    (
        Column("layer", "layer", right=True),
        Column("used", "used", count, right=True),
        Column("effective", "effective", "{:.1f}".format, right=True, header="AS VARIED AS"),
        Column("hottest", "hottest", right=True),
        Column("hottest_share", "hottest_share", percent, right=True, header="OF PICKS"),
    ),
)
SHARED = Columns(
    "layers",
    (
        Column("layer", "layer", right=True),
        Column("shared", "shared", percent, right=True),
    ),
)
