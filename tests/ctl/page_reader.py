"""What a browser makes of an HTML page."""

from __future__ import annotations

from html.parser import HTMLParser


class Reader(HTMLParser):
    """What a browser makes of a page: its tags and its words."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "circle", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        if tag not in ("circle", "path"):
            assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.words.append(data)
