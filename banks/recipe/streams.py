"""Tokenise the pages: one training stream, one held-out stream, an [EOS] after each page.

`python -m banks.recipe.streams WORK FOLDER` writes WORK/text.npz (train, heldout: uint16;
heldout_bytes: UTF-8 bytes of the held-out text, for bits per byte).
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np

from banks.recipe.tokens import Tokens


def encode_pages(folder: Path, texts: list[str]) -> list[np.ndarray]:
    """Ids of each page with a closing [EOS]."""
    tokens = Tokens.read(folder / "tiktoken.model")
    return [np.array([*tokens.text(text), tokens.eos], np.uint16) for text in texts]


def stream(folder: Path, texts: list[str]) -> np.ndarray:
    """All pages in one array, encoded in parallel."""
    batches = [texts[i : i + 100] for i in range(0, len(texts), 100)]
    with ProcessPoolExecutor(2) as pool:
        done = pool.map(partial(encode_pages, folder), batches)
        return np.concatenate([page for batch in done for page in batch])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", type=int, default=None, help="only the first PAGES pages")
    args = parser.parse_args()
    with (args.work / "pages.jsonl").open() as file:
        rows = [json.loads(line) for line in islice(file, args.pages)]
    train = [row["text"] for row in rows if not row["heldout"]]
    heldout = [row["text"] for row in rows if row["heldout"]]
    Random(0).shuffle(train)
    np.savez_compressed(
        args.work / "text.npz",
        train=stream(args.folder, train),
        heldout=stream(args.folder, heldout),
        heldout_bytes=np.int64(sum(len(text.encode()) for text in heldout)),
    )


if __name__ == "__main__":
    main()
