"""Room on a disk, asked before anything is written to it."""

from __future__ import annotations

import os
from pathlib import Path


def free_bytes(folder: Path) -> int | None:
    """Bytes that this user may still write there; None where the system does not tell."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def begun_bytes(path: Path) -> int:
    """What an unfinished file of this bank takes already."""
    try:
        return path.with_name(f".{path.name}.partial").stat().st_blocks * 512
    except OSError:
        return 0
