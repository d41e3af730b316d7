"""What lies in banks/: every bank and unfinished file, and how sure one can be of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from k3d.errors import BankError
from k3d.experts.bank_file import Bank
from k3d.staging.bank_names import PlacedBank, find_banks, find_partials, model_of
from k3d.staging.clear import being_written
from k3d.staging.examined_log import ExaminedLog
from k3d.staging.scrub import noted


def inventory(banks: Path, station: str) -> list[dict[str, Any]]:
    """One entry a file. `state` is sound, unverified, damaged, writing or interrupted; nothing is
    sound before every record was read, here, since the file last changed."""
    log = ExaminedLog.read(banks)
    rows = [_bank(banks, placed, log) for placed in find_banks(banks, station)]
    for path in find_partials(banks):
        node = station if path.parent == banks else path.parent.name
        rows.append(_row(node, path, "writing" if being_written(path) else "interrupted"))
    return rows


def _bank(banks: Path, placed: PlacedBank, log: ExaminedLog) -> dict[str, Any]:
    row = _row(placed.node, placed.path, "unverified")
    try:
        bank = Bank(placed.path)
    except BankError as error:
        return {**row, "state": "damaged", "reason": error.message}
    bank.close()
    header, note = bank.header, log.note_of(banks, placed.path)
    return {
        **row,
        "state": noted(note),
        "model": model_of(placed.path.name, header),
        "model_digest": header.model_digest,
        "map": header.map_digest,
        "slice": header.slice_index + 1,
        "slices": header.slice_count,
        "format": header.shape.format,
        "recast_from": header.recast_from,
        "records": len(bank.order),
        "content": bank.content_digest,
        "verified_s": note.verified_s,
        "verified_age_s": _age(note.verified_s),
        "scrub_rounds": note.rounds,
    }


def _row(node: str, path: Path, state: str) -> dict[str, Any]:
    found = path.stat()
    return {
        "node": node,
        "file": path.name,
        "state": state,
        "reason": None,
        "model": None,
        "model_digest": None,
        "map": None,
        "slice": None,
        "slices": None,
        "format": None,
        "recast_from": None,
        "records": None,
        "content": None,
        "bytes": found.st_size,
        "age_s": round(max(0.0, time.time() - found.st_mtime), 3),
        "verified_s": None,
        "verified_age_s": None,
        "scrub_rounds": 0,
    }


def _age(at_s: float | None) -> float | None:
    return None if at_s is None else round(max(0.0, time.time() - at_s), 3)
