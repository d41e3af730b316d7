"""The notation that tests of the chat format compare in, and bodies of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from k3d.model.chat_format import ChatOptions, render
from k3d.model.chat_segments import (
    Marker,
    Segment,
)
from k3d.model.prompt_bodies import BODY_SHA256, PromptBodies

BODIES = PromptBodies(Path("encoding_k3.py"), {name: f"<{name}>" for name in BODY_SHA256})
MARKERS = {"⟨o⟩": "<|open|>", "⟨c⟩": "<|close|>", "⟨s⟩": "<|sep|>", "⟨e⟩": "<|end_of_msg|>"}
PLAIN = ChatOptions(thinking=False, generation_prompt=False)


def shown(segments: list[Segment]) -> str:
    """Segments in the notation of the tests: texts divided by |, markers short."""
    short = {spelling: sign for sign, spelling in MARKERS.items()}
    return "|".join(
        short[segment.spelling] if isinstance(segment, Marker) else segment.text
        for segment in segments
    )


def tag(name: str, /, **attributes: str) -> str:
    inner = "".join(f'| {key}|="|{value}|"' for key, value in attributes.items())
    return f"⟨o⟩|{name}{inner}|⟨s⟩"


def end(name: str) -> str:
    return f"⟨c⟩|{name}|⟨s⟩"


def rendered(*messages: Any, options: ChatOptions = PLAIN) -> str:
    return shown(render(messages, options, BODIES))


USER = {"role": "user", "content": "Hi"}


def call(arguments: Any, name: str = "f", call_id: Any = None) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content: str, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, **fields}


CALLS = {"role": "assistant", "tool_calls": [call({}, "f", "x"), call({}, "g", "y"), call({}, "h")]}
