"""What is constant over a response and its stream: id, time, model, and any stamp."""

from __future__ import annotations

import secrets
import time
from typing import Any

from msgspec import UNSET

from k3d.station.openai.served import Served


def new_envelope(prefix: str, served: Served) -> dict[str, Any]:
    """Fields of `responses.Envelope`; the id begins with `prefix`."""
    acceptance = served.synthetic_acceptance
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": served.model,
        "system_fingerprint": served.fingerprint,
        "k3_synthetic_acceptance": UNSET if acceptance is None else acceptance,
    }
