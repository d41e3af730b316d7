"""API keys: one a line in HOME/api-keys, which nobody but its owner may read."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from pathlib import Path

from k3d.errors import ConfigError

FILE = "api-keys"
SHORTEST = 16


class KeyFile:
    """The keys of a home, read again whenever the file changes. Without a file at the start the
    API is open; a file that goes away later, or cannot be read any more, shuts everybody out.
    """

    def __init__(self, home: Path) -> None:
        """Raises ConfigError for a file that others can read, or with a key too short."""
        self.path = home / FILE
        self._stamp = _stamp(self.path)
        self._digests = () if self._stamp is None else _read(self.path)
        self.required = self._stamp is not None

    def __len__(self) -> int:
        return len(self._digests)

    def name_of(self, presented: bytes) -> str | None:
        """A name for the key's owner, or None for no key of ours. Takes the same time for every
        key: digests of one length are compared, all of them."""
        self._refresh()
        digest = hashlib.sha256(presented).digest()
        found: str | None = None
        for index, known in enumerate(self._digests):
            if hmac.compare_digest(digest, known):
                found = f"key-{index + 1}"
        return found

    def _refresh(self) -> None:
        stamp = _stamp(self.path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._digests = () if stamp is None else _read(self.path)
            except ConfigError:
                self._digests = ()


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)


def _read(path: Path) -> tuple[bytes, ...]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read().split(b"\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{path} can be read by others (mode {stat.S_IMODE(mode):o})",
            hint=f"chmod 600 {path}, and replace the keys",
        )
    keys = [line.strip() for line in lines if line.strip()]
    short = next((at for at, key in enumerate(keys, start=1) if len(key) < SHORTEST), None)
    if short is not None:
        raise ConfigError(f"{path}: key {short} has fewer than {SHORTEST} characters")
    return tuple(hashlib.sha256(key).digest() for key in keys)
