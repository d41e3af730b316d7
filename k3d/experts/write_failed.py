"""What a failed write of a bank means, in one sentence."""

from __future__ import annotations

import errno
from pathlib import Path

from k3d.errors import BankError


def write_failed(path: Path, error: OSError) -> BankError:
    """The error to raise, with what to do next."""
    hint = "check the folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = f"free space on {path.parent}; a build that is run again goes on from here"
    elif error.errno == errno.EFBIG:
        hint = "raise the limit on the size of files: ulimit -f"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        hint = f"make {path.parent} writable, or choose another home"
    return BankError(f"bank {path} cannot be written: {error.strerror}", hint=hint)
