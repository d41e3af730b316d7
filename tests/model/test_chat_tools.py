"""Tool calls and their results in the chat format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k3d.model.chat_format import render
from tests.model.chat_notation import (
    BODIES,
    CALLS,
    PLAIN,
    USER,
    call,
    end,
    rendered,
    result,
    shown,
    tag,
)


def calls_shown(*calls: dict[str, Any]) -> str:
    whole = rendered({"role": "assistant", "content": None, "tool_calls": list(calls)})
    before = f"{tag('message', role='assistant')}|{tag('response')}|{end('response')}|"
    after = f"|{end('message')}|⟨e⟩"
    assert whole.startswith(before)
    assert whole.endswith(after)
    return whole[len(before) : -len(after)]


def test_arguments_are_typed_elements_in_their_order() -> None:
    arguments = {
        "z": "raw <b>&\"'",
        "n": 1.5,
        "i": 3,
        "t": True,
        "none": None,
        'o"&': {"b": [1, "ü"], "a": 2},
        "l": [],
        "empty": "",
    }
    elements = [
        f"{tag('argument', key=key, type=kind)}|{value}{end('argument')}"
        for key, kind, value in [
            ("z", "string", "raw <b>&\"'|"),
            ("n", "number", "1.5|"),
            ("i", "number", "3|"),
            ("t", "boolean", "true|"),
            ("none", "null", "null|"),
            ("o&quot;&amp;", "object", '{"b": [1, "ü"], "a": 2}|'),
            ("l", "array", "[]|"),
            ("empty", "string", ""),
        ]
    ]
    wanted = "|".join(
        [
            tag("tools"),
            tag("call", tool="f", index="1"),
            *elements,
            end("call"),
            end("tools"),
        ]
    )
    assert calls_shown(call(arguments)) == wanted
    assert calls_shown(call(json.dumps(arguments))) == wanted
    assert calls_shown({"name": "f", "arguments": arguments}) == wanted


def test_calls_are_numbered_and_may_be_empty() -> None:
    assert calls_shown(call("  ", "a"), call(None, "b"), call({}, "c")) == "|".join(
        [
            tag("tools"),
            *(
                f"{tag('call', tool=name, index=index)}|{end('call')}"
                for name, index in [("a", "1"), ("b", "2"), ("c", "3")]
            ),
            end("tools"),
        ]
    )


@pytest.mark.parametrize("raw", ['{"a": ', "nonsense", "[" * 100_000, '{"a":' + "9" * 5000 + "}"])
def test_arguments_that_are_no_json_stay_raw(raw: str) -> None:
    assert calls_shown(call(raw)) == "|".join(
        [
            tag("tools"),
            tag("call", tool="f", index="1"),
            f"{tag('json', type='object')}|{raw}|{end('json')}",
            end("call"),
            end("tools"),
        ]
    )


def results(*messages: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(tool, index, content) of each tool result, in rendered order."""
    parts = [shown([each]) for each in render(messages, PLAIN, BODIES)]
    starts = [at for at, part in enumerate(parts) if part == " tool" and parts[at - 2] == "tool"]
    return [(parts[at + 2], parts[at + 6], parts[at + 9]) for at in starts]


def test_a_result_is_rendered_whole() -> None:
    assert rendered(result("R", tool="f")) == "|".join(
        [tag("message", role="tool", tool="f", index="1"), "R", end("message"), "⟨e⟩"]
    )


def test_results_take_the_order_and_names_of_their_calls() -> None:
    matched = [result("2", tool_call_id="y", name="old"), result("1", tool_call_id="x")]
    assert results(CALLS, *matched) == [("f", "1", "1"), ("g", "2", "2")]
    twice = [result("a", tool_call_id="y"), result("b", id="x"), result("c", tool_call_id="y")]
    assert results(CALLS, *twice) == [("f", "1", "b"), ("g", "2", "a"), ("g", "3", "c")]


def test_a_run_with_a_stranger_stays_as_it_is() -> None:
    run = [result("2", tool_call_id="y"), result("?", tool_call_id="q", tool="k"), result("1")]
    assert results(CALLS, *run) == [("f", "1", "2"), ("k", "2", "?"), ("h", "3", "1")]


def test_runs_are_ordered_apart_and_counted_from_the_last_assistant() -> None:
    run = [result("2", tool_call_id="y"), USER, result("1", tool_call_id="x")]
    assert results(CALLS, *run) == [("g", "1", "2"), ("f", "2", "1")]
    other = {"role": "assistant", "tool_calls": [call({}, "k", 7)]}
    assert results(CALLS, run[0], other, result("3", tool_call_id=7)) == [
        ("g", "1", "2"),
        ("k", "1", "3"),
    ]
