"""The four histories that are plotted: latency, tokens, placement and sensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from k3ctl.client.hop_history import counted_in_frames, hop_charts
from k3ctl.client.map_name import map_name
from k3ctl.client.records import MapTurn, Records
from k3ctl.client.sensor_history import sensor_charts
from k3ctl.client.series import Chart, History, Mark, Timeline, joined_provenance
from k3ctl.client.throughput import throughput
from k3d.errors import ConfigError, NotFound
from k3d.store.frame import Frame

MOST_POINTS = 300

DEFINITIONS = {
    "latency": "a hop is from dispatch to partial; over longer stretches p50 is the mean of their "
    "medians and p99 the largest of theirs, an upper bound",
    "tokens": "throughput is all tokens of a point over its length, idle time included",
    "placement": "hit share is the share of all experts chosen that the tier served",
    "sensors": "each node's own sensors, temperature of the hottest; a gap is a sensor that could "
    "not be read",
}


def latency(records: Records, node: str | None, tier: str | None) -> History:
    """Time between tokens, and hops by tier, by the spark or of one tier."""
    width_s = records.width_s(MOST_POINTS)
    charts: list[Chart] = []
    if node is None and tier is None:
        charts.append(
            _chart("token", "time between two tokens of a lane", "us", records, {
                "p50": lambda frame: frame.token_p50_us,
                "p99": lambda frame: frame.token_p99_us,
            })
        )  # fmt: skip
    charts += hop_charts(records, width_s, node, tier)
    bucket_s = None if node is not None or counted_in_frames(records) else width_s
    return _history("latency", records, charts, bucket_s, _simulated_tiers(records))


def tokens(records: Records, node: str | None, tier: str | None) -> History:
    """Tokens a second, requests and acceptance of the pod."""
    _only_the_pod("tokens", node, tier)
    width_s, rates = throughput(records)
    charts = [
        Chart("tokens", "throughput", "tokens/s", rates),
        _chart("requests", "requests", "requests", records, {
            "running": lambda frame: float(frame.running),
            "waiting": lambda frame: float(frame.waiting),
        }),
        _chart("acceptance", "acceptance length", "tokens/round", records, {
            "acceptance": lambda frame: frame.acceptance_length,
        }),
    ]  # fmt: skip
    return _history("tokens", records, charts, width_s, _simulated_tiers(records))


def placement(records: Records, node: str | None, tier: str | None) -> History:
    """Which tier served the experts that rows chose, how many it holds, how busy it was."""
    if node is not None:
        raise ConfigError("a placement map is the pod's, not one node's", hint="drop --node")
    names = _tiers(records, tier)

    def of(name: str, figure: str) -> Callable[[Frame], float | None]:
        def read(frame: Frame) -> float | None:
            value = next((getattr(t, figure) for t in frame.tiers if t.name == name), None)
            return 100.0 * value if value is not None and figure != "experts" else value

        return read

    charts = [
        _chart(key, title, unit, records, {name: of(name, figure) for name in names})
        for key, title, unit, figure in (
            ("hit_share", "experts served by tier", "% of those chosen", "hit_share"),
            ("busy_share", "busy by tier", "% of the time", "busy_share"),
            ("experts", "held by tier", "experts", "experts"),
        )
    ]
    return _history("placement", records, charts, None, _simulated_tiers(records))


def sensors(records: Records, node: str | None, tier: str | None) -> History:
    """Watts, temperature, clock and load of every node, or of one and its accelerators."""
    if tier is not None:
        raise ConfigError("sensors are of nodes, not of tiers", hint="use --node instead of --tier")
    simulated = _simulated_sensors(records)
    return _history("sensors", records, sensor_charts(records, node), None, simulated)


HISTORIES: dict[str, Callable[[Records, str | None, str | None], History]] = {
    "latency": latency,
    "tokens": tokens,
    "placement": placement,
    "sensors": sensors,
}


def _history(
    what: str,
    records: Records,
    charts: list[Chart],
    bucket_s: int | None,
    simulated: tuple[str, ...],
) -> History:
    return History(
        what=what,
        pod=records.pod,
        span=records.shown,
        asked=records.span,
        charts=tuple(charts),
        marks=tuple(_mark(turn) for turn in records.turns),
        bucket_s=bucket_s,
        provenance=joined_provenance(charts),
        definition=DEFINITIONS[what],
        simulated=simulated,
    )


def _mark(turn: MapTurn) -> Mark:
    return Mark(turn.at_s, f"epoch {turn.epoch}, {map_name(turn.policy)}")


def _simulated_tiers(records: Records) -> tuple[str, ...]:
    newest = records.frames[-1:]
    return tuple(tier.name for frame in newest for tier in frame.tiers if tier.simulated)


def _simulated_sensors(records: Records) -> tuple[str, ...]:
    return tuple(
        node.name
        for frame in records.frames[-1:]
        for node in frame.nodes
        if node.sensors is not None and node.sensors.simulated
    )


def _chart(
    key: str,
    title: str,
    unit: str,
    records: Records,
    figures: dict[str, Callable[[Frame], Any]],
) -> Chart:
    said = records.frames[-1].provenance if records.frames else "measured"
    timeline = Timeline(records.frames)
    series = tuple(
        timeline.series(name, [of(frame) for frame in records.frames], said)
        for name, of in figures.items()
    )
    return Chart(key, title, unit, series)


def _tiers(records: Records, only: str | None) -> list[str]:
    """Names of the tiers that frames have, in the order of the newest frame."""
    names = list(
        dict.fromkeys(tier.name for frame in reversed(records.frames) for tier in frame.tiers)
    )
    if only is None:
        return names
    if only not in names:
        raise NotFound(
            f"no tier {only!r} was recorded then", hint=f"tiers: {', '.join(names) or 'none'}"
        )
    return [only]


def _only_the_pod(what: str, node: str | None, tier: str | None) -> None:
    if node is not None or tier is not None:
        raise ConfigError(f"{what} are the whole pod's", hint="drop --node and --tier")
