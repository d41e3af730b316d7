"""Bodies that are no JSON, or JSON that nobody should believe."""

from __future__ import annotations

import pytest

from k3d.station.openai.errors import ApiError
from k3d.station.openai.json_body import read_object


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "Expecting value"),
        (b"{", "character 1"),
        (b'{"a": 1', "character 7"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"3", "must be a JSON object"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"1" * 5000 + b"}", "4300"),
        (b'{"a": 1, "b": 2, "a": 3}', "'a' is there twice"),
        (b'{"m": [{"a": 1, "a": 1}]}', "'a' is there twice"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'{"a": ["\\ud83d", {}]}', "surrogate"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "nested"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b'\xef\xbb\xbf{"a": 1}', "BOM"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b"{'a': 1}", "double quotes"),
        (b'{"a": 1} x', "Extra data"),
        (b'{"a": 0x10}', "delimiter"),
    ],
)
def test_what_is_no_json_is_one_short_sentence(body: bytes, word: str) -> None:
    with pytest.raises(ApiError, match=word) as caught:
        read_object(body)
    assert caught.value.status == 400
    assert len(caught.value.message) < 250


def test_whole_characters_beyond_the_plane_are_text() -> None:
    assert read_object(b'{"a": "\\ud83d\\ude00", "b": "\\u00e9"}') == {"a": "😀", "b": "é"}


def test_a_key_that_is_there_twice_among_many_is_found_at_once() -> None:
    keys = ",".join(f'"k{at}": 0' for at in range(200_000))
    with pytest.raises(ApiError, match="'k0' is there twice"):
        read_object(f'{{{keys}, "k0": 1}}'.encode())
