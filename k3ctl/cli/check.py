"""k3ctl check: the same tokens however they are decoded."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from k3ctl.cli.check_text import difference_lines, report_lines
from k3ctl.cli.kept import keep
from k3ctl.cli.options import Invocation, columns_options, home_options, json_option
from k3ctl.cli.progress import Progress
from k3ctl.cli.table import Column, Columns, count
from k3ctl.client.check_cases import LONG_TOKENS, make_cases, make_long_cases, variants
from k3ctl.client.check_run import Check
from k3ctl.client.daemon import Daemon
from k3ctl.client.environment import environment_of
from k3ctl.client.held_out import read_held_out
from k3ctl.client.own_pods import pod_answers
from k3ctl.client.pod_run import read_pod_run
from k3d.errors import Refused, TokensDiffer

ANSWER_S = 600.0
WAYS = Columns(
    "ways",
    (
        Column("answers", "answers", count, right=True),
        Column("tokens", "tokens", count, right=True),
        Column("accepted", "accepted", count, right=True),
        Column("reused", "reused", count, right=True),
        Column("preempted", "preempted", count, right=True),
        Column("skipped", "skipped"),
        Column("name", "name"),
    ),
)
POD_CASES = 16
"""Requests for each pod of its own, unless --full."""


@click.command
@click.option(
    "--prompts",
    type=click.IntRange(1, 10_000),
    default=8,
    show_default=True,
    help="Prompts, questions and running text in turns.",
)
@click.option(
    "--tokens",
    type=click.IntRange(1, 100_000),
    default=24,
    show_default=True,
    help="Longest answer, in tokens.",
)
@click.option("--greedy", "greedy", is_flag=True, help="Greedy decoding only.")
@click.option("--seeded", "seeded", is_flag=True, help="Seeded sampling only.")
@click.option("--full", is_flag=True, help="Every prompt in every way, and many pods.")
@click.option("--pods/--no-pods", default=True, show_default=True, help="Pods of its own, too.")
@click.option(
    "--pod", metavar="NAME|FILE", help="Their description (else that of the running pod)."
)
@columns_options(WAYS)
@home_options
@json_option
@click.pass_obj
def check(
    invocation: Invocation,
    prompts: int,
    tokens: int,
    greedy: bool,
    seeded: bool,
    full: bool,
    pods: bool,
    pod: str | None,
) -> None:
    """See that tokens do not depend on how they are decoded.

    Asks the running pod plainly, one request at a time, and again with drafts (1 to 8 rows a
    round and as many as pay), alone and in 8 lanes that start one behind the other, with and
    without prefixes to reuse. Then it makes small pods of its own: other sparks, placements,
    transports and chunks, and one whose memory is so short that lanes give way. Says PASS, or
    shows the first token that differs with the lead that each side's likeliest token had; the
    exit code is 13 then.
    """
    samplings = ["greedy"] * (greedy or not seeded) + ["seeded"] * (seeded or not greedy)
    output = invocation.output
    with Daemon.station_of(invocation.home, timeout_s=ANSWER_S) as station:
        status, engine = station.status(), station.engine()
        if engine["synthetic_acceptance"] is not None:
            raise Refused(
                "the pod runs with synthetic acceptance: its answers are no model's",
                hint="start it without --synthetic-acceptance",
            )
        held_out = read_held_out(invocation.home, station)
        room = engine["context"] - 32
        run = Check(
            make_cases(held_out, prompts, min(tokens, max(1, room - 200)), samplings),
            make_long_cases(held_out, min(LONG_TOKENS, room), samplings) if pods else [],
        )
        with Progress(output) as progress:
            run.ask_plainly(station, progress)
            run.run_variants(station, variants(full), full, progress)
    few = len(run.cases) if full else POD_CASES
    skipped = None
    if pods and run.difference is None:
        skipped = _run_pods(invocation, run, pod, status, few, full)
    settings = {"prompts": prompts, "tokens": tokens, "samplings": samplings, "full": full}
    document = _document(run, settings, status, held_out.source, skipped)
    document["receipt"] = keep(invocation, "check", dict(document), environment_of(status))
    output.document("k3ctl.check/1", document)
    invocation.listed((WAYS, document["ways"]), otherwise=lambda: _lines(run, document))
    if run.difference is not None:
        raise TokensDiffer(
            f"{run.difference.case}: token {run.difference.index} differs with "
            f"{run.difference.where}",
            hint="tokens must not depend on how they are decoded: this is a fault of k3pod",
        )


def _lines(run: Check, document: dict[str, Any]) -> list[str]:
    lines = report_lines(run, document)
    return lines if run.difference is None else [*lines, *difference_lines(run.difference)]


def _run_pods(
    invocation: Invocation, run: Check, pod: str | None, status: dict[str, Any], few: int,
    full: bool,
) -> str | None:  # fmt: skip
    """Answers of pods of their own; why there are none, if there are not."""
    if pod is None:
        running = read_pod_run(invocation.home)
        if running is None:
            return "the running pod was not started by k3ctl pod up; name one with --pod"
        pod = running.path
    model = status["model"]
    flags = ["--dtype", model["dtype"], "--placement", status["placement"]]
    bodies = {
        "model_digest": model["digest"],
        "cases": _bodies(run, few),
        "long": [case.body(None, "") for case in run.long_cases],
    }
    lines = pod_answers(invocation.home, pod, [*flags, *["--full"] * full], bodies)
    with Progress(invocation.output) as progress:
        run.read_pods(lines, few, progress)
    return None


def _bodies(run: Check, few: int) -> list[dict[str, Any]]:
    """The first cases, neighbours with different rows."""
    mixed = next(way for way in variants(True) if way.rows == "mixed")
    return [case.body(mixed.rows_of(i), "") for i, case in enumerate(run.cases[:few])]


def _document(
    run: Check, settings: dict[str, Any], status: dict[str, Any], source: str, skipped: str | None
) -> dict[str, Any]:
    done = [each for each in run.compared if each.skipped is None]
    return {
        "result": "pass" if run.difference is None else "differs",
        "provenance": "measured",
        "model": status["model"]["name"],
        "prompts_from": source,
        **settings,
        "answers": sum(each.answers for each in done),
        "tokens_compared": sum(each.tokens for each in done),
        "other_logprobs": sum(each.other_logprobs for each in done),
        "ways": [msgspec.to_builtins(each) | {"name": each.name} for each in run.compared],
        "pods_skipped": skipped,
        "difference": None if run.difference is None else run.difference.as_json(),
    }
