"""Facts of the training pages: what a command, function, option or module does."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from banks.recipe.sentences import first_sentence, infinitive, predicate, sentence

WORDS = Path(__file__).with_name("words")
COMMON = frozenset((WORDS / "commands.txt").read_text().split())
MODULES = frozenset((WORDS / "modules.txt").read_text().split())
POLISHED = {  # pages whose NAME line is no phrase, said in a sentence
    "mv": "mv moves or renames files.",
    "cat": "cat concatenates files and prints them on the standard output.",
    "sed": "sed is a stream editor for filtering and transforming text.",
    "awk": "awk is a pattern scanning and text processing language.",
    "tee": "tee reads from standard input and writes to standard output and files.",
    "zip": "zip packages and compresses files.",
    "wget": "wget downloads files from the web without interaction.",
    "gdb": "gdb is the GNU debugger.",
    "sh": "sh is the standard command interpreter of the system.",
    "fsck": "fsck checks and repairs a Linux filesystem.",
    "which": "which locates a command.",
    "hostname": "hostname shows or sets the system's host name.",
    "ltrace": "ltrace is a library call tracer.",
    "perl": "perl is the Perl 5 language interpreter.",
    "python3": "python3 is an interpreted, interactive, object-oriented programming language.",
    "netcat": "netcat reads and writes data across network connections.",
    "pkill": "pkill signals processes based on name and other attributes.",
    "pgrep": "pgrep looks up processes based on name and other attributes.",
    "ip": "ip shows and manipulates routing, network devices, interfaces and tunnels.",
    "ss": "ss is another utility to investigate sockets.",
    "scp": "scp is the OpenSSH secure file copy program.",
    "sftp": "sftp is the OpenSSH secure file transfer program.",
    "git": "git is a content tracker: it keeps the history of files.",
    "make": "make is the GNU utility to maintain groups of programs.",
    "less": "less is a file pager and the opposite of more.",
    "nano": "nano is a small text editor, inspired by Pico.",
    "vim": "vim is Vi IMproved, a programmer's text editor.",
    "bash": "bash is the GNU Bourne-Again SHell.",
    "apt": "apt is a command-line interface for the package management system.",
    "apt-get": "apt-get is the APT package handling utility.",
    "jq": "jq is a command-line JSON processor.",
    "nl": "nl numbers the lines of files.",
    "base64": "base64 encodes or decodes data and prints it to standard output.",
    "login": "login begins a session on the system.",
    "test": "test checks file types and compares values.",
    "useradd": "useradd creates a new user.",
    "expand": "expand converts tabs to spaces.",
}
MANUAL = re.compile(r"usr/share/man/man(\d)/([^/]+?)\.(\d\w*)(?:\.gz)?$")
LIBRARY = "usr/share/doc/python3.11/html/_sources/library/"


@dataclass(frozen=True)
class Fact:
    """A subject, the kind of question that fits it, and the answer sentence."""

    kind: str
    subject: str
    answer: str
    weight: float = 1.0
    detail: str = ""


def name_lines(text: str) -> tuple[list[str], str] | None:
    """Names and description of a manual page's NAME section."""
    match = re.search(r"\nNAME\n(.*?)\n\n", text, re.DOTALL | re.IGNORECASE)
    parts = re.split(r"\s+[-—–]{1,2}\s+", " ".join(match[1].split()), maxsplit=1) if match else []
    if len(parts) != 2 or not parts[1]:
        return None
    return [name.strip() for name in parts[0].split(",")], parts[1]


def manual_facts(pages: Iterable[tuple[str, str]]) -> list[Fact]:
    """Commands, C functions, files and sections from manual pages (name, text)."""
    facts: list[Fact] = []
    sections: dict[str, set[str]] = defaultdict(set)
    taken: set[tuple[str, str]] = set()
    for page, text in pages:
        match = MANUAL.search(page)
        lines = name_lines(text)
        if not match or not lines:
            continue
        section, stem, suffix = match[1], match[2], match[3]
        kind = {"1": "command", "8": "command", "2": "c", "3": "c"}.get(section, "file")
        plain = suffix == section or suffix == section + "ssl"
        if not plain or stem.startswith(("perl", "Lintian", "lintian")):
            continue
        names, description = lines
        for name in names[:6]:
            spoken = name.replace("git-", "git ", 1) if name.startswith("git-") else name
            spoken = spoken.replace("openssl-", "openssl ", 1)
            if kind == "c" and not re.fullmatch(r"_?[a-z][a-z0-9_]*", name):
                continue
            if not re.fullmatch(r"[\w.+ -]{1,28}", spoken) or (kind, spoken) in taken:
                continue
            answer = sentence(spoken, description)
            if kind == "command":
                answer = POLISHED.get(spoken, answer)
            if answer is None or spoken.startswith("EVP_"):
                continue
            taken.add((kind, spoken))
            sections[spoken].add(section)
            real = "git" if spoken.startswith("git ") else kind
            common = kind == "command" and spoken in COMMON
            weight = 8.0 if common else {"git": 2.0, "file": 0.5}.get(real, 1.0)
            facts.append(Fact(real, spoken, answer, weight))
            short = first_sentence(description) or ""
            does = predicate(short)
            want = infinitive(description)
            if real != "c" and kind == "command" and does and want and name == names[0]:
                text = f"The command {spoken} {does}."
                facts.append(Fact("reverse", want[3:], text, 3.0 if common else 0.7, does))
    for subject, answer in POLISHED.items():
        if ("command", subject) not in taken:
            facts.append(Fact("command", subject, answer, 8.0))
    for subject, found in sections.items():
        where = sorted(found)
        word = "section " + where[0] if len(where) == 1 else "sections " + " and ".join(where)
        weight = 1.5 if subject in COMMON else 0.15
        facts.append(Fact("section", subject, f"{subject} is in {word} of the manual.", weight))
    return facts


OPTION = re.compile(
    r"\n +(-[^\n]{0,60}?)(?:  |\n(?: {4,}))([A-Za-z][^\n]{8,300})(?=\n)",
)


def option_facts(pages: Iterable[tuple[str, str]]) -> list[Fact]:
    """Options of the common commands and of git subcommands."""
    facts: list[Fact] = []
    for page, text in pages:
        match = MANUAL.search(page)
        if not match or match[1] not in "18" or match[2] not in COMMON:
            continue
        command = match[2]
        seen: set[str] = set()
        for flags, description in OPTION.findall(text):
            want = infinitive(description)
            names = re.findall(r"(?<![\w-])(--?[A-Za-z0-9][\w-]*)", flags)
            if want is None or not names or len(want.split()) > 20:
                continue
            for flag in names[:2]:
                if flag not in seen:
                    seen.add(flag)
                    answer = f"The {flag} option tells {command} {want}."
                    facts.append(Fact("option", command, answer, 1.0, flag))
            if len(seen) >= 40:
                break
    return facts


POPULAR = ("os.path.", "str.", "list.", "dict.", "math.", "re.", "json.")
DIRECTIVE = re.compile(
    r"\n *\.\. (function|method|classmethod|staticmethod|class):: ([^\n]+)\n"
    r"(?:(?: *\.\. (?:function|method)::| *:\w| {3,}[\w.]+\()[^\n]*\n)*"
    r"(?:\n| *\.\. [a-z-]+:: [^\n]*\n(?:  [^\n]*\n)*)*"
    r" *([A-Z][^\n]+)"
)


def python_facts(pages: Iterable[tuple[str, str]]) -> list[Fact]:
    """Functions, methods, classes and modules of Python's library reference."""
    facts: dict[tuple[str, str], Fact] = {}
    for page, text in pages:
        if not page.startswith(LIBRARY):
            continue
        stem = page[len(LIBRARY) :].removesuffix(".rst.txt")
        title = re.match(r":?(?:mod:)?`?([\w.]+)`? -{2,3} ([^\n]+)\n", text)
        if title and "/" not in stem:
            short = first_sentence(title[2])
            if short and short.isascii():
                name = title[1]
                answer = f"The Python module {name} is about this: {short}."
                if does := predicate(short):
                    answer = f"The Python module {name} {does}."
                facts["module", name] = Fact("module", name, answer, 2.0)
        if stem not in MODULES:
            continue
        module = "" if stem in ("functions", "stdtypes") else stem.split("-")[0] + "."
        context = ""
        for kind, signature, description in DIRECTIVE.findall(text):
            name = re.match(r"[\w.]+", signature.strip())
            if not name:
                continue
            bare = name[0]
            if kind == "class":
                context = bare
            if kind.endswith("method") and "." not in bare:
                bare = f"{context}.{bare}" if context else bare
            full = bare if bare.startswith(module) else module + bare
            answer = sentence(full, description)
            if answer is None or len(full) > 32 or " is the " in answer[: len(full) + 9]:
                continue
            popular = full.startswith(POPULAR)
            weight = 2.0 if popular or "." not in full else 1.0
            facts.setdefault(("python", full), Fact("python", full, answer, weight))
    return list(facts.values())


def all_facts(pages: list[tuple[str, str]]) -> list[Fact]:
    """Every fact of the pages, in a stable order."""
    return [*manual_facts(pages), *option_facts(pages), *python_facts(pages)]
