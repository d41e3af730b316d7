"""Tables of the placement verbs, whose columns -o names."""

from __future__ import annotations

from k3ctl.cli.table import Column, Columns, count, duration_us, percent, size

PLACES = Columns(
    "tiers",
    (
        Column("tier", "name"),
        Column("experts", "experts", count, right=True),
        Column("slots", "slots", count, right=True),
        Column("free", lambda tier: tier["slots"] - tier["experts"], count, right=True),
    ),
)
MOVED = Columns(
    "tiers",
    (
        Column("tier", "name"),
        Column("slots", "slots", count, right=True),
        Column("now", "experts_now", count, right=True),
        Column("then", "experts_then", count, right=True),
        Column("in", "in", count, right=True),
        Column("out", "out", count, right=True),
        Column("free", "free_slots_now", count, right=True),
        Column("staged", "most_staged", count, right=True),
        Column("copied", "size_bytes", size, right=True),
    ),
)
EFFECTS = Columns(
    "hops",
    (
        Column("tier", "tier"),
        Column("moment", "moment"),
        Column("hops", "hops", count, right=True),
        Column("p50", "p50_us", duration_us, right=True),
        Column("p99", "p99_us", duration_us, right=True),
        Column("label", "provenance"),
    ),
)
PLANNED = Columns(
    "tiers",
    (
        Column("tier", "tier"),
        Column("experts", "held", count, right=True),
        Column("of_picks", "share", percent, right=True),
        Column("a_call", "experts_a_call", right=True),
        Column("time", "time_us", duration_us, right=True),
    ),
)
SIMULATED = Columns(
    "maps",
    (
        Column("map", "map"),
        Column("mean", lambda found: found["token_us"]["mean_us"], duration_us, right=True),
        Column("p50", lambda found: found["token_us"]["p50_us"], duration_us, right=True),
        Column("p99", lambda found: found["token_us"]["p99_us"], duration_us, right=True),
        Column("floor", "floor_us", duration_us, right=True),
        Column("tokens_per_s", "tokens_per_s", right=True),
    ),
)
SEEN = Columns(
    "tiers",
    (
        Column("tier", "tier"),
        Column("experts", "held", count, right=True),
        Column("expected", "expected", percent, right=True),
        Column("seen", "seen", percent, right=True),
        Column("error", "error", percent, right=True),
    ),
)
