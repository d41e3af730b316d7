"""Kimi-K3's tokenizer: byte-level BPE by rank, with 256 special tokens behind the ordinary ones.

Specials are never parsed from text by `encode`: a user who types `<|open|>` gets the ordinary
tokens of those characters. Only `encode_with_specials`, for text this program wrote itself, turns
spellings into special ids. Nothing is prepended, no [BOS] either.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import tiktoken

from k3d.errors import CheckpointError, ConfigError
from k3d.model.tokenizer_files import NAMES_FILE, RANKS_FILE, read_ranks, read_specials

# Text is cut into pieces before BPE: the first alternative that matches at a position wins. Han
# characters stand alone, so the letter classes exclude them (`&&` intersects two classes).
_NOT_HAN = r"&&[^\p{Han}]"
_UPPER = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{_NOT_HAN}]"
_LOWER = rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{_NOT_HAN}]"
_BEFORE_WORD = r"[^\r\n\p{L}\p{N}]?"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PIECE_PATTERN = "|".join(
    (
        r"[\p{Han}]+",
        f"{_BEFORE_WORD}{_UPPER}*{_LOWER}+{_CONTRACTION}",
        f"{_BEFORE_WORD}{_UPPER}+{_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

# Cuts made before the pieces. They keep the regex engine's stack and the BPE's time bounded, and
# they are part of the format: another cut gives other ids.
MAX_PART_CHARACTERS = 400_000
MAX_RUN_CHARACTERS = 25_000
_RUN = re.compile(r"\s+|\S+")

# A UTF-8 character has at most four bytes, so what the last three tokens end in decides whether a
# character is still open after them.
_TAIL_TOKENS = 3


class Tokenizer:
    """Text <-> token ids. Immutable and cheap to load again: encoders are kept per file."""

    def __init__(self, folder: Path, encoding: tiktoken.Encoding, specials: Mapping[str, int]):
        self.folder = folder
        self._encoding = encoding
        self.specials: Mapping[str, int] = MappingProxyType(dict(specials))
        """Spelling -> id of the 256 special tokens."""
        self._spelling_of = {token_id: spelling for spelling, token_id in specials.items()}
        self.first_special_id = min(specials.values())
        """Number of ordinary tokens, which is the id of the first special."""
        self.vocab_size = max(specials.values()) + 1
        """Ordinary and special tokens together."""

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer of a checkpoint folder.

        Raises CheckpointError naming the file, and the line where there is one, that is missing or
        damaged.
        """
        folder = Path(folder)
        encoding, specials = _load(folder, _stamp(folder / RANKS_FILE), _stamp(folder / NAMES_FILE))
        return cls(folder, encoding, specials)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, every one of them ordinary. A lone surrogate counts as U+FFFD."""
        ids: list[int] = []
        for part in cut_long_text(text):
            ids += self._encoding.encode_ordinary(part)
        return ids

    def encode_with_specials(self, text: str) -> list[int]:
        """Ids of text that is trusted: spellings of special tokens become their ids."""
        ids: list[int] = []
        for part in cut_long_text(text):
            ids += self._encoding.encode(part, allowed_special="all")
        return ids

    def special_id(self, spelling: str) -> int:
        """Id of the special token spelled so. Raises CheckpointError when the model has none."""
        try:
            return self.specials[spelling]
        except KeyError:
            raise CheckpointError(
                f"{self.folder / NAMES_FILE} names no special token {spelling!r}",
                hint="the model's release defines it in added_tokens_decoder",
            ) from None

    def special_spelling(self, token_id: int) -> str | None:
        """Spelling of a special id; None for an ordinary one."""
        return self._spelling_of.get(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token; of a special token, its spelling. Raises ConfigError out of range."""
        if not 0 <= token_id < self.vocab_size:
            raise ConfigError(
                f"token id {token_id} is outside the vocabulary of {self.folder}",
                hint=f"ids are 0 to {self.vocab_size - 1}",
            )
        return self._encoding.decode_single_token_bytes(token_id)

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """Bytes of all tokens in order. Raises ConfigError naming an id out of range."""
        return b"".join(map(self.token_bytes, ids))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the tokens, specials spelled out; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def stream_decoder(self, after: Sequence[int] = ()) -> StreamDecoder:
        """A decoder of ids that follow `after`, whose own text is not given again."""
        return StreamDecoder(self, after)


class StreamDecoder:
    """Decodes ids one at a time, never splitting a character.

    The strings given out join to the whole decode of the same ids. Bytes that may still become a
    character are held, three at most; bytes that cannot are given out as U+FFFD at once.
    """

    def __init__(self, tokenizer: Tokenizer, after: Sequence[int] = ()):
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._decoder.decode(tokenizer.decode_bytes(after[-_TAIL_TOKENS:]))

    def push(self, token_id: int) -> str:
        """Text that `token_id` completes, often empty. Raises ConfigError out of range."""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        """U+FFFD for a character still open, else nothing. The decoder can then start anew."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


def cut_long_text(text: str) -> Iterator[str]:
    """Parts of `text` that are encoded apart: 400,000 characters at most, and inside them a run
    of space or of non-space characters is cut after every 25,000."""
    for start in range(0, len(text), MAX_PART_CHARACTERS):
        yield from _cut_long_runs(text[start : start + MAX_PART_CHARACTERS])


def _cut_long_runs(text: str) -> Iterator[str]:
    start = 0
    if len(text) > MAX_RUN_CHARACTERS:
        for run in _RUN.finditer(text):
            for cut in range(run.start() + MAX_RUN_CHARACTERS, run.end(), MAX_RUN_CHARACTERS):
                yield text[start:cut]
                start = cut
    yield text[start:]


def _stamp(path: Path) -> tuple[int, int, int]:
    """What changes when a file is replaced; zeros when there is none, which reading will report."""
    try:
        stat = path.stat()
    except OSError:
        return (0, 0, 0)
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4)
def _load(
    folder: Path, _ranks_stamp: tuple[int, int, int], _names_stamp: tuple[int, int, int]
) -> tuple[tiktoken.Encoding, dict[str, int]]:
    """The encoder of the files as they are now; the stamps are there to tell versions apart."""
    ranks = read_ranks(folder / RANKS_FILE)
    specials = read_specials(folder / NAMES_FILE, first_id=len(ranks))
    encoding = tiktoken.Encoding(
        name=str(folder), pat_str=PIECE_PATTERN, mergeable_ranks=ranks, special_tokens=specials
    )
    return encoding, specials
