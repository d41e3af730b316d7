"""Quantise trained weights into the release form.

`python -m banks.recipe.export WEIGHTS.pt FOLDER` writes config, shards and index beside the
tokenizer files that are already in FOLDER.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from banks.recipe.config import K3_MINI
from banks.recipe.model import K3
from banks.recipe.release import write_release


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    model = K3(K3_MINI)
    model.load_state_dict(torch.load(args.weights, map_location="cpu"))
    write_release(model, args.folder)


if __name__ == "__main__":
    main()
