"""Strict JSON: what a careless parser lets through and a tokenizer then chokes on is refused here.

Python's reader takes NaN, repeated keys, halves of surrogate pairs and numbers without end.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from k3d.station.openai.errors import ApiError

DEEPEST = 100
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_object(body: bytes | bytearray) -> dict[str, Any]:
    """The object in a request's body. Raises ApiError (400) naming what is not JSON."""
    try:
        text = body.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except UnicodeDecodeError as error:
        raise _not_json(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise _not_json("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _not_json(f"{error.msg} at character {error.pos}") from None
    except ValueError as error:
        raise _not_json(_short(str(error))) from None
    if not isinstance(value, dict):
        raise ApiError("the request's body must be a JSON object")
    _check(value, DEEPEST, surrogates=_SURROGATE.search(body) is not None)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {_short(repr(twice))} is there twice")
    return result


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _check(value: Any, levels: int, *, surrogates: bool) -> None:
    if levels == 0:
        raise _not_json(f"it is nested more than {DEEPEST} levels deep")
    if isinstance(value, dict):
        for key, inner in value.items():
            if surrogates:
                _check_text(key)
            _check(inner, levels - 1, surrogates=surrogates)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict | list | str):
                _check(inner, levels - 1, surrogates=surrogates)
    elif surrogates and isinstance(value, str):
        _check_text(value)


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise _not_json("a string holds half of a surrogate pair") from None


def _not_json(what: str) -> ApiError:
    return ApiError(f"the request's body is not valid JSON: {what}", code="invalid_json")


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
