"""Scrubbing: all banks are read again, a share of them a day, from where it stopped.

A run reads what is due since the last one: a share of a day for a day, an hour's part for an hour.
The cursor is written down as it moves, and what was read counts as done with it: a run that is
killed repeats little and the next one owes the rest, and a timer that calls once an hour or once a
day comes to the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from k3d.errors import BankError
from k3d.experts.bank_file import Bank
from k3d.staging.bank_names import PlacedBank
from k3d.staging.examined_log import BankNote, ExaminedLog, keep_log
from k3d.staging.pace import Pace
from k3d.staging.progress import Emit, Progress
from k3d.staging.verify import Damage, Examined, bank_bytes, verify_bank

DAY_S = 86_400.0
STEP_BYTES = 32 * 2**20
"""Read between two notes of the cursor."""
Mend = Callable[[Examined], list[Damage]]


@dataclass(frozen=True)
class Scrubbed:
    """What a run read and found. `due_bytes` is what the share asked for."""

    due_bytes: int
    size_bytes: int
    records: int
    rounds: int
    damages: list[Damage]
    not_noted: str | None


def due_bytes(total_bytes: int, share: float, since_s: float | None) -> int:
    """Bytes to read now: the share of a day, or of the part of one that has passed."""
    days = 1.0 if since_s is None else min(1.0, max(0.0, since_s / DAY_S))
    return int(total_bytes * share * days)


def scrub(
    banks: Path,
    placed: list[PlacedBank],
    share: float,
    pace: Pace,
    emit: Emit,
    mend: Mend | None,
    *,
    now_s: Callable[[], float] = time.time,
) -> Scrubbed:
    """Read what is due of `placed`, least far read first; `mend` repairs, None only names."""
    log = ExaminedLog.read(banks)
    total = sum(map(bank_bytes, placed))
    since = None if log.scrubbed_s is None else now_s() - log.scrubbed_s
    due = due_bytes(total, share, since)
    progress = Progress(emit, "scrub", due)
    damages: list[Damage] = []
    size = records = rounds = 0
    not_noted: str | None = None
    began_s = now_s()
    paid_s = began_s - min(DAY_S, since if since is not None else DAY_S)
    for bank, begin, end in _parts(banks, placed, log, due):
        progress.what = f"{bank.node}/{bank.path.name}"
        examined = verify_bank(bank, pace, progress, range(begin, end))
        found = examined.damages
        if found and mend is not None:
            found = mend(examined)
        damages += found
        size += examined.size_bytes
        records += examined.records
        rounds += _note(banks, bank, log, end, found, now_s())
        log.scrubbed_s = min(began_s, paid_s + size / (total * share) * DAY_S)
        not_noted = keep_log(log, banks) or not_noted
    log.scrubbed_s = began_s
    not_noted = keep_log(log, banks) or not_noted
    return Scrubbed(due, size, records, rounds, damages, not_noted)


def _parts(
    banks: Path, placed: list[PlacedBank], log: ExaminedLog, due: int
) -> Iterator[tuple[PlacedBank, int, int]]:
    """(bank, first record, record after the last), until `due` bytes are given out."""
    left = due
    notes = {bank: log.note_of(banks, bank.path) for bank in placed}
    order = sorted(placed, key=lambda bank: (notes[bank].rounds, -notes[bank].cursor))
    for bank in order:
        if left <= 0:
            return
        try:
            opened = Bank(bank.path)
        except BankError:
            yield bank, 0, 0  # its manifest is damaged; reading it says how
            continue
        count, size = len(opened.order), opened.header.record_bytes
        opened.close()
        begin = min(notes[bank].cursor, count)
        stop = min(count, begin + max(1, -(-left // size)))
        left -= (stop - begin) * size
        step = max(1, STEP_BYTES // size)
        for first in range(begin, stop, step):
            yield bank, first, min(stop, first + step)


def _note(
    banks: Path, bank: PlacedBank, log: ExaminedLog, end: int, damages: list[Damage], at_s: float
) -> int:
    """Move a bank's cursor to `end`; 1 where that ended a round."""
    note = log.note_of(banks, bank.path)
    sound = all(damage.repaired for damage in damages)
    try:
        opened = Bank(bank.path)
        count = len(opened.order)
        opened.close()
    except BankError:
        count = 0
    done = end >= count > 0
    changed = msgspec.structs.replace(
        note,
        cursor=0 if done else end,
        rounds=note.rounds + done,
        sound=sound and (note.sound or end == 0),
        verified_s=at_s if done else note.verified_s,
    )
    log.keep(banks, bank.path, changed)
    return int(done)


def noted(note: BankNote) -> str:
    """A note in one word: sound, damaged or unverified."""
    if not note.sound:
        return "damaged"
    return "unverified" if note.verified_s is None else "sound"
