"""The Station daemon: takes the store's lock, assembles the pod, serves until it is told to end."""

from __future__ import annotations

import logging
from argparse import Namespace
from dataclasses import replace
from time import monotonic

import msgspec

from k3d.errors import ExitCode
from k3d.node.http import NodeServer, bind
from k3d.node.log import log_to_stderr
from k3d.node.node_sensors import sensors_of
from k3d.placement.alert_policy import load_alerts
from k3d.placement.pod import load_pod
from k3d.staging.progress_file import bank_work
from k3d.station.alerts import Alerts
from k3d.station.api import station_routes
from k3d.station.assembly import Station, assemble
from k3d.station.drift_marks import UseMarks
from k3d.station.drift_routes import drift_routes
from k3d.station.events_routes import events_routes
from k3d.station.frame_recorder import FrameRecorder
from k3d.station.frame_routes import frame_routes
from k3d.station.frame_taker import FrameTaker
from k3d.station.lanes_routes import lanes_routes
from k3d.station.map_in_force import map_to_serve
from k3d.station.openai.keys import KeyFile
from k3d.station.openai.mount import mount_api
from k3d.station.openai.server import check_exposure
from k3d.station.options import station_options
from k3d.station.pod_metrics import PodMetrics
from k3d.station.recorder import Recorder
from k3d.station.replacement import Replacement
from k3d.station.scheduler import Scheduler
from k3d.station.status import StationView
from k3d.station.swap_reconciler import SwapReconciler
from k3d.station.swap_routes import swap_routes
from k3d.station.trace_recorder import TraceRecorder
from k3d.station.trace_routes import trace_routes
from k3d.store.home import RunFile, http_token, read_secret, resolve_home
from k3d.store.state import StateStore
from k3d.store.swap_totals import swap_totals
from k3d.store.swaps import SwapReader
from k3d.store.telemetry import TelemetryStore

INIT_S = 2.0
"""How long a `k3ctl init` that happens to run may keep the store's lock."""

log = logging.getLogger(__name__)


def run_station(options: Namespace) -> int:
    """Run until SIGTERM. Raises K3Error when it cannot start."""
    home = resolve_home(options.home)
    secret = read_secret(home)
    pod = load_pod(options.pod, home)
    policy = load_alerts(pod.alerts, home)
    node = pod.station
    log_to_stderr(node.name)
    http = bind(node.host, node.http_port)
    check_exposure(node.api_host, KeyFile(home))
    api_listener = bind(node.api_host, node.api_port)
    store = StateStore.open_as_writer(
        home,
        holder="k3d station",
        wait_s=INIT_S,
        hint="one Station serves a home: see k3ctl pod status, or use another --home",
    )
    try:
        chosen = station_options(options, pod)
        station = assemble(
            pod,
            home,
            secret,
            chosen,
            lambda planned: map_to_serve(store, planned, chosen.placement, pod.slots),
            SwapReader(store).sparks_of,
            SwapReader(store).name_of,
        )
        store.record_pod(pod.name, pod.digest, msgspec.to_builtins(pod))
        scheduler = Scheduler(station.engine)
        swaps = SwapReconciler(station, scheduler, store, home)
        traces = TraceRecorder(station, scheduler)
        replacement = Replacement(station, swaps, store)
        view = StationView(station, scheduler, monotonic(), swaps=swaps, replacement=replacement)
        pod_metrics = PodMetrics(lambda: frames.latest, lambda: swap_totals(store))
        api = mount_api(api_listener, view, home, pod_metrics)
        view = replace(view, api_url=api.url)
        sensors = sensors_of(node, home)
        sensors.start()
        frames = FrameTaker(view, sensors.latest)
        marks = UseMarks(
            station.use, station.shape.top_k, policy.drift.window_s, station.placement.epoch
        )
        alerts = Alerts(
            policy, store, marks, lambda: station.placement, lambda: frames.latest,
            replacement.attention,
        )  # fmt: skip
        frames.attention.append(alerts.current)
        frames.bank_work.append(lambda: bank_work(home))
        scheduler.start()
        swaps.start()
        frames.start()
        replacement.start()
        alerts.start()
        telemetry = TelemetryStore.open_as_writer(home)
        recorder = Recorder(telemetry, station.hops, scheduler)
        recorder.start()
        frame_recorder = FrameRecorder(telemetry, store, station.use)
        frames.told.append(frame_recorder.tell)
        frame_recorder.start()

        def end_answers() -> None:
            api.drain()
            swaps.halt()
            traces.close()
            scheduler.close()

        routes = [
            *station_routes(view, store),
            *frame_routes(station, frames),
            *lanes_routes(frames.lanes, scheduler),
            *events_routes(store),
            *swap_routes(swaps, replacement),
            *drift_routes(alerts, station.shape.layers),
            *trace_routes(traces),
        ]
        server = NodeServer(http, http_token(secret), view.health, routes, end_answers)
        run = RunFile.of_this_process(
            name=node.name,
            role="station",
            pod=pod.name,
            http_host=node.host,
            http_port=server.port,
        )
        api.start()
        run.write(home)
        log.info("station serves %s on port %d", station.model_name, server.port)
        log.info("its API is %s", api.url)
        store.record_event("pod", "the Station started", node=node.name)
        try:
            server.run()
        finally:
            run.remove(home)
            api.stop()
            alerts.close()
            replacement.close()
            frames.close()
            sensors.close()
            frame_recorder.close()
            _end(station, scheduler, recorder, swaps)
            store.record_event("pod", "the Station ended", node=node.name)
    finally:
        store.close()
        http.close()
        api_listener.close()
    return int(ExitCode.OK)


def _end(station: Station, scheduler: Scheduler, recorder: Recorder, swaps: SwapReconciler) -> None:
    swaps.halt()
    scheduler.close()
    swaps.close()
    recorder.close()
    station.membership.close()
    station.bank.close()
