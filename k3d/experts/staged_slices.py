"""Banks of slices on a spark's own disk: what its slots are filled from without the fabric.

A Station names the bytes it wants by their hash. Any bank of the model, the slice and the shape may
have them, that of the map in force first: a swap moves few experts. Every record is hashed before
it is served, whatever its bank promised; one that is damaged comes over the fabric and is put back.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from k3d.errors import BankError
from k3d.experts.bank_file import Bank
from k3d.experts.content_hash import content_hash
from k3d.experts.pages import drop_pages, read_ahead
from k3d.experts.record_repair import replace_record
from k3d.experts.shape import ExpertShape
from k3d.fabric.facts import StagedBank

MOST_IGNORED = 3
"""Banks of no use that a handshake names; the log has all."""
MOST_REASON = 240
"""ASCII characters, so that a handshake's frame always holds what is said."""
AHEAD_BYTES = 8 * 2**20
"""What the disk reads while a record is hashed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """What a spark serves: a bank must agree to be of use. `map_digest` only prefers one."""

    model_digest: str
    slice_index: int
    slice_count: int
    shape: ExpertShape
    map_digest: str


class StagedSlices:
    """The banks of one node, in `folder`. Files are open from the first read until `close`."""

    def __init__(self, folder: Path, node: str) -> None:
        self._folder = folder
        self._node = node
        self._served: Served | None = None
        self._open: list[Bank] | None = None
        self._damaged: dict[tuple[int, int], Bank] = {}
        self._told: StagedBank | None = None

    def look(self, served: Served) -> StagedBank:
        """What is there for a Station; said in the log where it is not what it was before."""
        self.close()
        self._served = served
        usable, ignored = self._find(served)
        records = max((len(bank.order) for bank in usable), default=0)
        file = _plain(usable[0].path.name) if usable else None
        for bank in usable:
            bank.close()
        few = tuple(_plain(reason) for reason in ignored[:MOST_IGNORED])
        found = StagedBank(file, records, few)
        if found != self._told:
            self._told = found
            if file is not None:
                log.info("%s can fill its slots from bank %s", self._node, file)
            for reason in ignored:
                log.info("%s: %s", self._node, reason)
        return found

    def read(self, layer: int, expert: int, digest: bytes, into: memoryview) -> bool:
        """Put a slice into `into`, from whichever bank has the bytes of this hash; False where
        none has. Damage is remembered for `mend`."""
        for bank in self._banks():
            index = bank.order.find(layer, expert)
            if index is None or bank.manifest.digest(index) != digest:
                continue
            if self._read(bank, index, into) and content_hash(into) == digest:
                return True
            log.warning(
                "%s: bank %s: the record of layer %d expert %d is damaged and not served",
                self._node, bank.path.name, layer, expert,
            )  # fmt: skip
            self._damaged.setdefault((layer, expert), bank)
        return False

    def mend(self, layer: int, expert: int, digest: bytes, record: memoryview) -> None:
        """Put right what was found damaged, now that its bytes have come, if its file allows it."""
        bank = self._damaged.pop((layer, expert), None)
        index = None if bank is None else bank.order.find(layer, expert)
        if bank is None or index is None or bank.manifest.digest(index) != digest:
            return
        try:
            replace_record(bank.path, bank.manifest, index, record, same_as=bank.descriptor)
        except BankError as error:
            log.warning("%s: %s", self._node, error)
        else:
            log.info(
                "%s: bank %s: the record of layer %d expert %d was repaired",
                self._node, bank.path.name, layer, expert,
            )  # fmt: skip

    def drop_pages(self) -> None:
        """Let the kernel forget what was read."""
        for bank in self._open or ():
            drop_pages(bank.descriptor, 0, 0)

    def close(self) -> None:
        for bank in self._open or ():
            bank.close()
        self._open = None
        self._damaged.clear()

    def _banks(self) -> list[Bank]:
        if self._open is None:
            self._open = [] if self._served is None else self._find(self._served)[0]
        return self._open

    def _find(self, served: Served) -> tuple[list[Bank], list[str]]:
        """Banks to read from, open, the best first; and why the others are none."""
        usable: list[Bank] = []
        ignored: list[str] = []
        for path in sorted(self._folder.glob("*.bank")):
            if not path.is_file():  # opening a pipe would wait for whoever writes to it
                ignored.append(f"{path.name} is no file: it is not used")
                continue
            try:
                bank = Bank(path)
            except BankError as error:
                ignored.append(f"{error.message}: it is not used")
                continue
            reason = _unfit(bank, served)
            if reason is None:
                usable.append(bank)
            else:
                bank.close()
                ignored.append(f"bank {path.name} is {reason}: it is not used")
        usable.sort(key=lambda bank: bank.header.map_digest != served.map_digest)
        if usable and usable[0].header.map_digest != served.map_digest:
            ignored += [
                f"bank {bank.path.name} is of another map: only slices that both have are used"
                for bank in usable
            ]
        return usable, ignored

    def _read(self, bank: Bank, index: int, into: memoryview) -> bool:
        """The bytes of a record as they are on the disk; False where they cannot be had."""
        offset = bank.manifest.layout.offset(index)
        try:
            read_ahead(bank.descriptor, offset + len(into), AHEAD_BYTES)
            return os.preadv(bank.descriptor, [into], offset) == len(into)
        except OSError as error:
            log.warning("%s: bank %s cannot be read: %s", self._node, bank.path.name, error)
            return False


def _plain(text: str) -> str:
    return text.encode("ascii", errors="replace").decode()[:MOST_REASON]


def _unfit(bank: Bank, served: Served) -> str | None:
    """What makes a bank useless for a Station."""
    header = bank.header
    if header.model_digest != served.model_digest:
        return f"of model {header.model_digest[:12]}, not {served.model_digest[:12]}"
    if (header.slice_index, header.slice_count) != (served.slice_index, served.slice_count):
        return (
            f"slice {header.slice_index + 1} of {header.slice_count}, not "
            f"{served.slice_index + 1} of {served.slice_count}"
        )
    if header.shape != served.shape:
        return "cut for another expert shape"
    return None
