"""stdout, stderr and exit codes. Nothing else in k3ctl writes to a terminal or a pipe.

Data goes to stdout, words to stderr. Under --json stdout carries one document, under --jsonl one
object a line, and the last line of stderr is the error as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from k3d.errors import ExitCode, K3Error

Form = Literal["text", "json", "jsonl"]

EXIT_SENTENCES: dict[ExitCode, str] = {
    ExitCode.OK: "done; repeating a command that was already carried out is also 0",
    ExitCode.FAILED: "it failed; the sentence on stderr says what and why",
    ExitCode.USAGE: "wrong flag, argument, description, policy or configuration",
    ExitCode.UNREACHABLE: "a daemon cannot be reached or was lost; worth a retry",
    ExitCode.TIMEOUT: "nothing came within the time given; worth a retry",
    ExitCode.REFUSED: "understood and not allowed: wrong secret, other version, pod differs",
    ExitCode.PARTIAL: "some nodes did and some did not; each is listed",
    ExitCode.NOT_FOUND: "the thing named does not exist",
    ExitCode.LOCKED: "another process holds the lock; worth a retry",
    ExitCode.STALE: "the plan was made from a state that has changed since",
    ExitCode.DIFFERS: "two ways of decoding gave different tokens; the first is shown",
    ExitCode.WOULD_CHANGE: "a dry run that would change something, with --detailed-exitcode",
    ExitCode.INTERRUPT: "interrupted from the keyboard",
    ExitCode.TERMINATED: "told to end by a signal",
}
HEALTH_SENTENCES: dict[int, str] = {
    0: "healthy",
    1: "degraded: it works, but not all of it",
    3: "down",
    4: "unknown: it cannot be told",
}

# Control characters but tab and line feed, marks that turn the direction of writing, and escapes
# that are no colour. Compiled when there is text to tame: JSON needs none.
_STEERING = r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_COLOURS = {"green": "32", "yellow": "33", "red": "31", "dim": "2", "bold": "1"}
_STATE_COLOURS = {"healthy": "green", "degraded": "yellow", "down": "red", "unknown": "yellow"}
_GLYPHS = {"healthy": "●", "degraded": "◐", "down": "○", "unknown": "?"}
_ASCII_GLYPHS = {"healthy": "+", "degraded": "~", "down": "-", "unknown": "?"}


_SPELLED = str.maketrans({"…": "...", "–": "-", "—": "-", "×": "x", "·": ".", "→": "->", "°": " "})
_preferred: dict[str, Any] = {"colour": "auto", "ascii": False}

_bar = {"shown": False}


class ClosedPipe(Exception):
    """The reader of stdout went away: there is nobody left to talk to."""


class Output:
    """Where one command's words and data go. No dataclass: their module takes long to import.

    `request` is the one that is carried out, where the command has an id (k3ctl.cli.mutation);
    `told` is schema and content of the document, in whatever form they were shown. `home_flag` is
    the home that the command was told: commands named to a person are told it too.
    """

    def __init__(self, form: Form = "text", *, quiet: bool = False) -> None:
        self.form: Form = form
        self.quiet = quiet
        self.request: Mapping[str, Any] | None = None
        self.told: tuple[str, Mapping[str, Any]] | None = None
        self.home_flag: str | None = None

    @property
    def text_wanted(self) -> bool:
        return self.form == "text"

    def text(self, line: str = "") -> None:
        """A line for a person, on stdout; nothing under --json and --jsonl."""
        if self.text_wanted:
            write_data(spelled(tame(line)) + "\n")

    def lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.text(line)

    def piece(self, text: str) -> None:
        """Part of a line of data, shown at once: to a terminal tamed, to a pipe as it is.

        What a model wrote keeps its letters where only tables and marks are wanted in ASCII.
        """
        if self.text_wanted:
            shown = tame(text) if stdout_is_terminal() else text
            write_data(spelled(shown) if stdout_is_terminal() and locale_is_ascii() else shown)

    def document(self, schema: str, content: Mapping[str, Any]) -> None:
        """The one document of --json; nothing in the other forms."""
        self.told = (schema, content)
        if self.form == "json":
            whole = {"schema": schema, **content}
            if self.request is not None:
                whole["request"] = self.request
            write_data(_json(whole) + "\n")

    def record(self, content: Mapping[str, Any]) -> None:
        """One line of --jsonl; nothing in the other forms."""
        if self.form == "jsonl":
            write_data(_json(content) + "\n")

    def note(self, words: str) -> None:
        """Words for a person, on stderr, unless -q."""
        if not self.quiet:
            write_words(self._at_home(words))

    def error(self, error: K3Error) -> None:
        """An error: a sentence, or as JSON when the caller asked for JSON."""
        hint = self._at_home(error.hint) if error.hint else error.hint
        if self.text_wanted:
            write_words(f"k3ctl: {error.message}")
            if hint:
                write_words(f"  {hint}")
            return
        write_words(_json({**error.document(), "hint": hint}))

    def state(self, state: str) -> str:
        return state_shown(state)

    def _at_home(self, words: str) -> str:
        """The words with commands that run as they are printed, of the home that was told."""
        if not self.home_flag or "k3ctl " not in words:
            return words
        from k3ctl.client.next_command import at_home
        from k3d.store.paths import resolve_home

        return at_home(words, resolve_home(self.home_flag))


def state_shown(state: str) -> str:
    """A state as glyph and word, in its colour where colour is shown."""
    glyphs = _GLYPHS if unicode_shown() else _ASCII_GLYPHS
    return paint(f"{glyphs.get(state, '?')} {state}", _STATE_COLOURS.get(state, "yellow"))


def tame(text: str) -> str:
    """Text in which nothing steers a terminal: control characters spelled out, colours kept.

    Names, logs and a model's answers may hold anything.
    """
    return re.sub(_STEERING, lambda found: found[0].encode("unicode_escape").decode(), text)


def spelled(text: str) -> str:
    """The text in ASCII where nothing else can be shown: some marks by others, the rest escaped."""
    if text.isascii() or unicode_shown():
        return text
    return text.translate(_SPELLED).encode("ascii", errors="backslashreplace").decode()


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=not unicode_shown())


def paint(text: str, colour: str) -> str:
    """The text in a colour, or as it is where colour is not wanted."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if colour_shown() else text


def prefer(*, colour: str = "auto", ascii_only: bool = False) -> None:
    """What k3ctl.toml says of colour (auto, always or never) and of ASCII; variables go before."""
    _preferred.update(colour=colour, ascii=ascii_only)


def colour_shown() -> bool:
    """Colour only on a terminal that has it, unless NO_COLOR, CLICOLOR_FORCE or the configuration
    says otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    if _preferred["colour"] != "auto":
        return _preferred["colour"] == "always"
    return stdout_is_terminal() and os.environ.get("TERM", "dumb") != "dumb"


def unicode_shown() -> bool:
    """Whether stdout can carry more than ASCII; K3_ASCII=1, LC_ALL=C and TERM=dumb say no."""
    if locale_is_ascii() or _preferred["ascii"]:
        return False
    if os.environ.get("TERM") == "dumb":
        return False
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return encoding == "utf8" and not os.environ.get("K3_ASCII")


def locale_is_ascii() -> bool:
    """Whether LC_ALL=C says that the terminal knows ASCII; Python itself writes UTF-8 then."""
    return os.environ.get("LC_ALL") in ("C", "POSIX")


def bar_shown() -> bool:
    """Whether progress is a bar: stderr is a terminal that can go back to a line's start."""
    return stderr_is_terminal() and os.environ.get("TERM", "dumb") != "dumb"


def stdout_is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def stdin_is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def stderr_is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def ask(question: str) -> str:
    """A line that a person types behind a question on stderr; empty at the end of input."""
    sys.stderr.write(_encodable(tame(question), sys.stderr.encoding))
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        write_words("")  # what comes next is not behind the question
    return line


def draw_bar(line: str) -> None:
    """Put a line on a terminal's stderr that the next one, or any other output, replaces."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError):
        sys.stderr.write("\r" + _encodable(spelled(tame(line)), sys.stderr.encoding) + "\x1b[K")
        sys.stderr.flush()
        _bar["shown"] = True


def clear_bar() -> None:
    if _bar["shown"] and sys.stderr is not None:
        _bar["shown"] = False
        with contextlib.suppress(OSError):
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def write_data(text: str) -> None:
    """Write to stdout and flush. Raises ClosedPipe, or K3Error when it cannot be written."""
    clear_bar()
    if sys.stdout is None:
        raise K3Error("standard output is closed", hint="send it somewhere, or use -q")
    try:
        sys.stdout.write(_encodable(text, sys.stdout.encoding))
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ClosedPipe from error
    except OSError as error:
        raise K3Error(f"standard output cannot be written: {error.strerror}") from error


def write_words(text: str) -> None:
    """Write a line to stderr, after everything on stdout; a lost stderr is not an error."""
    clear_bar()
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError):  # what stdout cannot take must not keep this from being said
        if sys.stdout is not None:
            sys.stdout.flush()
    with contextlib.suppress(OSError):
        sys.stderr.write(_encodable(spelled(tame(text)), sys.stderr.encoding) + "\n")
        sys.stderr.flush()


def leave_streams_quietly() -> None:
    """Point a broken stdout at nothing, so that Python's own flush at exit says nothing."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)


def settle_stdout() -> None:
    """Flush what is left; what a broken stdout cannot take was reported, or is nobody's.

    Python would try again at exit and end with a code of its own.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        leave_streams_quietly()


def occupy_closed_streams() -> None:
    """Keep descriptors 0, 1 and 2 taken: a database must never be opened as one of them."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _encodable(text: str, encoding: str | None) -> str:
    encoding = encoding or "ascii"
    return text.encode(encoding, errors="replace").decode(encoding)
