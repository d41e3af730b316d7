"""The daemons' logs: JSON lines, and whatever else a process writes as it dies."""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from k3d.errors import StoreError
from k3d.store.paths import run_directory

LEVELS = ("debug", "info", "warning", "error", "critical")
_ALIASES = {"warn": "warning", "fatal": "critical"}
TAIL_BYTES = 4 * 1024 * 1024
_SENTENCE = re.compile(r"k3d(?: [a-z]+)?: (.+)")


@dataclass(frozen=True)
class LogEntry:
    """One line of one node. `ts_s` is Unix seconds; a line without a time takes the one before."""

    ts_s: float
    level: str
    node: str
    message: str
    fields: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {
            "type": "log",
            "ts": _clock(self.ts_s),
            "level": self.level,
            "node": self.node,
            "message": self.message,
            **self.fields,
        }

    def as_text(self) -> str:
        extra = "".join(_field(key, str(value)) for key, value in self.fields.items())
        time = datetime.fromtimestamp(self.ts_s, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        return f"{time} {self.level:7} {self.node:9} {self.message}{extra}"


class LogReader:
    """The lines of one node's log, from a position on; follow it by reading again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.node = path.stem
        self._offset = max(0, path.stat().st_size - TAIL_BYTES) if path.exists() else 0
        self._skip_first = self._offset > 0
        self._inode: int | None = None
        self._last_ts_s = path.stat().st_mtime if path.exists() else 0.0

    def read(self) -> list[LogEntry]:
        """Whole lines that came since the last read. A log made anew is read from its start."""
        try:
            with self.path.open("rb") as file:
                stat = os.fstat(file.fileno())
                if stat.st_size < self._offset or self._inode not in (None, stat.st_ino):
                    self._offset = 0
                self._inode = stat.st_ino
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be read: {error.strerror}", hint="move it away, or name others"
            ) from error
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        lines = whole.decode(errors="replace").splitlines()
        if self._skip_first and lines:
            lines = lines[1:]
        self._skip_first = False
        return [self._entry(line) for line in lines if line.strip()]

    def _entry(self, line: str) -> LogEntry:
        entry = parse_line(line, self.node, self._last_ts_s)
        self._last_ts_s = entry.ts_s
        return entry


def parse_line(line: str, node: str, before_s: float) -> LogEntry:
    """A log line. One that is not JSON is its own message, at level error, at `before_s`."""
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or "message" not in fields:
        return LogEntry(before_s, "error", node, line, {})
    message, level = str(fields.pop("message")), str(fields.pop("level", "info")).lower()
    ts_s = _seconds(fields.pop("ts", None), before_s)
    return LogEntry(ts_s, _ALIASES.get(level, level), fields.pop("node", node), message, fields)


def merged(readers: Iterable[LogReader]) -> Iterator[LogEntry]:
    """What is new in several logs, by time."""
    return heapq.merge(*(reader.read() for reader in readers), key=lambda entry: entry.ts_s)


def log_files(home: Path) -> list[Path]:
    return sorted(run_directory(home).glob("*.log"))


def last_words(path: Path, offset: int) -> str | None:
    """Why a daemon that ended did, from what it wrote after a position; None if nothing."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return last_sentence(file.read()[-TAIL_BYTES:].decode(errors="replace"))
    except OSError:
        return None


def last_sentence(text: str) -> str | None:
    """The reason k3d gives as it ends ("k3d VERB: reason"), else its last error, else its last
    line; None for no line at all."""
    lines = [line for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        said = _SENTENCE.fullmatch(line)
        if said:
            return said[1]
    entries = [parse_line(line, "", 0.0) for line in lines]
    errors = [entry for entry in entries if entry.level in ("error", "critical")]
    chosen = errors or entries
    return chosen[-1].message.strip() if chosen else None


def _field(key: str, value: str) -> str:
    """A field after the message; a traceback goes below it, indented."""
    if "\n" not in value:
        return f" {key}={value}"
    return "".join(f"\n    {line}" for line in value.splitlines())


def _seconds(ts: Any, otherwise_s: float) -> float:
    """A time as Unix seconds; it may be a number or ISO 8601 text."""
    if isinstance(ts, int | float):
        return float(ts)
    try:
        parsed = datetime.fromisoformat(str(ts))
    except ValueError:
        return otherwise_s
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def _clock(ts_s: float) -> str:
    return datetime.fromtimestamp(ts_s, UTC).isoformat(timespec="milliseconds")
