"""Answers in the chat format, as a model would write them, with short markers."""

from __future__ import annotations

from k3d.model.chat_format import ChatFormat

SHORT = {"⟨o⟩": "<|open|>", "⟨c⟩": "<|close|>", "⟨s⟩": "<|sep|>"}
END = "⟨c⟩response⟨s⟩⟨c⟩message⟨s⟩"
"""What ends an answer of text alone; the fake engine adds the end of the message."""


def ids_of(chat: ChatFormat, text: str) -> list[int]:
    for short, spelling in SHORT.items():
        text = text.replace(short, spelling)
    return chat.tokenizer.encode_with_specials(text)


def call(name: str, index: int, **arguments: str) -> str:
    body = "".join(
        f'⟨o⟩argument key="{key}" type="{"string" if value[:1].isalpha() else "number"}"⟨s⟩'
        f"{value}⟨c⟩argument⟨s⟩"
        for key, value in arguments.items()
    )
    return f'⟨o⟩call tool="{name}" index="{index}"⟨s⟩{body}⟨c⟩call⟨s⟩'


def tools(*calls: str) -> str:
    return f"⟨o⟩tools⟨s⟩{''.join(calls)}⟨c⟩tools⟨s⟩"


def with_calls(response: str, *calls: str) -> str:
    """A whole answer that calls."""
    return f"{response}⟨c⟩response⟨s⟩{tools(*calls)}⟨c⟩message⟨s⟩"
