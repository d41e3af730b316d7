"""numpy, which traces and planning need and k3ctl's base install does not bring."""

from __future__ import annotations

import importlib.util

from k3d.errors import K3Error


def require_numpy() -> None:
    """Raises K3Error saying what to install when numpy is not there."""
    if importlib.util.find_spec("numpy") is None:
        raise K3Error(
            "traces and planning need numpy, and it is not installed",
            hint="pip install 'k3pod[plan]'",
        )
