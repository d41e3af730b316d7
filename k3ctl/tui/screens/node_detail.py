"""All that is known of one node."""

from __future__ import annotations

from k3ctl.tui.figures import bar, celsius, curve, duration_us, share, size, watts
from k3ctl.tui.ink import BLANK, Line, Piece, Span, heading, line, pad, quiet, strong, wrap
from k3ctl.tui.marks import Marks
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.trail import Trail
from k3d.store.frame import Accelerator, NodeFrame, Sensors

LABEL = 14


def node_lines(
    node: NodeFrame, snapshot: Snapshot, trail: Trail, marks: Marks, width: int
) -> list[Line]:
    """Sections of a node's page, top to bottom."""
    lines = [line(strong(node.name), "  ", marks.state(node.state), quiet(f"  {node.role}"))]
    if node.reason:
        lines += wrap(node.reason, width, "warn")
    freshness, age_s = snapshot.node_freshness(node), snapshot.node_age_s(node)
    if freshness != "fresh":
        old = "an unknown time" if age_s is None else f"{age_s:.0f} s"
        lines.append(line(Span(f"? no progress seen for {old}", "warn")))
    lines += [BLANK, heading("Daemon", width, rule=marks.rule)]
    slots = "-" if node.slots_used is None else f"{node.slots_used:,} of {node.slots or 0:,} used"
    lines += [
        _field("version", node.version or "-", quiet(f"  pid {node.pid or '-'}")),
        _field("slice", node.slice or "-"),
        _field("slots", slots),
        _field("memory", size(node.rss_bytes)),
        _field("progress", "-" if age_s is None else f"{age_s:.1f} s ago"),
    ]
    lines += [BLANK, *_link(node, trail, marks, width)]
    if node.sensors is not None:
        lines += [BLANK, *_sensors(node, node.sensors, trail, marks, width)]
    else:
        lines += [BLANK, heading("Sensors", width, rule=marks.rule)]
        lines += wrap("none were reported by this node", width, "quiet")
    lines += [BLANK, heading("Caps", width, rule=marks.rule)]
    lines += wrap("Setting power and clock caps comes with node operations.", width, "quiet")
    if node.simulated:
        lines += [BLANK, *wrap("This node is simulated: times are of a process.", width, "quiet")]
    return lines


def _field(label: str, *pieces: Piece) -> Line:
    return line(pad((quiet(label),), LABEL), *pieces)


def _link(node: NodeFrame, trail: Trail, marks: Marks, width: int) -> list[Line]:
    lines = [heading("Link", width, rule=marks.rule)]
    room = max(0, width - LABEL - 12)
    if node.link is None and node.role == "station":
        lines.append(_field("link", quiet("the Station needs none")))
    else:
        lines.append(_field("link", node.link or "-"))
        lines.append(_field("round trip", duration_us(node.rtt_us)))
    for label, value, figure in (
        ("hop p50", node.hop_p50_us, "hop_p50_us"),
        ("hop p99", node.hop_p99_us, "hop_p99_us"),
    ):
        values = trail.node(node.name, figure, room)
        lines.append(_field(label, pad(line(duration_us(value)), 12), curve(values, room, marks)))
    lines.append(_field("computing", duration_us(node.compute_us), quiet(" a dispatch, mean")))
    return lines


def _sensors(
    node: NodeFrame, sensors: Sensors, trail: Trail, marks: Marks, width: int
) -> list[Line]:
    label = "simulated" if sensors.simulated else "measured"
    note = line(quiet(f"{label}, {sensors.age_s:.0f} s ago"))
    lines = [heading("Sensors", width, note, marks.rule)]
    room = max(0, width - LABEL - 12)
    for name, text, figure in (
        ("power", line(watts(sensors.power_w)), "power_w"),
        ("temperature", celsius(sensors.temperature_c, marks), "temperature_c"),
        (
            "clock",
            line("-" if sensors.clock_mhz is None else f"{sensors.clock_mhz:,.0f} MHz"),
            "clock_mhz",
        ),
    ):
        values = trail.node(node.name, figure, room)
        lines.append(_field(name, pad(text, 12), curve(values, room, marks)))
    lines += [
        _field("cores busy", share(sensors.busy_share)),
        _memory("memory", sensors.memory_used_bytes, sensors.memory_bytes, marks, width),
        _field("swap used", size(sensors.swap_used_bytes)),
        _field("disk free", size(sensors.disk_free_bytes)),
    ]
    for number, each in enumerate(sensors.accelerators):
        lines += [BLANK, *_accelerator(number, each, marks, width)]
    if sensors.missing:
        lines += [BLANK, heading("Not available", width, rule=marks.rule)]
        for name, why in sorted(sensors.missing.items()):
            lines += wrap(f"{name}: {why}", width, "quiet", indent=2)
    return lines


def _accelerator(number: int, each: Accelerator, marks: Marks, width: int) -> list[Line]:
    power = watts(each.power_w, each.power_cap_w)
    clock = "-" if each.clock_mhz is None else f"{each.clock_mhz:,.0f} MHz"
    lines = [
        heading(f"Accelerator {number}: {each.name}", width, rule=marks.rule),
        _field("power", power),
        _field("temperature", celsius(each.temperature_c, marks)),
        _field("clock", clock),
        _field("busy", share(each.busy_share)),
        _memory("memory", each.memory_used_bytes, each.memory_bytes, marks, width),
    ]
    if each.throttled:
        held = ", ".join(each.throttled)
        lines.append(_field("held back by", Span(f"{marks.states['warning']} {held}", "warn")))
    return lines


def _memory(label: str, used: int | None, whole: int | None, marks: Marks, width: int) -> Line:
    if used is None or not whole:
        return _field(label, size(used))
    room = max(0, min(30, width - LABEL - 26))
    return _field(label, bar(used / whole, room, marks), f" {size(used)} of {size(whole)}")
