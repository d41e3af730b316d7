"""What the verbs of `k3d bank` do. Each ends with one JSON document on stdout."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from k3d.errors import BankError, ExitCode, NotFound
from k3d.placement.pod import load_pod
from k3d.staging.bank_names import PlacedBank, find_banks
from k3d.staging.documents import build_documents, damage_document, staged_document
from k3d.staging.pace import Pace
from k3d.staging.progress import Emit, Progress, say_nothing
from k3d.staging.verify import Damage, bank_bytes, verify_bank
from k3d.store.home import banks_directory, resolve_home


def run_bank(options: Namespace) -> int:
    """Run one verb; its exit code. Raises K3Error."""
    home = resolve_home(options.home)
    actions: dict[str, Callable[[Namespace, Path], int]] = {
        "plan": _plan, "build": _build, "stage": _stage, "receive": _receive,
        "verify": _verify, "scrub": _scrub, "ls": _list, "gc": _clear,
    }  # fmt: skip
    try:
        return actions[options.action](options, home)
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        raise BankError(f"{what}{error.strerror or error}", hint="check the disk") from error


def _put(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _emit_of(options: Namespace) -> Emit:
    return _put if options.progress else say_nothing


def _plan(options: Namespace, home: Path) -> int:
    from k3d.staging.disk_space import free_bytes
    from k3d.staging.pod_banks import pod_banks

    found = pod_banks(home, options)
    _put({
        "schema": "k3d.bank-plan/1",
        "pod": found.pod.name,
        "model": found.checkpoint.folder.name,
        "model_digest": found.checkpoint.digest,
        "map": found.placement.digest,
        "folder": str(banks_directory(home)),
        "free_bytes": free_bytes(banks_directory(home)),
        "banks": [
            {
                "node": bank.node,
                "file": bank.path.name,
                "state": bank.state(),
                "records": bank.layout.count,
                "record_bytes": bank.header.record_bytes,
                "size_bytes": bank.layout.size_bytes,
                "slice": bank.header.slice_index + 1,
                "slices": bank.header.slice_count,
                "format": bank.header.shape.format,
                "recast_from": bank.header.recast_from,
            }
            for bank in found.wanted
        ],
    })  # fmt: skip
    return int(ExitCode.OK)


def _build(options: Namespace, home: Path) -> int:
    from k3d.staging.build import build_pod
    from k3d.staging.pod_banks import pod_banks
    from k3d.staging.shard_sums import SUMS, check_shards, read_sums

    began = time.monotonic()
    found = pod_banks(home, options)
    sums = options.sums or found.checkpoint.folder / SUMS
    pending = any(bank.state() != "ready" for bank in found.wanted)
    checked = bool(options.sums) or (pending and sums.exists())
    if checked:
        check_shards(found.checkpoint.shards, read_sums(sums), _emit_of(options))
    built = build_pod(
        found.checkpoint, found.wanted, as_nvfp4=found.as_nvfp4, emit=_emit_of(options)
    )
    _put({
        "schema": "k3d.bank-build/1",
        "provenance": "measured",
        "pod": found.pod.name,
        "model_digest": found.checkpoint.digest,
        "map": found.placement.digest,
        "folder": str(banks_directory(home)),
        "shards_checked": checked,
        "time_s": round(time.monotonic() - began, 3),
        "banks": build_documents(found.wanted, built),
    })  # fmt: skip
    return int(ExitCode.OK)


def _stage(options: Namespace, home: Path) -> int:
    from k3d.staging.staging_run import run_stage

    began = time.monotonic()
    staged = run_stage(home, options, _emit_of(options))
    _put({
        "schema": "k3d.bank-stage/1",
        "provenance": "measured",
        "pod": options.pod,
        "dry_run": options.dry_run,
        "time_s": round(time.monotonic() - began, 3),
        "nodes": [staged_document(node) for node in staged],
    })  # fmt: skip
    failed = [node for node in staged if node.error is not None]
    if not failed:
        return int(ExitCode.OK)
    if len(failed) < len(staged):
        return int(ExitCode.PARTIAL)
    assert failed[0].error is not None
    return int(failed[0].error.code)


def _receive(options: Namespace, home: Path) -> int:
    from k3d.staging.receive_run import run_receiver

    run_receiver(home, options, _put)
    return int(ExitCode.OK)


def _verify(options: Namespace, home: Path) -> int:
    from k3d.staging.examined_log import ExaminedLog, keep_log
    from k3d.staging.home_repair import HomeRepairer, source_damages

    banks, began = banks_directory(home), time.monotonic()
    station = _station_name(options, home)
    placed = _chosen(banks, options.files, station)
    pace, emit = Pace(options.rate), _emit_of(options)
    progress = Progress(emit, "verify", sum(map(bank_bytes, placed)))
    mend = HomeRepairer(home, options).repair if options.repair else None
    log, damages, rows = ExaminedLog.read(banks), [], []
    for bank in placed:
        progress.what = f"{bank.node}/{bank.path.name}"
        examined = verify_bank(bank, pace, progress)
        found = mend(examined) if mend is not None else examined.damages
        damages += found
        rows.append({
            "node": bank.node, "file": bank.path.name, "records": examined.records,
            "bytes": examined.size_bytes, "damages": len(found),
            "state": "damaged" if any(not d.repaired for d in found)
            else "repaired" if found else "sound",
        })  # fmt: skip
        if bank.path.is_relative_to(banks):
            log.verified(banks, bank.path, all(damage.repaired for damage in found), time.time())
    not_noted = keep_log(log, banks)
    if options.source:
        damages += source_damages(home, options, placed, pace, emit)
    _put({
        "schema": "k3d.bank-verify/1",
        "provenance": "measured",
        "banks": rows,
        "damages": [damage_document(damage) for damage in damages],
        "source_checked": options.source,
        "not_noted": not_noted,
        "time_s": round(time.monotonic() - began, 3),
    })  # fmt: skip
    return int(_damage_code(damages))


def _scrub(options: Namespace, home: Path) -> int:
    from k3d.staging.examined_log import ExaminedLog
    from k3d.staging.home_repair import HomeRepairer
    from k3d.staging.scrub import due_bytes, scrub

    banks, began = banks_directory(home), time.monotonic()
    placed = list(find_banks(banks, _station_name(options, home)))
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
        _put({
            **document, "due_bytes": due_bytes(total, options.share, since), "bytes": 0,
            "records": 0, "rounds": 0, "damages": [], "not_noted": None, "time_s": 0.0,
        })  # fmt: skip
        return int(ExitCode.OK)
    mend = None if options.no_repair else HomeRepairer(home, options).repair
    done = scrub(banks, placed, options.share, Pace(options.rate), _emit_of(options), mend)
    _put({
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


def _list(options: Namespace, home: Path) -> int:
    from k3d.staging.inventory import inventory

    banks = banks_directory(home)
    _put({
        "schema": "k3d.bank-ls/1",
        "folder": str(banks),
        "banks": inventory(banks, _station_name(options, home)),
    })  # fmt: skip
    return int(ExitCode.OK)


def _clear(options: Namespace, home: Path) -> int:
    from k3d.staging.clear import clear, plan_clearing
    from k3d.staging.needs import needs_of

    banks = banks_directory(home)
    clearings = plan_clearing(banks, needs_of(home, options.pod))
    removed = [] if options.dry_run else clear(clearings)
    _put({
        "schema": "k3d.bank-gc/1",
        "dry_run": options.dry_run,
        "folder": str(banks),
        "freed_bytes": sum(clearing.size_bytes for clearing in removed),
        "files": [
            {
                "node": clearing.node,
                "file": clearing.path.name,
                "bytes": clearing.size_bytes,
                "remove": clearing.removable,
                "removed": clearing in removed,
                "reason": clearing.reason,
            }
            for clearing in clearings
        ],
    })  # fmt: skip
    return int(ExitCode.OK)


def _station_name(options: Namespace, home: Path) -> str:
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
