"""k3ctl: arguments in, exit code out."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from k3ctl.cli import output
from k3ctl.cli.lazy import LazyGroup, Verb
from k3ctl.cli.options import Invocation, home_options, json_option
from k3ctl.cli.start import home_flag
from k3ctl.client.config_files import home_in_force, paths
from k3d import __version__
from k3d.errors import ConfigError, ExitCode, K3Error

VERBS = {
    "init": Verb("k3ctl.cli.init", "init", "Make the state database and the pod secret."),
    "status": Verb("k3ctl.cli.status", "status", "Show the state of the pod."),
    "pod": Verb("k3ctl.cli.pod", "pod", "Bring the pod up, take it down, show its state."),
    "chat": Verb("k3ctl.cli.chat", "chat", "Ask the model: one question, or a conversation."),
    "bank": Verb("k3ctl.cli.bank", "bank", "Count a model, build its banks, send and keep them."),
    "placement": Verb(
        "k3ctl.cli.placement", "placement", "Plan where experts live; swap it under traffic."
    ),
    "trace": Verb("k3ctl.cli.trace", "trace", "Record and see which experts tokens choose."),
    "health": Verb("k3ctl.cli.health", "health", "Say whether nodes make progress."),
    "lanes": Verb("k3ctl.cli.lanes", "lanes", "Show the requests in the Station; end one."),
    "logs": Verb("k3ctl.cli.logs", "logs", "Show the daemons' logs, merged by time."),
    "check": Verb(
        "k3ctl.cli.check", "check", "See that tokens do not depend on how they are decoded."
    ),
    "bench": Verb("k3ctl.cli.bench", "bench", "Measure the pod."),
    "top": Verb("k3ctl.cli.top", "top", "Show rates, nodes, tiers and lanes, live."),
    "plot": Verb("k3ctl.cli.plot", "plot", "Draw what was recorded, here or as a picture."),
    "replay": Verb("k3ctl.cli.replay", "replay", "Open the console on what was recorded."),
    "report": Verb("k3ctl.cli.report", "report", "Tell on one page what ran and what went wrong."),
    "config": Verb("k3ctl.cli.config", "config", "Show and check what k3ctl does by default."),
    "tui": Verb("k3ctl.cli.tui", "tui", "Open the console; so does k3ctl without a command."),
    "completion": Verb(
        "k3ctl.cli.completion", "completion", "Print the completion script of a shell."
    ),
    "help": Verb("k3ctl.cli.help", "show_help", "Explain a command or a topic."),
}

UNCONFIGURED = (None, "config", "help", "completion")
"""What is run although k3ctl.toml cannot be used."""


class Terminated(BaseException):
    """SIGTERM came."""


@click.group(
    cls=LazyGroup,
    verbs=VERBS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Topics: k3ctl help topics, exit-codes, environment, formatting, files.",
)
@click.version_option(__version__, "-V", "--version", message="k3ctl %(version)s")
@home_options
@json_option
@click.pass_context
def k3ctl(context: click.Context) -> int:
    """See and steer a Kimi-K3 pod.

    Begin with `k3ctl pod up`, then `k3ctl chat` and `k3ctl status`; `k3ctl pod down` ends it all.

    Data goes to stdout and words to stderr; --json and the exit codes are for scripts.
    """
    if context.obj.trouble is not None and context.invoked_subcommand not in UNCONFIGURED:
        raise context.obj.trouble
    if context.invoked_subcommand is None:
        return _without_verb(context)
    return 0


def _without_verb(context: click.Context) -> int:
    """The console on a terminal that can have it; else help."""
    invocation: Invocation = context.obj
    if invocation.output.text_wanted and output.stdout_is_terminal():
        from k3ctl.cli.tui import missing, tui

        reason = missing()
        if reason is None:
            with tui.make_context("tui", [], parent=context) as console:
                return tui.invoke(console)
        invocation.output.note(f"{reason.message}; {reason.hint}")
    invocation.output.document("k3ctl.help/1", {"text": context.get_help()})
    invocation.output.text(context.get_help())
    return 0


def run(arguments: Sequence[str]) -> int:
    """Run k3ctl with arguments; the exit code. Prints every error as its form asks."""
    invocation = Invocation()
    invocation.output.form = _form_asked_for(arguments)
    try:
        code = k3ctl.main(
            args=list(arguments),
            prog_name="k3ctl",
            standalone_mode=False,
            obj=invocation,
            default_map=_configured(invocation, arguments),
        )
        return int(code or 0)
    except output.ClosedPipe:
        output.leave_streams_quietly()
        return ExitCode.OK
    except K3Error as error:
        invocation.output.error(error)
        return error.code
    except click.ClickException as error:
        invocation.output.error(_usage_error(error))
        return ExitCode.USAGE
    except (KeyboardInterrupt, click.Abort):
        return _ended(invocation, ExitCode.INTERRUPT, "interrupted from the keyboard")
    except Terminated:
        return _ended(invocation, ExitCode.TERMINATED, "ended by a signal")
    except BrokenPipeError:
        output.leave_streams_quietly()
        return ExitCode.OK
    except OSError as error:
        invocation.output.error(K3Error(_os_sentence(error)))
        return ExitCode.FAILED


def main() -> None:
    """The console script."""
    output.occupy_closed_streams()
    signal.signal(signal.SIGTERM, _terminate)
    # A signal while Python shuts down must not print a traceback either.
    with contextlib.suppress(KeyboardInterrupt):
        try:
            code = run(sys.argv[1:])
        except Exception as error:  # the outermost: a fault ends with a sentence too
            if os.environ.get("K3_DEBUG") == "1":
                raise
            output.Output(_form_asked_for(sys.argv[1:])).error(_fault(error))
            code = ExitCode.FAILED
        output.settle_stdout()
        sys.exit(code)


def _ended(invocation: Invocation, code: ExitCode, words: str) -> int:
    """A person who pressed a key knows; who asked for JSON is told."""
    output.clear_bar()
    if not invocation.output.text_wanted:
        error = K3Error(words)
        error.code = code
        invocation.output.error(error)
    return code


def _fault(error: Exception) -> K3Error:
    """What is to be reported of an error that nobody foresaw."""
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    return K3Error(
        f"k3ctl has a fault: {type(error).__name__} at {where}: {error}",
        hint="please report it; K3_DEBUG=1 shows all of it",
    )


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def _configured(invocation: Invocation, arguments: Sequence[str]) -> dict[str, Any] | None:
    """Defaults of flags from k3ctl.toml, its other settings put in force. What is wrong with it is
    the trouble of the verb, if it needs it."""
    output.prefer()
    try:
        home = home_in_force(home_flag(arguments)[0])
        if not any(path.exists() for path in paths(home)):
            return None
        from k3ctl.cli.config_flags import default_map, flag_faults
        from k3ctl.client.config import read_configuration

        found = read_configuration(home, lambda content: flag_faults(k3ctl, content))
    except K3Error as error:
        asks_for_help = {"-h", "--help"} & set(arguments)
        invocation.trouble = None if asks_for_help else error
        return None
    output.prefer(colour=found["colour"], ascii_only=found["ascii"])
    return default_map(k3ctl, found.flags)


def _form_asked_for(arguments: Sequence[str]) -> output.Form:
    """The form asked for, known even when the arguments turn out not to parse."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--jsonl" in options:
        return "jsonl"
    return "json" if "--json" in options else "text"


def _usage_error(error: click.ClickException) -> ConfigError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "k3ctl"
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and context is not None:
        verbs = getattr(context.command, "list_commands", lambda _: [])(context)
        return ConfigError(f"{path} takes one of {', '.join(verbs)}", hint=f"see: {path} --help")
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Argument):
        # Its metavar may be its choices, which the message lists.
        error.param_hint = error.param_hint or f"'{error.param.human_readable_name}'"
    message = " ".join(error.format_message().split())  # click lists choices over several lines
    sentence = message[:1].lower() + message[1:]
    return ConfigError(sentence.rstrip("."), hint=f"see: {path} --help")


def _os_sentence(error: OSError) -> str:
    what = error.strerror or str(error)
    return f"{error.filename}: {what}" if error.filename else what
