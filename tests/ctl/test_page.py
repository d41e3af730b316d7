"""Pages as HTML, Markdown and text: no words break one, and none are lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from k3ctl.cli.page import Commands, Grid, Page, Section, Words
from k3ctl.cli.page_html import page_html
from k3ctl.cli.page_markdown import code, escaped, page_markdown
from k3ctl.cli.page_text import grid_lines, page_lines
from tests.charts.properties import property_test
from tests.ctl.page_reader import Reader

words = st.text(max_size=40)


@property_test
@given(words, words)
def test_no_text_breaks_a_page(one, two) -> None:
    page = Page(
        one,
        two,
        (Section(one, (Words(two), Grid((one, two), ((two, one),)), Commands(((one, two),)))),),
        two,
    )
    read = Reader()
    read.feed(page_html(page))
    assert read.open == []
    assert [tag for tag, _ in read.tags if tag in ("script", "a", "img")] == []
    table = [line for line in page_markdown(page, plain=True).splitlines() if line[:2] == "| "]
    assert len(table) == 3
    page_lines(page, 80, plain=True)


@property_test
@given(words)
def test_escaped_words_are_one_line(text) -> None:
    assert len(escaped(text).splitlines()) <= 1
    assert len(code(text).splitlines()) == 1


@property_test
@given(
    st.lists(st.tuples(st.text("abc d", max_size=9), st.text("abc d", max_size=99)), max_size=5),
    st.integers(20, 90),
)
def test_a_table_fits_and_loses_no_word(rows, width) -> None:
    grid = Grid(("NAME", "WHAT"), tuple(rows))
    lines = grid_lines(grid, width)
    assert all(len(line) <= width or " " not in line.strip() for line in lines)
    letters = "".join("".join(row) for row in rows).replace(" ", "")
    shown = "".join(lines).replace(" ", "").removeprefix("NAMEWHAT").replace(",", "")
    assert sorted(shown) == sorted(letters)
