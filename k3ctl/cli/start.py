"""Where k3ctl starts.

Click and all verbs take 50 ms to import, which is most of what a cron job or a prompt waits for
when it asks how the pod is. That question in its plain form is answered before them; any other,
and any trouble, is the whole program's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

FLAGS = ("--json", "-q", "--quiet")


def main() -> None:
    """The console script."""
    try:
        code = cold_status(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
    if code is None:
        from k3ctl.cli.main import main as whole

        whole()
    sys.exit(code)


def cold_status(arguments: Sequence[str]) -> int | None:
    """Answer `status --json` of a home; the exit code, or None when this is not plainly that."""
    home, rest = home_flag(arguments)
    words = [word for word in rest if word not in FLAGS]
    if words not in (["status"], ["pod", "status"]) or "--json" not in rest:
        return None
    from k3ctl.cli.output import ClosedPipe, Output, leave_streams_quietly
    from k3ctl.client.config_files import home_in_force
    from k3ctl.client.quick_get import quick_status
    from k3d.errors import HealthCode, K3Error

    try:
        os.fstat(1)
        document = quick_status(home_in_force(home))
        if document is None:
            return None
        Output("json").document("k3ctl.pod-status/1", document)
    except ClosedPipe:
        leave_streams_quietly()
        return 0
    except (K3Error, OSError):
        return None
    return int(HealthCode.of(str(document.get("state"))))


def home_flag(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of one --home DIR or --home=DIR, and the other arguments."""
    rest = list(arguments)
    for position, word in enumerate(rest):
        if word == "--home" and position + 1 < len(rest):
            return rest[position + 1], rest[:position] + rest[position + 2 :]
        if word.startswith("--home="):
            return word.partition("=")[2], rest[:position] + rest[position + 1 :]
    return None, rest
