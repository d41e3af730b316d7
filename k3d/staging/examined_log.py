"""What was verified when, and where a scrub goes on: HOME/banks/.examined.json.

A note is worth nothing once its file is another: it names size and time of what was verified.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from k3d.errors import StoreError
from k3d.store.run_file import write_atomically

NAME = ".examined.json"


class BankNote(msgspec.Struct, frozen=True, kw_only=True):
    """A bank file by its path within banks/. Times are Unix seconds.

    `cursor` is the next record that a scrub reads; a round is one pass over all of them.
    """

    size_bytes: int
    mtime_ns: int
    verified_s: float | None = None
    sound: bool = True
    cursor: int = 0
    rounds: int = 0


class ExaminedLog(msgspec.Struct):
    """Notes by file, and when scrubbing was done last."""

    scrubbed_s: float | None = None
    banks: dict[str, BankNote] = {}

    @classmethod
    def read(cls, banks: Path) -> ExaminedLog:
        """An empty one where there is none or it cannot be understood: verifying makes it anew."""
        try:
            return msgspec.json.decode((banks / NAME).read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls()

    def write(self, banks: Path) -> None:
        """Raises StoreError."""
        write_atomically(banks / NAME, msgspec.json.encode(self))

    def note_of(self, banks: Path, path: Path) -> BankNote:
        """The note of a file as it is now: a fresh one where it has changed."""
        found = path.stat()
        note = self.banks.get(_key(banks, path))
        if note is not None and (note.size_bytes, note.mtime_ns) == (
            found.st_size, found.st_mtime_ns,
        ):  # fmt: skip
            return note
        return BankNote(size_bytes=found.st_size, mtime_ns=found.st_mtime_ns)

    def keep(self, banks: Path, path: Path, note: BankNote) -> None:
        """Note a file under the size and time that it has now, which a repair may have changed."""
        found = path.stat()
        self.banks[_key(banks, path)] = msgspec.structs.replace(
            note, size_bytes=found.st_size, mtime_ns=found.st_mtime_ns
        )

    def verified(self, banks: Path, path: Path, sound: bool, at_s: float) -> None:
        """Note that a whole bank was read; one that is gone needs no note."""
        if path.exists():
            note = self.note_of(banks, path)
            self.keep(banks, path, msgspec.structs.replace(note, sound=sound, verified_s=at_s))

    def forget_missing(self, banks: Path) -> None:
        self.banks = {key: note for key, note in self.banks.items() if (banks / key).exists()}


def keep_log(log: ExaminedLog, banks: Path) -> str | None:
    """Write a log where that is possible; the reason where it is not: reading needs no writing."""
    if not os.access(banks, os.W_OK):
        return f"{banks} is read-only"
    try:
        log.forget_missing(banks)
        log.write(banks)
    except StoreError as error:
        return error.message
    return None


def _key(banks: Path, path: Path) -> str:
    return str(path.relative_to(banks))
