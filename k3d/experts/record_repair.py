"""Putting one record of a published bank right, in its place."""

from __future__ import annotations

import os
from pathlib import Path

from k3d.errors import BankError
from k3d.experts.bank_layout import Manifest
from k3d.experts.content_hash import content_hash
from k3d.experts.direct_write import write_all
from k3d.experts.partial_file import same_file
from k3d.experts.write_failed import write_failed


def replace_record(
    path: Path,
    manifest: Manifest,
    index: int,
    record: bytes | memoryview,
    *,
    same_as: int | None = None,
) -> None:
    """Put a record in the place of a damaged one. Raises BankError unless it is the right one.

    `same_as` is the open file in which the damage was found, if another may have its name now.
    """
    layer, expert = manifest.layout.order[index]
    what = f"bank {path.name}: the record of layer {layer} expert {expert}"
    if content_hash(record) != manifest.digest(index):
        raise BankError(
            f"{what} cannot be repaired: its source is not what the bank was built from",
            hint="fetch the shard again, or build the bank again",
        )
    try:
        with path.open("r+b", buffering=0) as file:
            if same_as is not None and not same_file(same_as, path):
                raise BankError(f"{what} is not repaired: another bank has taken its place")
            if os.fstat(file.fileno()).st_nlink > 1:
                raise BankError(
                    f"{what} is not repaired: the file has another name too",
                    hint="remove the hard link, or build the bank again",
                )
            write_all(file.fileno(), record, manifest.layout.offset(index))
            os.fsync(file.fileno())
    except OSError as error:
        raise write_failed(path, error) from error
