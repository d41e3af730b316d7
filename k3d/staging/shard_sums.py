"""Checking shards against the sums that their publisher gave: `sha256sum` lines.

A model's digest samples its shards, and a bank remembers what it was built from. What a download
spoiled before the first build, with the size right, only the publisher's sums can tell.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from k3d.errors import CheckpointError, ConfigError
from k3d.experts.pages import drop_pages
from k3d.staging.progress import Emit, Progress

SUMS = "SHA256SUMS"
PIECE_BYTES = 8 * 2**20
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def read_sums(path: Path) -> dict[str, str]:
    """Sums by file name. Raises ConfigError for a file that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"sums {path} cannot be read: {error}") from None
    sums = {}
    for number, line in enumerate(lines, start=1):
        found = _LINE.fullmatch(line.strip())
        if line.strip() and found is None:
            raise ConfigError(
                f"sums {path}: line {number} is no line of sha256sum",
                hint="write 64 hex digits, two spaces and the name of the file",
            )
        if found is not None:
            sums[Path(found[2]).name] = found[1].lower()
    return sums


def check_shards(shards: list[Path], sums: dict[str, str], emit: Emit) -> None:
    """Hash every shard whole. Raises CheckpointError naming the first that is not as published."""
    for shard in shards:
        if shard.name not in sums:
            raise CheckpointError(
                f"shard {shard.name} has no line among the sums", hint="fetch the sums again"
            )
    progress = Progress(emit, "check", sum(shard.stat().st_size for shard in shards))
    for shard in shards:
        progress.what = shard.name
        if _sha256(shard, progress) != sums[shard.name]:
            raise CheckpointError(
                f"shard {shard.name} has the right size and wrong bytes: its SHA-256 is not the "
                "one given",
                hint="fetch it again",
            )


def _sha256(shard: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    try:
        with shard.open("rb", buffering=0) as file:
            done = 0
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
                drop_pages(file.fileno(), done, len(piece))
                done += len(piece)
                progress.add(len(piece))
    except OSError as error:
        raise CheckpointError(f"shard {shard} cannot be read: {error.strerror}") from error
    return digest.hexdigest()
