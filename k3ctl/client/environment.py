"""What a measurement was made on, as receipts keep it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from k3d import __version__


def environment_of(status: Mapping[str, Any]) -> dict[str, Any]:
    """This machine, how busy it is, and the pod of a Station's /status."""
    return {
        "version": __version__,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1m": round(os.getloadavg()[0], 2),
        "pod": status["pod"],
        "model": status["model"],
        "transport": status["transport"],
        "placement": status["placement"],
        "sparks": sum(node["role"] == "spark" for node in status["nodes"]),
        "simulated": any(node["simulated"] for node in status["nodes"]),
    }
