"""A run of text into mdoc lines: flags, arguments, paths, variables and references are marked."""

from __future__ import annotations

import re
from dataclasses import dataclass

WIDTH = 78
_PARTS = re.compile(
    r"`(?P<literal>[^`]+)`"
    r"|\*\*(?P<strong>[^*]+)\*\*"
    r"|(?<!\w)\*(?P<argument>[^*\s][^*]*)\*"
    r"|(?P<manual>\b[a-z][a-z0-9.-]*\(\d\))"
    r"|(?<![\w-])(?P<flag>--[a-z][a-z0-9-]*[a-z0-9])"
    r"|(?P<space>\s+)"
)
_VARIABLE = re.compile(r"\$?[A-Z][A-Z0-9]*_[A-Z0-9_]+")
_CALLABLE = re.compile(r"[A-Z%][A-Za-z0-9]{1,2}")
_OPENING, _CLOSING = "([", ".,:;)]?!"
_SENTENCE_END = re.compile(r"[.?!]\)?$")
_FILE_SUFFIXES = (".toml", ".json", ".db", ".log", ".secret", ".npz", ".k3trace", ".html", ".svg")


@dataclass(frozen=True)
class Part:
    """Part of a word: plain text, or what an mdoc macro marks."""

    macro: str | None
    text: str


Word = list[Part]


def text_lines(text: str) -> list[str]:
    """A paragraph's lines: a macro on a line of its own, and a new line for a new sentence."""
    lines: list[str] = []
    plain: list[str] = []

    def flush() -> None:
        if plain:
            line = " ".join(plain)
            lines.append(("\\&" if line[0] in ".'" else "") + line)
            plain.clear()

    for word in split_words(text):
        if any(part.macro for part in word):
            flush()
            lines.append("." + macro_call(word))
            continue
        written = escape(word[0].text)
        if plain and len(" ".join(plain)) + 1 + len(written) > WIDTH:
            flush()
        plain.append(written)
        if _SENTENCE_END.search(word[0].text):
            flush()
    flush()
    return lines


def term_arguments(term: str) -> str:
    """What follows .It: a term's words on one line."""
    calls = []
    for word in split_words(term):
        calls.append(macro_call(word) if any(part.macro for part in word) else _plain(word[0].text))
    return " ".join(calls)


def split_words(text: str) -> list[Word]:
    """Words of a text; what is marked stays one word, with its spaces."""
    words: list[Word] = [[]]
    at = 0
    for found in _PARTS.finditer(text):
        if found.start() > at:
            words[-1].append(Part(None, text[at : found.start()]))
        at = found.end()
        kind = str(found.lastgroup)
        if kind == "space":
            words.append([])
        else:
            words[-1].append(Part(*_marked(kind, found[kind])))
    if at < len(text):
        words[-1].append(Part(None, text[at:]))
    return [word for word in words if word]


def _marked(kind: str, text: str) -> tuple[str, str]:
    """The macro for a marked text, by what it is or looks like."""
    if kind == "strong":
        return "Sy", text
    if kind == "manual":
        return "Xr", text
    if kind == "argument":
        return "Ar", text
    if kind == "flag" or text.startswith("-"):
        return "Fl", text
    if _VARIABLE.fullmatch(text):
        return "Ev", text
    if text.startswith(("k3ctl ", "k3d ", "make ")):
        return "Ic", text
    if " " not in text and not text.startswith("[") and (
        "/" in text or text.endswith(_FILE_SUFFIXES)
    ):  # fmt: skip
        return "Pa", text
    return "Cm", text


def macro_call(word: Word) -> str:
    """A word with marked parts as one macro line, without its dot."""
    parts = list(word)
    opening = closing = ""
    if parts[0].macro is None and set(parts[0].text) <= set(_OPENING):
        opening = parts.pop(0).text
    if parts[-1].macro is None and set(parts[-1].text) <= set(_CLOSING):
        closing = parts.pop().text
    calls = [_call(part) for part in parts]
    if opening:
        calls[0] = f"No {_argument(opening)} Ns {calls[0]}"
    return " ".join([" Ns ".join(calls), *closing])


def _call(part: Part) -> str:
    if part.macro is None:
        return f"No {_argument(part.text)}"
    if part.macro == "Xr":
        name, number = part.text.rstrip(")").split("(")
        return f"Xr {name} {number}"
    if part.macro == "Fl":
        return flag_call(part.text)
    return " ".join([part.macro, *map(_argument, part.text.split())])


def flag_call(text: str) -> str:
    """`--to NODE=HOST:PORT`: a flag, and its argument if it has one."""
    flag, *rest = text.split()
    call = f"Fl {_argument(flag.removeprefix('-'))}"
    for each in rest:
        call += f" {'Ar' if each[0].isupper() else 'Cm'} {_argument(each)}"
    return call


def _plain(text: str) -> str:
    return text if text == "|" or set(text) <= set(_CLOSING) else f"No {_argument(text)}"


def _argument(text: str) -> str:
    """A macro's argument: no name of a macro, no delimiter, hyphens that can be copied."""
    escaped = escape(text).replace("-", "\\-")
    callable_ = _CALLABLE.fullmatch(text) is not None
    delimiter = len(text) == 1 and text in _OPENING + _CLOSING + "|"
    return f"\\&{escaped}" if callable_ or delimiter else escaped


def escape(text: str) -> str:
    """Text that roff does not read as anything else."""
    text = text.replace("\\", "\\e").replace('"', "\\(dq")
    return "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in text)


def verbatim(line: str) -> str:
    """A line that is shown, and can be copied, as it is."""
    for char, name in (("\\", "\\e"), ("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga"),
                       ("~", "\\(ti"), ("^", "\\(ha")):  # fmt: skip
        line = line.replace(char, name)
    line = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in line)
    return f"\\&{line}" if line.startswith((".", "\\(aq")) else line
