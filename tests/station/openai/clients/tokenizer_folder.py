"""A tokenizer folder as transformers reads it, of a checkpoint's tiktoken ranks: for lm-eval.

Usage: tokenizer_folder.py CHECKPOINT FOLDER PATTERN
"""

# The repository's own environment has none of these libraries.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportAssignmentType=false

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

checkpoint, folder, pattern = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
ranks = checkpoint / "tiktoken.model"
first = len(ranks.read_text().splitlines())
named = json.loads((checkpoint / "tokenizer_config.json").read_text())["added_tokens_decoder"]
names = {int(at): each["content"] for at, each in named.items()}
specials = [names.get(at, f"<|reserved_{at}|>") for at in range(first, first + 256)]
converter = TikTokenConverter(str(ranks), pattern=pattern, additional_special_tokens=specials)
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=converter.converted(), eos_token="<|end_of_msg|>", pad_token=specials[-1]
)
tokenizer.save_pretrained(folder)
(folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
