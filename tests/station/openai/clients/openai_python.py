"""The openai library for Python, unmodified: run by test_clients in an environment that has it."""

# The repository's own environment has none of these libraries.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportAssignmentType=false

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import openai

MODEL = os.environ["K3_MODEL"]
LS: list[Any] = [{"role": "user", "content": "What does ls do?"}]
SAYS = "ls lists directory contents."
PICK = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "pick", "parameters": PICK, "strict": True}}
]


def main() -> None:
    client = openai.OpenAI(api_key="any", max_retries=0)
    assert [each.id for each in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    plain(client)
    tools(client)
    errors(client)
    leaving(client)
    asyncio.run(together())


def plain(client: openai.OpenAI) -> None:
    chat = client.chat.completions
    whole = chat.create(model=MODEL, messages=LS, temperature=0)
    assert whole.choices[0].message.content == SAYS
    stream = chat.create(
        model=MODEL, messages=LS, temperature=0, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == SAYS
    assert chunks[-1].usage == whole.usage
    with chat.stream(model=MODEL, messages=LS, temperature=0) as events:
        assert list(events)
        assert events.get_final_completion().choices[0].message.content == SAYS
    scored = chat.create(model=MODEL, messages=LS, temperature=0, logprobs=True, top_logprobs=2)
    entries = scored.choices[0].logprobs
    assert entries is not None
    assert "".join(e.token for e in entries.content or ()) == SAYS
    two = chat.create(model=MODEL, messages=LS, n=2, seed=1, max_tokens=5)
    assert len(two.choices) == 2
    text_completion = client.completions.create(
        model=MODEL, prompt="The ls command", max_tokens=4, temperature=0, echo=True, logprobs=1
    )
    assert text_completion.choices[0].text.startswith("The ls command")


def tools(client: openai.OpenAI) -> None:
    chat = client.chat.completions
    asked: list[Any] = [{"role": "user", "content": "Pick a city."}]
    first = chat.create(
        model=MODEL, messages=asked, tools=TOOLS, tool_choice="required", temperature=0,
        parallel_tool_calls=False,
    ).choices[0]  # fmt: skip
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls or ()
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")  # type: ignore[union-attr]
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    history = [*asked, first.message, result]
    assert chat.create(model=MODEL, messages=history, tools=TOOLS, max_tokens=5).choices
    form: Any = {"type": "json_schema", "json_schema": {"name": "p", "schema": PICK}}
    said = chat.create(model=MODEL, messages=asked, response_format=form, temperature=0)
    assert json.loads(said.choices[0].message.content or "")["city"] in ("Paris", "Rome")


def errors(client: openai.OpenAI) -> None:
    for wrong, kind in (
        ({"model": "other"}, openai.NotFoundError),
        ({"temperature": 9}, openai.BadRequestError),
        ({"max_tokens": 10**6}, openai.BadRequestError),
    ):
        try:
            client.chat.completions.create(**{"model": MODEL, "messages": LS, **wrong})
        except kind:
            continue
        raise AssertionError(wrong)


def leaving(client: openai.OpenAI) -> None:
    long: Any = {"model": MODEL, "messages": LS, "max_tokens": 1500,
                 "extra_body": {"ignore_eos": True}}  # fmt: skip
    stream = client.chat.completions.create(stream=True, **long)
    for _, _chunk in zip(range(4), stream, strict=False):
        pass
    stream.close()
    try:
        client.with_options(timeout=0.5).chat.completions.create(**long)
    except openai.APITimeoutError:
        return
    raise AssertionError("1,500 tokens in half a second")


async def together() -> None:
    client = openai.AsyncOpenAI(api_key="any", max_retries=0)
    asked = [
        client.chat.completions.create(model=MODEL, messages=LS, temperature=0) for _ in range(4)
    ]
    assert {each.choices[0].message.content for each in await asyncio.gather(*asked)} == {SAYS}


main()
