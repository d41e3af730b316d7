"""`k3d bank verify|scrub`: reading banks again, all of them or a day's share."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from k3d.errors import ExitCode, NotFound
from k3d.placement.pod import load_pod
from k3d.staging.bank_names import PlacedBank, find_banks
from k3d.staging.commands_make import progress_of
from k3d.staging.documents import damage_document, put
from k3d.staging.pace import Pace
from k3d.staging.progress import Progress
from k3d.staging.verify import Damage, bank_bytes, verify_bank
from k3d.staging.work_lock import scrub_lock
from k3d.store.home import banks_directory


def run_verify(options: Namespace, home: Path) -> int:
    from k3d.staging.examined_log import ExaminedLog, keep_log
    from k3d.staging.home_repair import HomeRepairer, source_damages

    banks, began = banks_directory(home), time.monotonic()
    station = station_name(options, home)
    placed = _chosen(banks, options.files, station)
    pace = Pace(options.rate)
    mend = HomeRepairer(home, options).repair if options.repair else None
    log, damages, rows = ExaminedLog.read(banks), [], []
    with progress_of(options, home, "verify", station) as emit:
        progress = Progress(emit, "verify", sum(map(bank_bytes, placed)))
        for bank in placed:
            progress.what = f"{bank.node}/{bank.path.name}"
            examined = verify_bank(bank, pace, progress)
            found = mend(examined) if mend is not None else examined.damages
            damages += found
            left = [damage for damage in found if not damage.repaired]
            rows.append({
                "node": bank.node, "file": bank.path.name, "records": examined.records,
                "bytes": examined.size_bytes, "damages": len(found),
                "state": "damaged" if left else "repaired" if found else "sound",
            })  # fmt: skip
            if bank.path.is_relative_to(banks):
                log.verified(banks, bank.path, not left, time.time())
        not_noted = keep_log(log, banks)
        if options.source:
            damages += source_damages(home, options, placed, pace, emit)
    put({
        "schema": "k3d.bank-verify/1",
        "provenance": "measured",
        "banks": rows,
        "damages": [damage_document(damage) for damage in damages],
        "source_checked": options.source,
        "not_noted": not_noted,
        "time_s": round(time.monotonic() - began, 3),
    })  # fmt: skip
    return int(_damage_code(damages))


def run_scrub(options: Namespace, home: Path) -> int:
    from k3d.staging.examined_log import ExaminedLog
    from k3d.staging.home_repair import HomeRepairer
    from k3d.staging.scrub import due_bytes, scrub

    banks, began = banks_directory(home), time.monotonic()
    station = station_name(options, home)
    placed = list(find_banks(banks, station))
    total = sum(map(bank_bytes, placed))
    document: dict[str, Any] = {
        "schema": "k3d.bank-scrub/1",
        "provenance": "measured",
        "dry_run": options.dry_run,
        "share": options.share,
        "total_bytes": total,
    }
    if options.dry_run:
        log = ExaminedLog.read(banks)
        since = None if log.scrubbed_s is None else time.time() - log.scrubbed_s
        put({
            **document, "due_bytes": due_bytes(total, options.share, since), "bytes": 0,
            "records": 0, "rounds": 0, "damages": [], "not_noted": None, "time_s": 0.0,
        })  # fmt: skip
        return int(ExitCode.OK)
    mend = None if options.no_repair else HomeRepairer(home, options).repair
    with (
        scrub_lock(home, options.lock_wait),
        progress_of(options, home, "scrub", station) as emit,
    ):
        done = scrub(banks, placed, options.share, Pace(options.rate), emit, mend)
    put({
        **document,
        "due_bytes": done.due_bytes,
        "bytes": done.size_bytes,
        "records": done.records,
        "rounds": done.rounds,
        "damages": [damage_document(damage) for damage in done.damages],
        "not_noted": done.not_noted,
        "time_s": round(time.monotonic() - began, 3),
    })  # fmt: skip
    return int(_damage_code(done.damages))


def station_name(options: Namespace, home: Path) -> str:
    return load_pod(options.pod, home).station.name


def _chosen(banks: Path, files: list[Path], station: str) -> list[PlacedBank]:
    """The files named, or every bank of the home."""
    if not files:
        return list(find_banks(banks, station))
    for path in files:
        if not path.is_file():
            raise NotFound(f"there is no bank {path}", hint="see: k3ctl bank ls")
    owners = {bank.path: bank.node for bank in find_banks(banks, station)}
    return [PlacedBank(owners.get(path.resolve(), station), path.resolve()) for path in files]


def _damage_code(damages: list[Damage]) -> ExitCode:
    whole = all(damage.repaired for damage in damages)
    return ExitCode.OK if whole else ExitCode.FAILED
