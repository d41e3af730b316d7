"""k3ctl bench: measurements that k3d makes; k3ctl asks for them and shows them."""

from __future__ import annotations

import subprocess

import click
import msgspec

from k3ctl.cli.options import Invocation, home_options, json_option
from k3ctl.cli.table import table
from k3ctl.client.daemon_log import last_sentence
from k3ctl.client.processes import daemon_command
from k3d.errors import ExitCode, K3Error


@click.group()
def bench() -> None:
    """Measure the pod."""


@bench.command("pod", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[K3D OPTIONS]")
@home_options
@json_option
@click.pass_obj
def bench_pod(invocation: Invocation, arguments: tuple[str, ...]) -> None:
    """Decode with the embedded pod and, in one process, with the same engine.

    Options after it are those of k3d bench pod.
    """
    command = [
        *daemon_command(),
        *("bench", "pod", "--json", "--home", str(invocation.home), *arguments),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise K3Error(
            f"k3d cannot be started: {error.strerror}",
            hint="install the node extra: pip install 'k3pod[node]'",
        ) from error
    if done.returncode != 0:
        raise _failure(done)
    try:
        document = msgspec.json.decode(done.stdout, type=dict)
    except msgspec.MsgspecError as error:
        raise K3Error("k3d bench pod did not answer with one JSON document") from error
    schema = str(document.pop("schema", "k3ctl.bench/1"))
    output = invocation.output
    output.document(schema, document)
    output.lines(table(["FIGURE", "VALUE"], _rows(document)))


def _rows(figures: dict, prefix: str = "") -> list[list[str]]:
    """Nested figures as dotted names and values."""
    rows = []
    for key, value in figures.items():
        if isinstance(value, dict):
            rows += _rows(value, f"{prefix}{key}.")
        else:
            shown = f"{value:,.3f}" if isinstance(value, float) else str(value)
            rows.append([f"{prefix}{key}", shown])
    return rows


def _failure(done: subprocess.CompletedProcess[str]) -> K3Error:
    words = last_sentence(done.stderr) or "it said nothing"
    error = K3Error(f"k3d bench pod failed: {words}", hint="see: k3ctl logs")
    known = done.returncode in set(ExitCode)
    error.code = ExitCode(done.returncode) if known and done.returncode else ExitCode.FAILED
    return error
