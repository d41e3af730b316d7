"""The two files a Kimi-K3 tokenizer is made of, read strictly.

`tiktoken.model` has one ordinary token a line: its bytes in base64, a space, its rank. The rank is
the token's id. `tokenizer_config.json` names some of the 256 special ids that follow the ordinary
ones; an id it does not name is spelled `<|reserved_token_ID|>`.
"""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path

from k3d.errors import CheckpointError

RANKS_FILE = "tiktoken.model"
NAMES_FILE = "tokenizer_config.json"
SPECIAL_COUNT = 256

_COPY_AGAIN = "copy the file again from the model's release"


def read_ranks(path: Path) -> dict[bytes, int]:
    """Token bytes -> rank of every line of a tiktoken file.

    Ranks are 0..n-1, each once; tokens are distinct, and every single byte is among them, so that
    any text can be encoded. Raises CheckpointError naming the file and the line that breaks this.
    """
    lines = _read(path).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if not lines:
        raise CheckpointError(f"{path} is empty", hint=_COPY_AGAIN)
    ranks: dict[bytes, int] = {}
    line_of_rank = [0] * len(lines)
    for number, line in enumerate(lines, start=1):
        token, rank = _parse_line(line, f"{path} line {number}")
        if rank >= len(lines):
            raise CheckpointError(
                f"{path} line {number}: rank {rank} in a file of {len(lines)} tokens, "
                "so some smaller rank is missing",
                hint=_COPY_AGAIN,
            )
        if line_of_rank[rank]:
            raise CheckpointError(
                f"{path} line {number}: rank {rank} was already given on line {line_of_rank[rank]}",
                hint=_COPY_AGAIN,
            )
        if token in ranks:
            raise CheckpointError(
                f"{path} line {number}: the same token is on line {line_of_rank[ranks[token]]}",
                hint=_COPY_AGAIN,
            )
        line_of_rank[rank] = number
        ranks[token] = rank
    absent = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if absent:
        raise CheckpointError(
            f"{path} has no token for the single byte 0x{absent[0]:02x} "
            f"({len(absent)} of 256 are missing), so some text could not be encoded",
            hint=_COPY_AGAIN,
        )
    return ranks


def read_specials(path: Path, first_id: int) -> dict[str, int]:
    """Spelling -> id of the 256 special tokens, ids first_id..first_id+255.

    Names come from `added_tokens_decoder`. Raises CheckpointError when the file is not JSON of that
    shape, names an id outside the range, or spells two ids alike.
    """
    names = _special_names(path)
    last_id = first_id + SPECIAL_COUNT - 1
    for token_id, name in names.items():
        if not first_id <= token_id <= last_id:
            raise CheckpointError(
                f"{path} names token {token_id} {name!r}, but the special tokens of this "
                f"vocabulary are {first_id} to {last_id}",
                hint=f"{RANKS_FILE} and {NAMES_FILE} must come from the same model",
            )
    specials: dict[str, int] = {}
    for token_id in range(first_id, last_id + 1):
        spelling = names.get(token_id, f"<|reserved_token_{token_id}|>")
        if spelling in specials:
            raise CheckpointError(
                f"{path} spells both token {specials[spelling]} and token {token_id} {spelling!r}",
                hint=_COPY_AGAIN,
            )
        specials[spelling] = token_id
    return specials


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist", hint="the tokenizer's files belong beside config.json"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error


def _parse_line(line: bytes, where: str) -> tuple[bytes, int]:
    token_base64, space, rank_digits = line.partition(b" ")
    if not space:
        raise CheckpointError(f"{where}: expected 'BASE64 RANK'", hint=_COPY_AGAIN)
    try:
        token = base64.b64decode(token_base64, validate=True)
    except binascii.Error as error:
        raise CheckpointError(f"{where}: not base64: {error}", hint=_COPY_AGAIN) from None
    if not token:
        raise CheckpointError(f"{where}: an empty token", hint=_COPY_AGAIN)
    # No real vocabulary needs more than nine digits, and int() of a very long string is slow.
    if not rank_digits.isdigit() or len(rank_digits) > 9:
        raise CheckpointError(f"{where}: the rank is not a number", hint=_COPY_AGAIN)
    return token, int(rank_digits)


def _special_names(path: Path) -> dict[int, str]:
    try:
        config = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}", hint=_COPY_AGAIN) from None
    table = config.get("added_tokens_decoder") if isinstance(config, dict) else None
    if not isinstance(table, dict):
        raise CheckpointError(
            f"{path} has no added_tokens_decoder object, so no special token has its name",
            hint=_COPY_AGAIN,
        )
    names: dict[int, str] = {}
    for key, entry in table.items():
        content = entry.get("content") if isinstance(entry, dict) else None
        # isdecimal alone admits digits of other scripts, and leading zeros would alias an id.
        is_id = key.isdecimal() and len(key) <= 9 and str(int(key)) == key
        if not is_id or not isinstance(content, str) or not content:
            raise CheckpointError(
                f"{path}: added_tokens_decoder entry {key!r} does not map a token id to "
                "an object with a content string",
                hint=_COPY_AGAIN,
            )
        names[int(key)] = content
    return names
