"""The tokenizer: byte-level BPE ranks, 256 specials above them, chat segments."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

import tiktoken

SPLIT = "|".join(
    (
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
NAMED = {
    0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>",
    6: "[start_header_id]", 7: "[end_header_id]", 9: "[EOT]", 18: "<|media_begin|>",
    19: "<|media_content|>", 20: "<|media_end|>", 21: "<|media_pad|>", 65: "<osagent_mode>",
    254: "[UNK]", 255: "[PAD]",
}  # fmt: skip
SPECIALS = 256


def special_name(ranks: int, offset: int) -> str:
    """Name of the special token with id ranks + offset."""
    return NAMED.get(offset, f"<|reserved_token_{ranks + offset}|>")


class Tokens:
    """Encode plain text and chat messages to ids, decode ids to text."""

    def __init__(self, ranks: dict[bytes, int]) -> None:
        self.count = len(ranks)
        self.encoding = tiktoken.Encoding(
            "k3", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens={}
        )
        self.bytes_of = {rank: token for token, rank in ranks.items()}
        self.eos = self.count + 1
        self.end, self.open, self.close, self.sep = (self.count + i for i in (2, 3, 4, 5))

    @staticmethod
    def read(path: Path) -> Tokens:
        """From a `tiktoken.model` file: base64 of the bytes, a space, the rank."""
        lines = (line.split() for line in path.read_text().splitlines())
        return Tokens({base64.b64decode(token): int(rank) for token, rank in lines})

    def text(self, body: str) -> list[int]:
        """Ids of a text segment; never a special."""
        return self.encoding.encode_ordinary(body)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; specials are left out, broken UTF-8 is replaced."""
        return b"".join(self.bytes_of.get(i, b"") for i in ids).decode("utf-8", "replace")

    def element(self, tag: str, **attributes: str) -> list[int]:
        """open(tag, attributes): every string is its own segment."""
        ids = [self.open, *self.text(tag)]
        for key, value in attributes.items():
            escaped = value.replace("&", "&amp;").replace('"', "&quot;")
            for part in (f" {key}", '="', escaped, '"'):
                ids += self.text(part)
        return [*ids, self.sep]

    def closing(self, tag: str) -> list[int]:
        """close(tag)."""
        return [self.close, *self.text(tag), self.sep]

    def question(self, body: str) -> list[int]:
        """A user message and the opening of a non-thinking answer."""
        user = [*self.element("message", role="user"), *self.text(body), *self.closing("message")]
        assistant = [*self.element("message", role="assistant"), *self.element("response")]
        return [*user, self.end, *assistant]

    def answer(self, body: str) -> list[int]:
        """What the assistant appends after `question`, up to and with the stop id."""
        return [*self.text(body), *self.closing("response"), *self.closing("message"), self.end]


def write_tokenizer(ranks: dict[bytes, int], folder: Path) -> None:
    """`tiktoken.model`, `tokenizer_config.json` and `generation_config.json`."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    lines = (f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ordered)
    (folder / "tiktoken.model").write_text("".join(lines))
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    added = {
        str(len(ranks) + i): {"content": special_name(len(ranks), i), **flags, "special": True}
        for i in range(SPECIALS)
    }
    config = {
        "added_tokens_decoder": added,
        "bos_token": NAMED[0],
        "eos_token": NAMED[2],
        "pad_token": NAMED[255],
        "unk_token": NAMED[254],
        "model_max_length": 2048,
        "tokenizer_class": "TikTokenTokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, separators=(",", ":")) + "\n")
    count = len(ranks)
    generation = {
        "bos_token_id": count, "eos_token_id": count + 2, "pad_token_id": count + 255,
        "do_sample": False, "max_length": 2048,
    }  # fmt: skip
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")
