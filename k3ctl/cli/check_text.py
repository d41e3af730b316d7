"""What k3ctl check shows: what was compared, and where two answers part."""

from __future__ import annotations

from typing import Any

from k3ctl.cli.output import paint
from k3ctl.cli.table import count, cut, table, wrapped
from k3ctl.client.check_cases import Difference
from k3ctl.client.check_run import Check, Compared
from k3d.counted import counted


def report_lines(run: Check, document: dict[str, Any]) -> list[str]:
    """Tables of the ways and pods, then PASS or what is wrong."""
    ways = [each for each in run.compared if each.way is not None]
    pods = [each for each in run.compared if each.way is None and each.skipped is None]
    lines = table(
        ["ROWS", "LANES", "CACHE", "ANSWERS", "TOKENS", "DRAFTS KEPT", "REUSED"],
        [_way(each) for each in ways],
        "lrlrrrr",
    )
    if pods:
        rows = [
            [cut(each.name, 52), count(each.answers), count(each.tokens), count(each.preempted)]
            for each in pods
        ]
        lines += ["", *table(["POD OF ITS OWN", "ANSWERS", "TOKENS", "GAVE WAY"], rows, "lrrr")]
    lines.append("")
    for each in run.compared:
        if each.skipped is not None:
            lines += wrapped(f"not compared: {each.name}: {each.skipped}")
    if document["pods_skipped"]:
        lines += wrapped(f"no pods of its own: {document['pods_skipped']}")
    if document["other_logprobs"]:
        tokens = counted(document["other_logprobs"], "token")
        lines += wrapped(
            f"the same with another log probability: {tokens}; "
            "a row's arithmetic depends on what is beside it"
        )
    lines += wrapped(_verdict(document), "      ")
    return lines


def difference_lines(found: Difference) -> list[str]:
    """The first token that differs, with what both sides thought of it."""
    rows = [
        ["plain", _token(found.expected), _margin(found.expected_margin)],
        [cut(found.where, 50), _token(found.found), _margin(found.found_margin)],
    ]
    title = f"{found.case}, token {found.index} of the answer:"
    return ["", title, "", *table(["DECODED", "TOKEN", "MARGIN"], rows, "lrr")]


def _verdict(document: dict[str, Any]) -> str:
    answers = counted(document["answers"], "answer")
    compared = f"{answers}, {counted(document['tokens_compared'], 'token')}"
    kept = f"; receipt {document['receipt']}" if document["receipt"] else ""
    if document["result"] == "pass":
        return (
            f"{paint('PASS', 'green')}  {compared}, every one as plain decoding wrote it "
            f"(measured; prompts from {document['prompts_from']}{kept})"
        )
    return f"{paint('DIFFERS', 'red')}  after {compared} (measured{kept})"


def _way(each: Compared) -> list[str]:
    assert each.way is not None
    lanes = str(each.way.lanes)
    return [
        str(each.way.rows), lanes, each.way.cache, count(each.answers), count(each.tokens),
        count(each.accepted), count(each.reused),
    ]  # fmt: skip


def _token(token: int | None) -> str:
    return "the end" if token is None else str(token)


def _margin(margin: float | None) -> str:
    return "-" if margin is None else f"{margin:.6f}"
