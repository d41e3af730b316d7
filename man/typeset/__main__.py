"""python -m man.typeset: write the pages. With --check, only say which are not as they would be."""

from __future__ import annotations

import sys
from pathlib import Path

from man.typeset.pages import ROOT, make_pages
from man.typeset.source import SourceError


def stale_pages() -> list[Path]:
    """Pages that differ from what would be written, are missing, or have no source any more."""
    pages = {page.path: page.text for page in make_pages()}
    stale = [
        path
        for path, text in pages.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    there = [path for path in ROOT.glob("man[0-9]/*") if path.is_file()]
    return stale + [path for path in there if path not in pages]


def main(arguments: list[str]) -> int:
    """Exit code 1 when pages are stale under --check, or a source is no page."""
    try:
        stale = stale_pages()
        if "--check" in arguments:
            sys.stdout.writelines(f"{path}: not as `make man` writes it\n" for path in stale)
            return int(bool(stale))
        pages = {page.path: page.text for page in make_pages()}
    except SourceError as error:
        sys.stderr.write(f"man: {error}\n")
        return 1
    for path in stale:
        if path in pages:
            path.parent.mkdir(exist_ok=True)
            path.write_text(pages[path], encoding="utf-8")
        else:
            path.unlink()
        sys.stdout.write(f"{path.relative_to(ROOT.parent)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
