"""Frames survive their JSON."""

from __future__ import annotations

import json

import pytest

from k3d.errors import StoreError
from k3d.store.frame import SCHEMA, Attention, Frame, NodeFrame, Sensors, decode, encode

FRAME = Frame(
    at_ms=1_796_000_000_000,
    sequence=7,
    interval_s=1.0,
    pod="embedded",
    state="degraded",
    reason="spark-2 is lost",
    nodes=(
        NodeFrame(
            name="spark-2",
            role="spark",
            state="down",
            sensors=Sensors(age_s=3.0, missing={"power_w": "no power sensor"}),
        ),
    ),
    attention=(Attention(severity="alert", subject="spark-2", sentence="spark-2 is lost"),),
)


def test_a_frame_is_its_json_again() -> None:
    text = encode(FRAME)
    assert decode(text) == FRAME
    document = json.loads(text)
    assert next(iter(document)) == "schema"
    assert document["schema"] == SCHEMA
    assert document["decode_tokens_per_s"] is None


def test_keys_of_a_later_version_are_ignored_and_wrong_ones_named() -> None:
    document = json.loads(encode(FRAME))
    assert decode(json.dumps({**document, "later": 1}).encode()) == FRAME
    document["nodes"][0]["state"] = "tired"
    with pytest.raises(StoreError, match=r"'tired'.*nodes\[0\].state"):
        decode(json.dumps(document).encode())
