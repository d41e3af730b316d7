"""k3ctl chat: one question, or a conversation on a terminal."""

from __future__ import annotations

import sys
from typing import Any

import click

from k3ctl.cli import output as streams
from k3ctl.cli.answer_text import AnswerText, stats_line
from k3ctl.cli.draft_rows import DraftRows
from k3ctl.cli.options import (
    Invocation,
    Real,
    Seconds,
    home_options,
    json_option,
    jsonl_option,
)
from k3ctl.cli.output import Output
from k3ctl.client.conversation import Answer, ask
from k3ctl.client.daemon import Daemon
from k3d.errors import ConfigError, K3Error


@click.command
@click.argument("prompt", required=False)
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer, in tokens.")
@click.option(
    "--temperature",
    type=Real(0, 100),
    help="How freely tokens are drawn; 0 always takes the likeliest (greedy).",
)
@click.option(
    "--top-p",
    type=Real(0, 1, min_open=True),
    help="Draw from the likeliest tokens that make up this share; 1 is all.",
)
@click.option(
    "--top-k",
    type=click.IntRange(min=0),
    help="Draw from so many of the likeliest tokens; 0 is no limit.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Same seed, same answer.")
@click.option("--thinking/--no-thinking", default=None, help="Let the model think first.")
@click.option("--system", metavar="TEXT", help="A system message before the conversation.")
@click.option("--raw", is_flag=True, help="The prompt is text to go on with, not a message.")
@click.option("--stats", is_flag=True, help="Speed, acceptance and reuse, on stderr.")
@click.option(
    "--draft-rows",
    type=DraftRows(),
    metavar="N|auto",
    help="Rows of a verification: 1 is plain decoding; auto (the default) lets the engine choose.",
)
@click.option(
    "--timeout",
    type=Seconds(0.1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for the next token.",
)
@home_options
@json_option
@jsonl_option
@click.pass_obj
def chat(
    invocation: Invocation,
    prompt: str | None,
    max_tokens: int | None,
    temperature: float | None,
    top_p: float | None,
    top_k: int | None,
    seed: int | None,
    thinking: bool | None,
    system: str | None,
    raw: bool,
    stats: bool,
    draft_rows: int | None,
    timeout: float,
) -> None:
    """Ask the model.

    The question is the argument, or stdin when that is not a terminal (or the argument is -).
    On a terminal without a question a conversation starts.

    Exits with 1 when somebody ended the request, as `k3ctl lanes cancel` does.
    """
    if raw and system is not None:
        raise ConfigError("--raw has no messages, so --system has no place", hint="drop one")
    settings = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
        "thinking": thinking,
        "draft_rows": draft_rows,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    output = invocation.output
    question = _question(prompt, output)
    opening = [] if system is None else [{"role": "system", "content": system}]
    with Daemon.station_of(invocation.home, timeout_s=timeout) as station:
        if question is not None:
            subject = (
                {"prompt": question}
                if raw
                else {"messages": [*opening, {"role": "user", "content": question}]}
            )
            _answer(station, {**subject, **settings}, output, stats)
            return
        if raw:
            raise ConfigError("--raw takes one prompt", hint="give it as argument or on stdin")
        from k3ctl.cli.chat_session import converse

        converse(invocation.home, station, opening, settings, output, stats=stats)


def _question(prompt: str | None, output: Output) -> str | None:
    """The one question, or None for a conversation."""
    if prompt is not None and prompt != "-":
        question = prompt
    elif prompt is None and streams.stdin_is_terminal():
        if streams.stdout_is_terminal() and output.text_wanted:
            return None
        raise ConfigError(
            "a conversation needs a terminal on both sides", hint='ask: k3ctl chat "..."'
        )
    else:
        question = _read_stdin()
    if not question.strip():
        raise ConfigError("the question is empty", hint='ask: k3ctl chat "What does ls do?"')
    return question


def _read_stdin() -> str:
    if sys.stdin is None:
        raise ConfigError("there is no question and stdin is closed", hint='k3ctl chat "..."')
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError("the question on stdin is not UTF-8 text") from error


def _answer(station: Daemon, request: dict[str, Any], output: Output, stats: bool) -> None:
    """Stream one answer in the form asked for."""
    answer = Answer()
    shown = AnswerText(output)
    try:
        for event in ask(station, request, answer):
            output.record(event)
            shown.show(event)
    except K3Error:
        if answer.text:
            output.text()  # the error starts on a line of its own
        raise
    if output.text_wanted and not answer.text.endswith("\n"):
        output.text()
    output.document("k3ctl.chat/1", answer.as_json())
    if stats:
        output.note(stats_line(answer))
    if answer.synthetic_acceptance is not None and not stats:
        output.note("synthetic acceptance is on: no model wrote this")
    if answer.finish_reason == "length":
        output.note("the answer was cut at --max-tokens")
