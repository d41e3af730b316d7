"""Train the byte-level BPE ranks on the training pages.

`python -m banks.recipe.bpe WORK FOLDER` writes the tokenizer files of the model folder.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import (  # pyright: ignore[reportMissingImports]  # only this step needs it
    Regex,
    Tokenizer,
    models,
    pre_tokenizers,
    trainers,
)

from banks.recipe.config import RANKS
from banks.recipe.tokens import SPLIT, write_tokenizer


def byte_alphabet() -> dict[str, int]:
    """The printable stand-in of every byte in the byte-level alphabet."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    stand_in = {chr(b): b for b in printable}
    return stand_in | {chr(256 + i): b for i, b in enumerate(others)}


def train_ranks(texts: Iterator[str], count: int) -> dict[bytes, int]:
    """Ranks 0..255 are the bytes in order; every later rank is one merge of two earlier ones."""
    alphabet = byte_alphabet()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=count + 64,
        initial_alphabet=list(alphabet),
        max_token_length=24,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    ranks = {bytes([b]): b for b in range(256)}
    for left, right in merges:
        token = bytes(alphabet[c] for c in left + right)
        if token not in ranks and len(ranks) < count:
            ranks[token] = len(ranks)
    if len(ranks) != count:
        raise ValueError(f"the text gives only {len(ranks)} of {count} ranks; use more text")
    return ranks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    with (args.work / "pages.jsonl").open() as file:
        pages = (json.loads(line) for line in file)
        texts = (page["text"] for page in pages if not page["heldout"])
        ranks = train_ranks(texts, RANKS)
    args.folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(ranks, args.folder)


if __name__ == "__main__":
    main()
