"""Keys of a TOML file: what they mean from the page, what they may hold from the Struct."""

from __future__ import annotations

import importlib
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from man.typeset.source import Entries, Item, SourceError

MOST_SAID = 2**31
"""Larger bounds are those of the number's kind, and no news."""


def explained_keys(place: str, definitions: Entries, without: str | None = None) -> Entries:
    """The definitions, each with the key's kind and default behind it.

    `place` is module:Struct; the keys of the Struct `without` are explained elsewhere. A definition
    may be of several keys. Raises SourceError unless every key has one definition and nothing else
    has.
    """
    struct = _struct(place)
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    if without is not None:
        for field in msgspec.structs.fields(_struct(without)):
            del fields[field.encode_name]
    hints = get_type_hints(struct, include_extras=True)
    defined = [key for item in definitions.items for key in _keys(item)]
    if sorted(defined) != sorted(fields):
        missing = ", ".join(sorted(set(fields) - set(defined))) or "none"
        unknown = ", ".join(sorted(set(defined) - set(fields))) or "none"
        raise SourceError(
            f"keys of {place}: not defined: {missing}; defined and not keys: {unknown}"
        )
    items = []
    for item in definitions.items:
        field = fields[_keys(item)[0]]
        said = [item.text, _kind(hints[field.name]), _default(field)]
        items.append(Item(item.term, " ".join(words for words in said if words)))
    return Entries(tuple(items))


def _struct(place: str) -> type[msgspec.Struct]:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _keys(item: Item) -> list[str]:
    """`[[node]]` is the key node, `a`, `b` are two."""
    term = (item.term or "").replace("`", "").replace("[[", "").replace("]]", "")
    return [key.strip().strip("[]").split(".")[-1] for key in term.split(",")]


def _kind(hint: Any) -> str:
    """What values the key takes, where its type says more than that it is text."""
    limits: list[msgspec.Meta] = []
    while get_origin(hint) is Annotated:
        limits += [meta for meta in get_args(hint)[1:] if isinstance(meta, msgspec.Meta)]
        hint = get_args(hint)[0]
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return next((_kind(each) for each in get_args(hint) if each is not type(None)), "")
    if origin is Literal:
        values = [f"`{value}`" for value in get_args(hint)]
        return f"One of {', '.join(values)}." if len(values) > 1 else ""
    if hint in (int, float):
        return _range("A whole number" if hint is int else "A number", limits)
    if hint is bool:
        return "`true` or `false`."
    return ""


def _range(what: str, limits: list[msgspec.Meta]) -> str:
    least = next((meta.ge for meta in limits if meta.ge is not None), None)
    most = next((meta.le for meta in limits if meta.le is not None), None)
    if least is None or most is None:
        return f"{what}." if least is None else f"{what}, {least:,} or more."
    return (
        f"{what} from {least:,} to {most:,}." if most < MOST_SAID else f"{what}, {least:,} or more."
    )


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "Required."
    default = field.default
    if default in (None, "", (), {}) or default is msgspec.NODEFAULT:
        return ""
    if isinstance(default, bool):
        return f"The default is `{str(default).lower()}`."
    if isinstance(default, float):
        return f"The default is `{default:g}`."
    if isinstance(default, msgspec.Struct):
        return ""
    if isinstance(default, tuple):
        return f"The default is `{', '.join(default)}`."
    return f"The default is `{default}`."
