"""The spark daemon: the fabric loop in one thread, health over HTTP in another."""

from __future__ import annotations

import logging
import os
import threading
from argparse import Namespace
from collections.abc import Callable
from time import monotonic
from typing import Any

import psutil

from k3d import __version__
from k3d.errors import ExitCode
from k3d.fabric.facts import Facts
from k3d.fabric.frame_buffers import DEFAULT_CAPACITY_BYTES
from k3d.fabric.transports import listen
from k3d.node.http import NodeServer, bind
from k3d.node.log import log_to_stderr
from k3d.node.node_sensors import sensors_of
from k3d.node.spark import SparkServer, Worker
from k3d.placement.pod import Node, PodDescription, load_pod
from k3d.store.home import RunFile, http_token, read_secret, resolve_home

IDLE_STALLED_S = 3.0
"""An idle loop ticks every half second."""
BUSY_STALLED_S = 30.0
"""The longest dispatch, a whole prompt chunk, is done in less."""

log = logging.getLogger(__name__)


def run_spark(options: Namespace, worker_factory: Callable[[Facts], Worker]) -> int:
    """Run until SIGTERM. Raises K3Error when it cannot start."""
    home = resolve_home(options.home)
    secret = read_secret(home)
    pod = load_pod(options.pod, home)
    node = pod.node(options.name)
    transport = options.transport or pod.transport
    log_to_stderr(node.name)
    http = bind(node.host, node.http_port)
    address = f"{node.host}:{node.fabric_port}" if transport == "tcp" else ""
    listener = listen(transport, address)
    sensors = sensors_of(node, home)
    sensors.start()
    facts = spark_facts(pod, node, options.model_digest)
    spark = SparkServer(worker_factory, listener, secret, facts, sensors.latest)
    loop = threading.Thread(target=_run_loop, args=(spark,), name="fabric", daemon=True)
    started = monotonic()
    server = NodeServer(http, http_token(secret), lambda: _health(node, spark, loop, started))
    run = RunFile.of_this_process(
        name=node.name,
        role="spark",
        pod=pod.name,
        http_host=node.host,
        http_port=server.port,
        fabric_address=listener.address,
    )
    loop.start()
    run.write(home)
    log.info("spark is listening on %s", listener.address)
    try:
        server.run()
    finally:
        spark.stop()
        loop.join(timeout=3.0)
        sensors.close()
        listener.close()
        run.remove(home)
    return int(ExitCode.OK)


def spark_facts(pod: PodDescription, node: Node, model_digest: str | None) -> Facts:
    """What a spark knows of itself before a Station calls."""
    return Facts(
        role="spark",
        node=node.name,
        version=__version__,
        capacity_bytes=DEFAULT_CAPACITY_BYTES,
        model_digest=model_digest,
        slice_index=pod.slice_index(node.name),
        slice_count=pod.slice_count,
        slots=pod.slots["spark"],
    )


def _run_loop(spark: SparkServer) -> None:
    """A bug in the loop ends the process: a spark that cannot serve must not look alive."""
    try:
        spark.run()
    except Exception:
        log.exception("the fabric loop failed; the spark ends")
        os._exit(int(ExitCode.FAILED))


def _health(
    node: Node, spark: SparkServer, loop: threading.Thread, started: float
) -> dict[str, Any]:
    """Health from forward progress: how long ago the fabric loop last did something."""
    now = monotonic()
    progress = spark.progress()
    age = now - progress.tick_s
    if not loop.is_alive():
        state, reason = "down", "the fabric loop has ended"
    elif age > (IDLE_STALLED_S if progress.busy_since_s is None else BUSY_STALLED_S):
        state, reason = "degraded", f"the fabric loop has done nothing for {age:.1f} s"
    elif progress.peer is None:
        state, reason = "degraded", "no Station is connected"
    elif progress.epoch is None:
        state, reason = "degraded", "its slices are not loaded yet"
    else:
        state, reason = "healthy", None
    return {
        "schema": "k3d.health/1",
        "node": node.name,
        "role": "spark",
        "state": state,
        "reason": reason,
        "version": __version__,
        "uptime_s": round(now - started, 3),
        "progress_age_s": round(age, 3),
        "pid": os.getpid(),
        "rss_bytes": psutil.Process().memory_info().rss,
        "peer": progress.peer,
        "epoch": progress.epoch,
        "loaded": progress.loaded,
        "slots": progress.slots,
        "served_dispatches": progress.served_dispatches,
        "served_rows": progress.served_rows,
        "compute_us": progress.compute_ns // 1000,
        "last_error": progress.last_error,
        "simulated": node.simulated,
    }
