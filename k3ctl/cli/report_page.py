"""A report as a page: the sentences, tables and charts, each figure with its unit and label."""

from __future__ import annotations

from collections.abc import Iterable

from k3ctl.charts.panels import Panel
from k3ctl.cli.page import Block, Commands, Drawing, Grid, Page, Section, Words
from k3ctl.cli.table import count, counted, duration_us, percent, times
from k3ctl.client.moments import length_of_time, local
from k3ctl.client.report import Report
from k3ctl.client.report_figures import Spread
from k3ctl.client.series import History
from k3ctl.client.shown_series import shown_chart

MOST_CHANGES = 40
MOST_UNWELL = 25


def report_page(report: Report) -> Page:
    """`--json` has all of it; a page leaves out the oldest of very many changes."""
    since, until = local(report.span.since_s), local(report.span.until_s)
    return Page(
        title=f"{report.ran.pod}: {since} to {until}",
        subtitle=_verdict(report),
        sections=(
            Section("What ran", list(_what_ran(report))),
            Section("How fast", list(_how_fast(report))),
            Section("What was changed", list(_changed(report))),
            Section("What went wrong", list(_wrong(report))),
            Section(
                "What to look at next", [Commands(tuple((n.command, n.why) for n in report.next))]
            ),
        ),
        footnote=_footnote(report),
    )


def _verdict(report: Report) -> str:
    """The span in one sentence."""
    told = "No frame was recorded" if report.state is None else f"At its end {report.state}"
    failed, wrong = report.ran.requests["failed"], len(report.troubles)
    parts = [
        f"{counted(report.ran.requests['finished'], 'request')} finished, {count(failed)} failed",
        f"{counted(report.ran.decode_tokens, 'token')} written",
        f"{counted(wrong, 'trouble')} noted",
    ]
    return f"{told}: {'; '.join(parts)}."


def _what_ran(report: Report) -> Iterable[Block]:
    ran = report.ran
    known = ran.recorded_s > 0
    rows = [
        ("model", " ".join(part for part in (ran.model, ran.dtype) if part) or "-"),
        ("nodes", f"{ran.nodes}, transport {ran.transport}" if ran.nodes else "-"),
        ("k3pod", ", ".join(ran.versions) or "-"),
        ("recorded", f"{length_of_time(ran.recorded_s)} of {length_of_time(report.span.length_s)}"),
        ("healthy", f"{length_of_time(ran.healthy_s)} at least" if known else "-"),
        ("Station", f"started {_often(report.starts)}, ended {_often(report.ends)}"),
        ("requests", ", ".join(f"{count(n)} {name}" for name, n in ran.requests.items())),
        ("tokens", f"{count(ran.decode_tokens)} written, {count(ran.prompt_tokens)} of prompts"),
    ]
    yield Grid(("", ""), tuple(rows))
    if ran.unrecorded_s > 1:
        yield Words(
            f"Of {length_of_time(ran.unrecorded_s)} there is no record: no Station ran, or it did "
            "not record."
        )


def _how_fast(report: Report) -> Iterable[Block]:
    known = [spread for spread in report.spreads if spread.p50 is not None]
    if known:
        yield Grid(
            ("FIGURE", "P50", "P99", "LEAST", "MOST", "LABEL"),
            tuple(
                (
                    _named(each),
                    *(_figure(each, each_value) for each_value in (each.p50, each.p99)),
                    *(_figure(each, each_value) for each_value in (each.least, each.most)),
                    each.provenance,
                )
                for each in known
            ),
            " rrrr",
        )
        yield Words("Rates and times are over the frames in which there were any.")
    else:
        yield Words("Nothing was decoded while frames were recorded.")
    if report.tiers:
        yield Grid(
            ("TIER", "HOPS", "HOP P50", "HOP P99", "HIT SHARE", "LABEL"),
            tuple(
                (
                    tier.tier,
                    count(tier.hops),
                    duration_us(tier.p50_us),
                    duration_us(tier.p99_us),
                    percent(tier.hit_share),
                    tier.provenance + (", simulated memory" if tier.simulated else ""),
                )
                for tier in report.tiers
            ),
            " rrrr",
        )
    panels = [*_panels(report.throughput, ("tokens",)), *_panels(report.latency, ("token",))]
    if panels:
        rules = tuple(mark.at_s for mark in report.throughput.marks)
        shown = report.throughput.span
        cut = report.throughput.cut
        before = f"; nothing was recorded before {local(shown.since_s)}" if cut else ""
        yield Drawing(
            "tokens/s and the time between two tokens; dotted: another map in force" + before,
            tuple(panels),
            shown.since_s,
            shown.until_s,
            rules,
        )
    if report.receipts:
        yield Grid(
            ("RECEIPT", "AT", "LABEL", "FIGURES"),
            tuple(
                (
                    f"{receipt.kind} {receipt.id}",
                    local(receipt.at_ms / 1000),
                    receipt.provenance,
                    ", ".join(f"{name} {value:.4g}" for name, value in receipt.figures.items())
                    + f" ({receipt.command})",
                )
                for receipt in report.receipts
            ),
        )


def _changed(report: Report) -> Iterable[Block]:
    changes = report.changes[-MOST_CHANGES:]
    if len(report.changes) > len(changes):
        yield Words(f"Not listed: {counted(len(report.changes) - len(changes), 'earlier change')}.")
    if not changes:
        yield Words("Nothing that is recorded.")
        return
    yield Grid(
        ("AT", "WHAT"),
        tuple(
            (
                local(change.at_ms / 1000),
                ", ".join(part for part in (change.what, change.outcome, change.who) if part),
            )
            for change in changes
        ),
    )


def _wrong(report: Report) -> Iterable[Block]:
    failed, refused = report.ran.requests["failed"], report.ran.requests["refused"]
    if failed or refused:
        yield Words(f"Requests: {count(failed)} failed, {count(refused)} found the queue full.")
    if report.unwell:
        yield Grid(
            ("NODE", "STATE", "FOR AT MOST", "FROM", "REASON"),
            tuple(
                (
                    each.node or "the pod",
                    each.state,
                    length_of_time(each.most_s),
                    local(each.since_ms / 1000),
                    each.reason or "-",
                )
                for each in report.unwell[:MOST_UNWELL]
            ),
            "  r",
        )
    if len(report.unwell) > MOST_UNWELL:
        yield Words(f"Unwell for less long: {len(report.unwell) - MOST_UNWELL} more.")
    if report.troubles:
        yield Grid(
            ("FROM", "TO", "SEVERITY", "SUBJECT", "WHAT"),
            tuple(
                (
                    local(trouble.at_ms / 1000),
                    local(trouble.until_ms / 1000, date=False),
                    trouble.severity,
                    trouble.subject,
                    trouble.sentence
                    + (f" ({times(trouble.count)})" if trouble.source == "log" else ""),
                )
                for trouble in report.troubles
            ),
        )
    if not (failed or refused or report.unwell or report.troubles):
        yield Words("Nothing that is recorded.")


def _next(report: Report) -> Commands:
    return Commands(tuple((each.command, each.why) for each in report.next))


def _often(number: int) -> str:
    return times(number) if number else "never"


def _panels(history: History, keys: tuple[str, ...]) -> list[Panel]:
    return [
        shown_chart(chart).panel for chart in history.charts if chart.key in keys and chart.known
    ]


def _named(spread: Spread) -> str:
    unit = "ms" if spread.unit == "us" else spread.unit
    return spread.name if unit in spread.name else f"{spread.name}, {unit}"


def _figure(spread: Spread, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1000:,.2f}" if spread.unit == "us" else f"{value:,.2f}"


def _footnote(report: Report) -> str:
    labels = dict.fromkeys(
        [*(each.provenance for each in report.spreads if each.p50 is not None)]
        + [each.provenance for each in report.tiers]
        + [each.provenance for each in report.receipts]
    )
    said = f"Figures are {', '.join(labels) or 'not there'}"
    if report.ran.simulated:
        said += f"; simulated tiers: {', '.join(report.ran.simulated)}"
    coarsest = report.ran.coarsest_s
    if coarsest > 1.5:
        said += f"; a frame stands for up to {length_of_time(coarsest)}, of which it has the mean"
        said += " of rates and medians and the worst of states and 99th percentiles"
    return f"{said}. Made {local(report.made_s)} by k3ctl report from {report.home}."
