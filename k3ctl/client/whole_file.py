"""A file that somebody asked for: all of it or none of it, with the mode that their umask gives."""

from __future__ import annotations

import os
from pathlib import Path

from k3d.errors import ConfigError, StoreError


def check_place(path: Path) -> None:
    """Raise ConfigError where no file can be written, before any work is done for it."""
    if not path.parent.is_dir():
        raise ConfigError(f"there is no directory {path.parent}", hint="make it, or name another")
    if path.is_dir():
        raise ConfigError(f"{path} is a directory", hint="name a file in it")


def write_whole(path: Path, content: bytes) -> None:
    """Write through a file beside it. Raises StoreError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
