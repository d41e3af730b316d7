"""Fetch documentation packages, turn them into text pages, split off held-out pages.

`python -m banks.recipe.corpus WORK` needs apt-get (Debian 12) and network; packages are unpacked,
never installed. Writes WORK/pages.jsonl ({name, package, text, heldout}) and WORK/sources.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from banks.recipe.facts import COMMON
from banks.recipe.text import (
    from_html,
    from_info,
    from_man,
    joined_rst,
    read_text,
    tidy,
)

PACKAGES = Path(__file__).with_name("packages.txt")
HELDOUT_PERCENT = 2
MAX_PAGE_CHARS = 150_000
HTML = ("sqlite3", "postgresql-doc-15", "apache2", "fish", "debian-policy", "apt-doc", "aptitude")
SKIP = re.compile(
    r"changelog|copyright|NEWS|relnotes|genindex|searchindex|/dox/|perluniprops|perltoc|perlapi"
    r"|perl5\d+delta|requirements.html|backlink_crossref|ffmpeg-all|systemd.directives|python3.11.info"
)


FOREIGN = re.compile(
    r"\.(de|es|fr|ja|ko|pt-br|tr|da|ru|zh-\w+)(\.[\w.-]+)?$"
    r"|/(de|es|fr|ja|ko|pt_BR|it|pl|cs|nl|ru|fi|zh_\w+)/"
)


def fetch(work: Path) -> None:
    """Download and unpack every package of packages.txt."""
    debs, tree = work / "debs", work / "tree"
    debs.mkdir(parents=True, exist_ok=True)
    names = PACKAGES.read_text().split()
    present = {deb.name.split("_")[0] for deb in debs.glob("*.deb")}
    wanted = [name for name in names if name not in present]
    if wanted:
        subprocess.run(["apt-get", "download", *wanted], cwd=debs, check=True)
    if not tree.is_dir():
        for deb in sorted(debs.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(deb), str(tree)], check=True)


def licences(tree: Path, package: str) -> list[str]:
    """Licence names of a package's machine-readable copyright file, else common ones in it."""
    path = tree / "usr/share/doc" / package / "copyright"
    if not path.is_file():
        return ["see the source package"]
    text = read_text(path)
    found = {name.strip() for name in re.findall(r"(?m)^License: *(\S.*)$", text)}
    if not found:
        found = set(re.findall(r"common-licenses/([\w.+-]*\w)", text))
    return sorted(found)[:8] or ["stated in the package's copyright file"]


def sources(work: Path) -> list[dict[str, object]]:
    """Package, version and licences of everything unpacked."""
    out: list[dict[str, object]] = []
    for deb in sorted((work / "debs").glob("*.deb")):
        package, version, _ = deb.stem.split("_")
        version = version.replace("%3a", ":")
        found = licences(work / "tree", package)
        out.append({"package": package, "version": version, "licences": found})
    return out


def page_paths(tree: Path) -> Iterator[tuple[str, Path]]:
    """(kind, file) of every documentation file that becomes a page."""
    for path in sorted((tree / "usr/share/man").glob("man?/*")):
        if path.is_file() and not path.is_symlink():
            yield "man", path
    doc = tree / "usr/share/doc"
    for path in sorted((doc / "python3.11/html/_sources").rglob("*.rst.txt")):
        yield "rst", path
    for package in HTML:
        for path in sorted((doc / package).rglob("*.html*")):
            if path.is_file() and not FOREIGN.search(str(path)):
                yield "html", path
    for path in sorted((tree / "usr/share/info").glob("*.gz")):
        yield "info", path
    for package in ("git-doc", "debian-policy", "debian", "apt-doc"):
        for path in sorted((doc / package).rglob("*.txt*")):
            yield "plain", path


def page_text(tree: Path, item: tuple[str, Path]) -> str:
    """Text of one page."""
    kind, path = item
    if kind == "man":
        return from_man(path, tree)
    if kind == "rst":
        return joined_rst(read_text(path))
    if kind == "html":
        return from_html(path)
    if kind == "info":
        return from_info(path)
    return tidy(read_text(path))


def fingerprint(text: str) -> int:
    """A stable 64-bit number of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def without_repeats(text: str, seen: set[int]) -> str:
    """Drop paragraphs of 80 or more characters that an earlier page already had."""
    kept = []
    for paragraph in text.split("\n\n"):
        plain = re.sub(r"\W+", " ", paragraph).strip().lower()
        if len(plain) >= 80:
            mark = fingerprint(plain)
            if mark in seen:
                continue
            seen.add(mark)
        kept.append(paragraph)
    return "\n\n".join(kept).strip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    work = parser.parse_args().work.resolve()
    fetch(work)
    tree = work / "tree"
    (work / "sources.json").write_text(json.dumps(sources(work), indent=1) + "\n")
    items = [item for item in page_paths(tree) if not SKIP.search(str(item[1]))]
    seen: set[int] = set()
    total = 0
    with ProcessPoolExecutor() as pool, (work / "pages.jsonl").open("w") as out:
        texts = pool.map(partial(page_text, tree), items, chunksize=16)
        for (kind, path), whole in zip(items, texts, strict=True):
            text = without_repeats(whole[:MAX_PAGE_CHARS], seen)
            if len(text) < 200 or text.count("\ufffd") > 20:
                continue
            name = str(path.relative_to(tree))
            common = path.name.split(".")[0] in COMMON or "os.path" in path.name
            heldout = fingerprint(name) % 100 < HELDOUT_PERCENT and not common
            page = {"name": name, "kind": kind, "text": text, "heldout": heldout}
            out.write(json.dumps(page, ensure_ascii=False) + "\n")
            total += len(text.encode())
    sys.stderr.write(f"{total / 1e6:.1f} MB of text\n")


if __name__ == "__main__":
    main()
