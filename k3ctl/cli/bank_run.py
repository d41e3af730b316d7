"""How the bank verbs run: a k3d child, its progress, and what is noted of its work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from k3ctl.cli import bank_work_text as show
from k3ctl.cli.options import Invocation
from k3ctl.cli.progress import Progress
from k3d.errors import ExitCode, K3Error


def work(
    invocation: Invocation,
    verb: str,
    pod: str | None,
    flags: Mapping[str, Any],
    files: Sequence[str] = (),
) -> tuple[int, dict[str, Any]]:
    """Run a verb of k3d bank with flags as they are named there, for the pod that is meant: exit
    code and document."""
    from k3ctl.client.bank_work import run_bank_work
    from k3ctl.client.pod_run import pod_meant

    arguments = ["--home", str(invocation.home), "--pod", pod_meant(invocation.home, pod)]
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
    output = invocation.output
    with Progress(output) as progress:

        def told(line: dict[str, Any]) -> None:
            output.record(line)
            if output.text_wanted:
                progress(show.progress_words(line), show.progress_part(line))

        code, document = run_bank_work(verb, arguments, told)
    document.pop("schema", None)
    return code, document


def finish(invocation: Invocation, schema: str, document: Mapping[str, Any]) -> None:
    """The document of --json and the last line of --jsonl."""
    invocation.output.document(schema, document)
    invocation.output.record({"type": "done", "schema": schema, **document})


def judged(invocation: Invocation, code: int, error: K3Error | None) -> int:
    """The exit code of work that was done and found something; its error said."""
    if code != ExitCode.OK and error is not None:
        error.code = ExitCode(code) if code in set(ExitCode) else ExitCode.FAILED
        invocation.output.error(error)
    return code


def keep_figures(invocation: Invocation, kind: str, figures: Mapping[str, Any] | None) -> None:
    """A receipt of work that moved bytes; None for work that had nothing to do."""
    if figures is not None:
        from k3ctl.cli.kept import keep
        from k3ctl.client.bank_figures import environment_here

        keep(invocation, kind, figures, environment_here())


def note(invocation: Invocation, message: str | None, detail: Mapping[str, Any]) -> None:
    """An event of work that changed or found something; None for work that did not."""
    if message is None:
        return
    from k3ctl.client.event_note import note_event

    try:
        note_event(invocation.home, "bank", message, detail=detail)
    except K3Error as error:
        invocation.output.note(f"the event was not noted: {error.message}")
