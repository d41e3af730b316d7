"""What happened: events of state.db and lines of the daemons' logs, in one order of time.

Both are read from their files, so that they are there when no daemon is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from k3ctl.client.daemon_log import LEVELS, LogEntry, LogReader, log_files
from k3d.errors import NotFound
from k3d.store.records import Event

MOST_EVENTS = 1_000
"""Of those that were there before, as many are read; of a log its last few MiB."""
_SEVERITIES = {"alert": "error", "warning": "warning", "note": "info"}


@dataclass(frozen=True)
class Entry:
    """An event or a log line. `number` tells entries apart, in the order they were read; `kind` is
    an event's and empty for a line."""

    number: int
    at_s: float
    source: Literal["event", "log"]
    level: str
    node: str
    kind: str
    message: str
    fields: dict[str, Any]

    @property
    def text(self) -> str:
        """All that can be searched, on one line."""
        extra = " ".join(f"{key}={value}" for key, value in self.fields.items())
        return f"{self.level} {self.node} {self.kind} {self.message} {extra}"

    def record(self) -> dict[str, Any]:
        """As JSON and CSV hold it."""
        return {
            "at": datetime.fromtimestamp(self.at_s, UTC).isoformat(timespec="milliseconds"),
            "source": self.source,
            "level": self.level,
            "node": self.node,
            "kind": self.kind or None,
            "message": self.message,
            "fields": self.fields,
        }

    def lines(self) -> list[str]:
        """All of it, a field a line; what has several lines is indented below its name."""
        found = [self.message, ""]
        for name, value in {**self.record(), **self.fields}.items():
            if name in ("message", "fields") or value is None:
                continue
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            first, *more = text.splitlines() or [""]
            found.append(f"{name}: {first}" if not more else f"{name}:")
            found += [f"  {line}" for line in ([first, *more] if more else [])]
        return found


def severity_of(level: str) -> int:
    """A level's place among LEVELS; one that is not known counts as the worst."""
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


class Journal:
    """Reads a home's events and logs from where it read before. Belongs to one thread at a time."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._readers: dict[Path, LogReader] = {}
        self._last_event = 0
        self._count = 0

    def read(self) -> list[Entry]:
        """What is new since the last read, by time. Raises StoreError for a file that cannot be
        read; a home without state.db or logs has nothing to tell."""
        for path in log_files(self._home):
            if path not in self._readers:
                self._readers[path] = LogReader(path)
        found = [_of_line(line) for reader in self._readers.values() for line in reader.read()]
        found += [_of_event(event) for event in self._events()]
        found.sort(key=lambda entry: entry.at_s)
        return [self._numbered(entry) for entry in found]

    def _numbered(self, entry: Entry) -> Entry:
        self._count += 1
        return Entry(self._count, *(getattr(entry, name) for name in _REST))

    def _events(self) -> list[Event]:
        from k3d.store.state import StateReader

        try:
            with StateReader.open(self._home) as reader:
                found = reader.events(limit=MOST_EVENTS, since_id=self._last_event)
        except NotFound:
            return []
        if found:
            self._last_event = found[-1].id
        return found


_REST = ("at_s", "source", "level", "node", "kind", "message", "fields")


def _of_line(line: LogEntry) -> Entry:
    return Entry(0, line.ts_s, "log", line.level, line.node, "", line.message, line.fields)


def _of_event(event: Event) -> Entry:
    detail = dict(event.detail or {})
    level = _SEVERITIES.get(str(detail.get("severity", "note")), "info")
    return Entry(
        0,
        event.ts_ms / 1000,
        "event",
        level,
        event.node or "pod",
        event.kind,
        event.message,
        detail,
    )
