"""`k3d bank plan|build|stage`: what banks a pod needs, making them, sending them."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from k3d.errors import ExitCode
from k3d.staging.documents import build_documents, plan_documents, put, staged_document
from k3d.staging.progress import Emit, both, say_nothing
from k3d.staging.progress_file import Kind, telling
from k3d.staging.work_lock import work_lock
from k3d.store.home import banks_directory


def emit_of(options: Namespace) -> Emit:
    """Progress as JSON lines, if it is asked for."""
    return put if options.progress else say_nothing


def run_plan(options: Namespace, home: Path) -> int:
    from k3d.staging.disk_space import free_bytes
    from k3d.staging.plan_token import banks_token
    from k3d.staging.pod_banks import pod_banks

    found = pod_banks(home, options)
    put({
        "schema": "k3d.bank-plan/1",
        "pod": found.pod.name,
        "model": found.checkpoint.folder.name,
        "model_digest": found.checkpoint.digest,
        "map": found.placement.digest,
        "folder": str(banks_directory(home)),
        "free_bytes": free_bytes(banks_directory(home)),
        "token": banks_token(found),
        "banks": plan_documents(found.wanted),
    })  # fmt: skip
    return int(ExitCode.OK)


def run_build(options: Namespace, home: Path) -> int:
    from k3d.staging.build import build_pod
    from k3d.staging.plan_token import banks_token, require_token
    from k3d.staging.pod_banks import pod_banks
    from k3d.staging.shard_sums import SUMS, check_shards, read_sums

    began = time.monotonic()
    with work_lock(home, "build", options.lock_wait):
        found = pod_banks(home, options)
        require_token(options.if_token, banks_token(found))
        sums = options.sums or found.checkpoint.folder / SUMS
        pending = any(bank.state() != "ready" for bank in found.wanted)
        checked = bool(options.sums) or (pending and sums.exists())
        with progress_of(options, home, "build", found.pod.station.name) as emit:
            if checked:
                check_shards(found.checkpoint.shards, read_sums(sums), emit)
            built = build_pod(found.checkpoint, found.wanted, as_nvfp4=found.as_nvfp4, emit=emit)
    put({
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


def run_stage(options: Namespace, home: Path) -> int:
    from k3d.staging.plan_token import banks_token
    from k3d.staging.staging_run import plan_stage, send_staged

    began = time.monotonic()
    with work_lock(home, "stage", options.lock_wait, dry=options.dry_run):
        planned = plan_stage(home, options)
        token = banks_token(planned.found)
        station = planned.found.pod.station.name
        with progress_of(options, home, "stage", station) as emit:
            staged = send_staged(home, options, planned, emit)
    put({
        "schema": "k3d.bank-stage/1",
        "provenance": "measured",
        "pod": planned.found.pod.name,
        "map": planned.found.placement.digest,
        "dry_run": options.dry_run,
        "token": token,
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


@contextmanager
def progress_of(options: Namespace, home: Path, kind: Kind, node: str) -> Iterator[Emit]:
    """Where progress goes: to whoever reads stdout, and to the frames of a Station here."""
    with telling(home, kind, node) as told:
        yield both(emit_of(options), told)
