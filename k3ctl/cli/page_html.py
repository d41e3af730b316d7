"""A page as one HTML file that needs nothing else: no script, no font, no request."""

from __future__ import annotations

from html import escape

from k3ctl.charts.svg import svg
from k3ctl.cli.page import Block, Commands, Drawing, Grid, Page, Words, one_line

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.35rem; margin-bottom: 0.2rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 0.5rem; border-bottom: 1px solid #8884; }
table { border-collapse: collapse; margin: 0.8rem 0; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.15rem 1rem 0.15rem 0; vertical-align: top; }
th { font-weight: 600; font-size: 0.8rem; opacity: 0.75; }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
td.r, th.r { text-align: right; white-space: nowrap; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; }
figcaption, footer { font-size: 0.85rem; opacity: 0.75; }
footer { margin-top: 2.5rem; border-top: 1px solid #8884; padding-top: 0.5rem; }
li { margin: 0.3rem 0; } code { font-size: 0.9em; }
@media print { body { margin: 0; } h2 { break-after: avoid; } figure { break-inside: avoid; } }
"""


def page_html(page: Page) -> str:
    """The whole file. Everything that comes from data is escaped."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_shown(page.title)}</title>",
        f"<style>{STYLE}</style>",
        "</head>",
        "<body>",
        f"<h1>{_shown(page.title)}</h1>",
        f"<p>{_shown(page.subtitle)}</p>",
    ]
    for section in page.sections:
        parts.append(f"<section><h2>{_shown(section.title)}</h2>")
        parts += [_block(block) for block in section.blocks]
        parts.append("</section>")
    parts += [f"<footer>{_shown(page.footnote)}</footer>", "</body>", "</html>"]
    return "\n".join(parts) + "\n"


def _shown(text: str) -> str:
    return escape(one_line(text))


def _block(block: Block) -> str:
    match block:
        case Words(text):
            return f"<p>{_shown(text)}</p>"
        case Grid():
            return _grid(block)
        case Drawing():
            drawn = svg(
                block.panels, block.since_s, block.until_s, title=block.caption, rules=block.rules
            )
            return f"<figure>{drawn}<figcaption>{_shown(block.caption)}</figcaption></figure>"
        case Commands(lines):
            items = "".join(
                f"<li><code>{_shown(command)}</code><br>{_shown(why)}</li>"
                for command, why in lines
            )
            return f"<ul>{items}</ul>"


def _grid(grid: Grid) -> str:
    head = ""
    if any(grid.headers):
        head = f"<thead><tr>{_cells('th', grid.headers, grid.right)}</tr></thead>"
    rows = "".join(f"<tr>{_cells('td', row, grid.right)}</tr>" for row in grid.rows)
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def _cells(tag: str, cells: tuple[str, ...], right: str) -> str:
    kinds = [' class="r"' if right[at : at + 1] == "r" else "" for at in range(len(cells))]
    return "".join(
        f"<{tag}{kind}>{_shown(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)
    )
