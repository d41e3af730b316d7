"""Plain text from manual pages, reStructuredText, HTML and info files."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

INVISIBLE = {"script", "style", "head", "nav", "footer", "svg"}
BREAKS = {"p", "div", "li", "dt", "dd", "tr", "h1", "h2", "h3", "h4", "h5", "br", "table", "ul"}


def read_text(path: Path) -> str:
    """Content of a plain or gzip-compressed file."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", "replace")


def tidy(text: str) -> str:
    """Collapse inner runs of blanks, shorten indents, keep at most one empty line."""
    lines = []
    for line in text.expandtabs().splitlines():
        body = re.sub(r"([^\w\s])\1{11,}|_{12,}", r"\1\1\1\1", re.sub(r" {2,}", "  ", line.strip()))
        indent = min((len(line) - len(line.lstrip())) // 4, 4)
        lines.append(" " * (2 * indent) + body if body else "")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def from_man(path: Path, tree: Path) -> str:
    """Render a manual page with the unpacked groff, one line a paragraph."""
    groff = tree / "usr/share/groff/1.22.4"
    env = os.environ | {
        "GROFF_BIN_PATH": str(tree / "usr/bin"),
        "GROFF_TMAC_PATH": str(groff / "tmac"),
        "GROFF_FONT_PATH": str(groff / "font"),
        "PATH": f"{tree / 'usr/bin'}:{os.environ['PATH']}",
    }
    command = [
        str(tree / "usr/bin/groff"), "-Tutf8", "-Kutf8", "-t", "-mandoc", "-rLL=400n", "-rLT=60n",
        "-rHY=0", "-rcR=1", "-dAD=l", "-P-cbou",
    ]  # fmt: skip
    source = read_text(path).encode()
    done = subprocess.run(command, input=source, env=env, capture_output=True, check=False)
    text = done.stdout.decode("utf-8", "replace")
    for fancy, plain in (("‐", "-"), ("−", "-"), ("’", "'"), ("‘", "'"), ("“", '"'), ("”", '"')):
        text = text.replace(fancy, plain)
    return tidy(text)


class Reader(HTMLParser):
    """Visible text of an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.hidden = 0
        self.verbatim = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag in INVISIBLE:
            self.hidden += 1
        if tag == "pre":
            self.verbatim += 1
        if tag in BREAKS or tag == "pre":
            self.parts.append("\n\n" if tag in {"p", "h1", "h2", "h3", "h4", "pre"} else "\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in INVISIBLE:
            self.hidden = max(0, self.hidden - 1)
        if tag == "pre":
            self.verbatim = max(0, self.verbatim - 1)
        if tag in {"p", "pre", "h1", "h2", "h3", "td", "th"}:
            self.parts.append(" " if tag in {"td", "th"} else "\n")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(data if self.verbatim else re.sub(r"\s+", " ", data))


def from_html(path: Path) -> str:
    """Visible text of an HTML file."""
    reader = Reader()
    reader.feed(read_text(path))
    return tidy("".join(reader.parts))


def plain_rst(text: str) -> str:
    """reStructuredText without roles, targets and index entries."""
    text = re.sub(r":[\w:+-]+:`[!~]?([^`<]*?)(?:\s*<[^`]*>)?`", r"\1", text)
    text = re.sub(r"``([^`]+)``", r"\1", text)
    text = re.sub(r"`([^`<]+?)\s*<[^`]*>`_+", r"\1", text)
    text = re.sub(r"(?<!\w)\*{1,2}([^*\s][^*\n]*?)\*{1,2}(?!\w)", r"\1", text)
    text = re.sub(r"(?m)^\.\. (_.*:|index::.*|_.*: http.*)\n", "", text)
    return text.replace("\\*", "*").replace("\\ ", "")


def joined_rst(text: str) -> str:
    """Paragraphs of plain_rst on one line each, so that the model sees the same form as manuals."""
    out: list[str] = []
    for line in tidy(plain_rst(text)).splitlines():
        body = line.strip()
        wordy = re.match(r"[A-Za-z(\"']", body) and not body.startswith(("def ", "import "))
        previous = out[-1] if out else ""
        same = len(line) - len(body) == len(previous) - len(previous.lstrip())
        if wordy and same and len(previous.strip()) > 55 and re.search(r"[\w,;.)'\"]$", previous):
            out[-1] = previous + " " + body
        else:
            out.append(line)
    return "\n".join(out) + "\n"


def from_info(path: Path) -> str:
    """Text of an info file without node headers."""
    text = re.sub(r"\x1f\n[^\n]*\n", "\n", read_text(path))
    return tidy(re.sub(r"\* Menu:\n(?:\n?\*[^\n]*\n(?: [^\n]*\n)*)*", "", text).replace("\x00", ""))
