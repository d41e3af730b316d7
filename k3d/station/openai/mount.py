"""The API of an assembled Station."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from prometheus_client.registry import Collector

from k3d.station.openai.served import Served
from k3d.station.openai.server import ApiServer
from k3d.station.status import StationView


def mount_api(
    listener: socket.socket, view: StationView, home: Path, metrics: Collector
) -> ApiServer:
    """A server of the Station's model on the address that its description gives; not started yet.
    `metrics` are those of the pod.

    Raises ConfigError when the address needs keys and the home has none.
    """
    station, engine = view.station, view.station.engine

    def state() -> tuple[str, str | None]:
        health = view.health()
        return health["state"], health["reason"]

    served = Served(
        model=station.model_name,
        digest=station.model_digest,
        created=int(time.time()),
        chat=station.chat,
        room=engine.most_positions,
        vocab_size=engine.model.config.vocab_size,
        lanes=engine.limits.lanes,
        queue=engine.limits.queue,
        engine=view.scheduler,
        state=state,
        synthetic_acceptance=engine.synthetic_acceptance,
        metrics=metrics,
    )
    return ApiServer(listener, station.pod.station.api_host, served, home)
