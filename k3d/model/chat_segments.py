"""Segments: the pieces of a Kimi-K3 prompt that are encoded apart.

A marker is one special id. Every text between markers is encoded by itself, with specials off, so
no token spans two segments and no content can produce a marker. The names of tags and attributes
and each attribute's four strings are segments of their own; cutting them elsewhere gives other ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from k3d.model.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Marker:
    """A special token, by its spelling."""

    spelling: str


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is encoded alone, with specials off. Never empty in a rendered prompt."""

    text: str


Segment: TypeAlias = Marker | Text

OPEN = Marker("<|open|>")
CLOSE = Marker("<|close|>")
SEPARATOR = Marker("<|sep|>")
END_OF_MESSAGE = Marker("<|end_of_msg|>")


def text(content: str) -> list[Segment]:
    """One segment, or none for empty text."""
    return [Text(content)] if content else []


def open_tag(tag: str, *attributes: tuple[str, str]) -> list[Segment]:
    """`tag` opened, with its attributes in the order given."""
    segments: list[Segment] = [OPEN, Text(tag)]
    for key, value in attributes:
        segments += [*text(f" {key}"), Text('="'), *text(escape_attribute(value)), Text('"')]
    segments.append(SEPARATOR)
    return segments


def close_tag(tag: str) -> list[Segment]:
    """`tag` closed."""
    return [CLOSE, Text(tag), SEPARATOR]


def element(tag: str, body: Iterable[Segment], *attributes: tuple[str, str]) -> list[Segment]:
    """`tag` opened, `body`, `tag` closed."""
    return [*open_tag(tag, *attributes), *body, *close_tag(tag)]


def message(body: Iterable[Segment], *attributes: tuple[str, str]) -> list[Segment]:
    """A whole message, with the marker that ends it."""
    return [*element("message", body, *attributes), END_OF_MESSAGE]


def escape_attribute(value: str) -> str:
    """An attribute's value as it stands between the quotes. Bodies are not escaped at all."""
    return value.replace("&", "&amp;").replace('"', "&quot;")


def unescape_attribute(value: str) -> str:
    """Inverse of `escape_attribute`."""
    return value.replace("&quot;", '"').replace("&amp;", "&")


def spelled(segments: Iterable[Segment]) -> str:
    """All segments as one string, to look at and to hash; it does not encode to the same ids."""
    return "".join(
        segment.spelling if isinstance(segment, Marker) else segment.text for segment in segments
    )


def encode_segments(tokenizer: Tokenizer, segments: Sequence[Segment]) -> list[int]:
    """Ids of the segments. Raises CheckpointError when the tokenizer lacks one of the markers."""
    ids: list[int] = []
    for segment in segments:
        if isinstance(segment, Marker):
            ids.append(tokenizer.special_id(segment.spelling))
        else:
            ids += tokenizer.encode(segment.text)
    return ids
