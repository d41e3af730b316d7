"""Alert policies: what they watch, that nothing flaps, and that bad files are one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3d.errors import ConfigError, NotFound
from k3d.placement.alert_policy import AlertPolicy, drift_limits, load_alerts
from k3d.placement.alert_readings import Reading, readings
from k3d.placement.alert_states import AlertStates
from k3d.placement.drift import Drift, Verdict
from k3d.placement.drift_limits import DriftLimits
from k3d.store.frame import Accelerator, Frame, NodeFrame, Sensors, State, TierFrame

HEAD = 'schema = "k3-alerts/1"\n'
RULES = """
[[rule]]
watch = "node-down"
severity = "alert"
for_s = 10
clear_s = 5
[[rule]]
watch = "temperature"
above_c = 80
clear_c = 70
[[rule]]
watch = "disk"
below_bytes = 100
clear_bytes = 200
node = "station"
[[rule]]
watch = "tier-p99"
tier = "spark"
above_us = 1000
clear_us = 800
for_s = 2
[[rule]]
watch = "drift"
severity = "note"
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "policy.toml"
    path.write_text(HEAD + text)
    return str(path)


@pytest.fixture
def policy(tmp_path: Path) -> AlertPolicy:
    return load_alerts(written(tmp_path, RULES))


def frame(
    *, spark: State = "healthy", heat_c: float | None = None, free: int | None = None,
    p99_us: float | None = None,
) -> Frame:  # fmt: skip
    gpu = Accelerator(name="gpu", temperature_c=heat_c)
    sensors = Sensors(age_s=0.1, temperature_c=20.0, disk_free_bytes=free, accelerators=(gpu,))
    return Frame(
        at_ms=1, sequence=1, interval_s=1.0, pod="tiny", state="healthy",
        nodes=(
            NodeFrame(name="station", role="station", state="healthy", sensors=sensors),
            NodeFrame(name="spark-1", role="spark", state=spark, reason="it ended"),
        ),
        tiers=(TierFrame(name="spark", experts=1, slots=2, hop_p99_us=p99_us),),
    )  # fmt: skip


def drifted(verdict: Verdict) -> Drift:
    return Drift(verdict, 1000, 1000, (), None, None, None, DriftLimits())


def changed(states: AlertStates, now_s: float, found: list[Reading]) -> list[tuple[str, bool]]:
    return [(each.reading.subject, each.raised) for each in states.step(now_s, found)]


def test_shipped_policies_can_be_read() -> None:
    for name in ("default", "strict"):
        assert load_alerts(name).rules
    assert drift_limits("default") == DriftLimits()


def test_every_rule_reads_its_figure(policy: AlertPolicy) -> None:
    quiet = readings(policy, frame(heat_c=30.0, free=10**6, p99_us=10.0), drifted("none"))
    assert {reading.watch for reading in quiet} == {
        "node-down", "temperature", "disk", "tier-p99", "drift"
    }  # fmt: skip
    assert all(reading.good and not reading.bad for reading in quiet)
    bad = frame(spark="down", heat_c=81.0, free=99, p99_us=1001.0)
    loud = {reading.sentence for reading in readings(policy, bad, drifted("drift")) if reading.bad}
    assert loud == {
        "spark-1 is down: it ended",
        "station is at 81 C, above 80 C",
        "station has 0.00 GiB of disk left, less than 0.00 GiB",
        "hops to spark take 1.00 ms (p99), more than 1.00 ms",
        "the traffic has drifted from what the map in force was planned from",
    }
    between = readings(policy, frame(heat_c=75.0, free=150, p99_us=900.0), drifted("too-few"))
    assert not any(each.bad or each.good for each in between if each.watch != "node-down"
                   and each.subject != "spark-1")  # fmt: skip


def test_what_is_not_known_is_no_reading(policy: AlertPolicy) -> None:
    assert readings(policy, None, None) == []
    unknown = readings(policy, frame(), None)
    assert {reading.watch for reading in unknown} == {"node-down", "temperature"}
    states = AlertStates()
    hot = readings(policy, frame(heat_c=99.0), None)
    assert changed(states, 0.0, hot) == [("station", True)]
    assert changed(states, 9.0, []) == []
    assert [each.subject for each in states.raised] == ["station"], "not read is not over"


def test_what_goes_to_and_fro_is_told_once(policy: AlertPolicy) -> None:
    states = AlertStates()
    told = []
    for second in range(60):  # down 3 s, up 3 s
        state: State = "down" if second // 3 % 2 else "healthy"
        told += changed(states, second, readings(policy, frame(spark=state), None))
    assert told == [], "never down for 10 s"
    for second in range(60, 75):
        told += changed(states, second, readings(policy, frame(spark="down"), None))
    assert told == [("spark-1", True)]
    for second in range(75, 135):
        state = "down" if second // 3 % 2 else "healthy"
        told += changed(states, second, readings(policy, frame(spark=state), None))
    assert told == [("spark-1", True)], "never up for 5 s"
    for second in range(135, 145):
        told += changed(states, second, readings(policy, frame(), None))
    assert told == [("spark-1", True), ("spark-1", False)]


def test_between_the_levels_nothing_changes(policy: AlertPolicy) -> None:
    states = AlertStates()
    told = []
    for second, heat_c in enumerate((79.0, 81.0, 75.0, 81.0, 75.0, 71.0, 70.0, 75.0, 79.0)):
        told += changed(states, second, readings(policy, frame(heat_c=heat_c), None))
    assert told == [("station", True), ("station", False)]


def test_the_gravest_comes_first(policy: AlertPolicy) -> None:
    states = AlertStates()
    bad = frame(spark="down", heat_c=99.0)
    states.step(0.0, readings(policy, bad, drifted("drift")))
    assert [each.watch for each in states.raised] == ["temperature", "drift"]
    states.step(10.0, readings(policy, bad, drifted("drift")))
    assert [each.watch for each in states.raised] == ["node-down", "temperature", "drift"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("every = 3", "unknown field `every`"),
        ("every_s = 0", "every_s: Expected `float` >= 1.0"),
        ("[drift]\noverlap = 35", "drift.overlap: Expected `float` <= 1.0"),
        ("[drift]\nwindow_s = nan", "drift.window_s: Expected `float` >= 1.0"),
        ('[[rule]]\nwatch = "moon"', "Invalid value 'moon'"),
        ("[[rule]]\nabove_c = 3", "missing required field `watch`"),
        ('[[rule]]\nwatch = "disk"', "missing required field `below_bytes`"),
        ('[[rule]]\nwatch = "temperature"\nabove_c = 80\nclear_c = 90', "at a level that raises"),
        ('[[rule]]\nwatch = "disk"\nbelow_bytes = 9\nclear_bytes = 8', "at a level that raises"),
        ('[[rule]]\nwatch = "tier-p99"\ntier = "gpu"\nabove_us = 1', "Invalid enum value 'gpu'"),
        ('[[rule]]\nwatch = "drift"\nabove_c = 3', "unknown field `above_c`"),
        ('[[rule]]\nwatch = "drift"\n[[rule]]\nwatch = "drift"', "a second rule of severity"),
        ('[[rule]]\nwatch = "drift"\nseverity = "loud"', "Invalid enum value 'loud'"),
        ("rule = 3", "Expected `array`"),
        ("[[rule", "not TOML"),
        ('note = "\\u0007"', "control character"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_alerts(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert sentence in caught.value.message
    assert "\n" not in caught.value.message


def test_no_such_policy_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no alert policy named 'loud'") as caught:
        load_alerts("loud")
    assert "default" in (caught.value.hint or "")
    with pytest.raises(NotFound):
        load_alerts(str(tmp_path / "no.toml"))
