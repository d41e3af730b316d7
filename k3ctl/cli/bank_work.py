"""k3ctl bank plan|build|stage|verify|scrub|ls|gc: what k3d does with banks, asked for and shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, TypeVar

import click

from k3ctl.cli import bank_work_text as show
from k3ctl.cli.options import Invocation, home_options, json_option, jsonl_option
from k3d.errors import ExitCode, K3Error

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
EVERY_S = 2.0
"""Between two lines of progress for a person."""


def _pod_options(command: Decorated) -> Decorated:
    """[POD], --placement and --as-released."""
    for option in (
        click.argument("pod", default="embedded", metavar="[POD]"),
        click.option("--placement", metavar="NAME|FILE", help="Placement policy, or a map."),
        click.option(
            "--as-released",
            is_flag=True,
            help="Leave MXFP4 experts as they are, not recast to NVFP4.",
        ),
    ):
        command = option(command)
    return command


def _rate_option(command: Decorated) -> Decorated:
    return click.option(
        "--rate", metavar="BYTES", help="Most bytes a second, as 200M or 2G; 256K at least."
    )(command)


def _dry_run_option(command: Decorated) -> Decorated:
    return click.option("--dry-run", is_flag=True, help="Say what would be done, do nothing.")(
        command
    )


@click.command()
@_pod_options
@click.option("--no-whole", is_flag=True, help="Not the Station's bank.")
@click.option("--no-slices", is_flag=True, help="Not the sparks' slices.")
@home_options
@json_option
@click.pass_obj
def plan(invocation: Invocation, pod: str, **flags: Any) -> None:
    """Show which banks a pod needs, what is there and what building would write.

    POD is a description, by name or file; its checkpoint must be on this machine.
    """
    _, document = _work(invocation, "plan", pod, flags)
    invocation.output.document("k3ctl.bank-plan/1", document)
    invocation.output.lines(show.plan_lines(document))


@click.command()
@_pod_options
@click.option("--no-whole", is_flag=True, help="Not the Station's bank.")
@click.option("--no-slices", is_flag=True, help="Not the sparks' slices.")
@click.option(
    "--sums", metavar="FILE", help="Check shards against sha256sum lines (else SHA256SUMS)."
)
@_dry_run_option
@home_options
@json_option
@jsonl_option
@click.pass_obj
def build(invocation: Invocation, pod: str, dry_run: bool, **flags: Any) -> None:
    """Write the banks of a pod from its checkpoint.

    The Station's bank holds every expert whole; each spark's holds its slice of the experts that
    the placement gives the sparks. Few records are in memory at a time. A build that was ended,
    by whatever, goes on where it stopped; a bank appears whole or not at all.
    """
    if dry_run:
        flags.pop("sums")
        _, document = _work(invocation, "plan", pod, flags)
        invocation.output.document("k3ctl.bank-plan/1", document)
        _done(invocation, "k3ctl.bank-plan/1", document)
        invocation.output.lines(show.plan_lines(document))
        return
    _, document = _work(invocation, "build", pod, flags)
    invocation.output.document("k3ctl.bank-build/1", document)
    _done(invocation, "k3ctl.bank-build/1", document)
    invocation.output.lines(show.build_lines(document))


@click.command()
@_pod_options
@click.option("--node", metavar="NAME", multiple=True, help="Only to this spark; repeatable.")
@click.option(
    "--to", metavar="NODE=HOST:PORT", multiple=True, help="Where a spark receives; repeatable."
)
@_rate_option
@_dry_run_option
@home_options
@json_option
@jsonl_option
@click.pass_obj
def stage(invocation: Invocation, pod: str, **flags: Any) -> int:
    """Send every spark its slice, all at once.

    A spark of another machine receives with `k3d bank receive`, on the port after its fabric_port;
    for those of this machine receivers are started here. Only records that are missing or damaged
    there are sent. With --dry-run the sparks check what they have and nothing is sent. The exit
    code is 6 when some sparks failed and others did not.
    """
    code, document = _work(invocation, "stage", pod, flags)
    invocation.output.document("k3ctl.bank-stage/1", document)
    _done(invocation, "k3ctl.bank-stage/1", document)
    invocation.output.lines(show.stage_lines(document))
    return _judged(invocation, code, show.stage_error(document))


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--pod", default="embedded", metavar="NAME|FILE", help="Whose checkpoint repairs.")
@click.option("--placement", metavar="NAME|FILE", help="Whose slices can be built again.")
@click.option("--as-released", is_flag=True, help="As for build.")
@click.option("--repair", is_flag=True, help="Put right what can be.")
@click.option("--source", is_flag=True, help="Compare the checkpoint with its bank too.")
@_rate_option
@home_options
@json_option
@click.pass_obj
def verify(invocation: Invocation, pod: str, files: tuple[str, ...], **flags: Any) -> int:
    """Read every bank again and hash every record again.

    Damage is named by node, file, layer and expert. The exit code is 1 when any is left.
    """
    code, document = _work(invocation, "verify", pod, flags, files)
    invocation.output.document("k3ctl.bank-verify/1", document)
    invocation.output.lines(show.verify_lines(document))
    return _judged(invocation, code, show.damage_error(document))


@click.command()
@click.option("--pod", default="embedded", metavar="NAME|FILE", help="Whose checkpoint repairs.")
@click.option("--placement", metavar="NAME|FILE", help="Whose slices can be built again.")
@click.option("--as-released", is_flag=True, help="As for build.")
@click.option("--share", metavar="SHARE", help="Of all bytes a day, above 0 to 1; 1/30 if not set.")
@click.option("--no-repair", is_flag=True, help="Only name what is damaged.")
@_rate_option
@_dry_run_option
@home_options
@json_option
@click.pass_obj
def scrub(invocation: Invocation, pod: str, **flags: Any) -> int:
    """Read and hash a share of the banks again, and repair what is damaged.

    Each run reads what is due since the last one, a day's share at most, from where that one
    stopped: call it from a timer. The exit code is 1 when damage is left.
    """
    code, document = _work(invocation, "scrub", pod, flags)
    invocation.output.document("k3ctl.bank-scrub/1", document)
    invocation.output.lines(show.scrub_lines(document))
    return _judged(invocation, code, show.damage_error(document))


@click.command("ls")
@click.option("--pod", default="embedded", metavar="NAME|FILE", help="Names the Station.")
@home_options
@json_option
@click.pass_obj
def list_banks(invocation: Invocation, pod: str) -> None:
    """List the banks of this home and how sure one can be of each.

    A bank is sound once all of it was read and hashed here and it has not changed since.
    """
    _, document = _work(invocation, "ls", pod, {})
    invocation.output.document("k3ctl.bank-ls/1", document)
    invocation.output.lines(show.list_lines(document))


@click.command()
@click.option("--pod", default="embedded", metavar="NAME|FILE", help="A pod to keep banks for.")
@_dry_run_option
@home_options
@json_option
@click.pass_obj
def gc(invocation: Invocation, pod: str, **flags: Any) -> None:
    """Remove banks that no map in force needs.

    What the map in force and the one before it need stays, and whatever cannot be told. Nothing is
    removed before a pod was up in this home, or while a change is under way.
    """
    _, document = _work(invocation, "gc", pod, flags)
    invocation.output.document("k3ctl.bank-gc/1", document)
    invocation.output.lines(show.clear_lines(document))


VERBS = (plan, build, stage, verify, scrub, list_banks, gc)


def _work(
    invocation: Invocation, verb: str, pod: str, flags: dict[str, Any], files: Sequence[str] = ()
) -> tuple[int, dict[str, Any]]:
    """Run a verb of k3d bank with flags as they are named there."""
    from k3ctl.client.bank_work import run_bank_work

    arguments = ["--home", str(invocation.home), "--pod", pod]
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, tuple):
            arguments += [part for each in value for part in (flag, each)]
        elif value is True:
            arguments.append(flag)
        elif value is not None and value is not False:
            arguments += [flag, str(value)]
    if files:
        arguments += ["--", *files]
    code, document = run_bank_work(verb, arguments, _Told(invocation))
    document.pop("schema", None)
    return code, document


class _Told:
    """Tells progress as the output's form asks: lines now and then, or every one as JSON."""

    def __init__(self, invocation: Invocation) -> None:
        self._output = invocation.output
        self._said_s = monotonic()

    def __call__(self, line: dict[str, Any]) -> None:
        self._output.record(line)
        now = monotonic()
        if self._output.text_wanted and now - self._said_s >= EVERY_S:
            self._said_s = now
            self._output.note(show.progress_line(line))


def _done(invocation: Invocation, schema: str, document: dict[str, Any]) -> None:
    """The last line of --jsonl."""
    invocation.output.record({"type": "done", "schema": schema, **document})


def _judged(invocation: Invocation, code: int, error: K3Error | None) -> int:
    if code != ExitCode.OK and error is not None:
        error.code = ExitCode(code) if code in set(ExitCode) else ExitCode.FAILED
        invocation.output.error(error)
    return code
