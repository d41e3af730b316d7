"""k3ctl health and pod status: states from progress, exit codes, tables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from k3ctl.client.daemon import Daemon
from k3ctl.client.health import worst
from k3d.store.home import RunFile, create_secret, read_run_file, secret_path
from tests.ctl.conftest import K3ctl
from tests.ctl.fake_daemons import FakeDaemon, write_script


def test_healthy(k3ctl: K3ctl, station: FakeDaemon, spark: FakeDaemon) -> None:
    ran = k3ctl("health", "--json")
    assert ran.code == 0
    assert ran.document["schema"] == "k3ctl.health/1"
    assert ran.document["state"] == "healthy"
    assert [node["node"] for node in ran.document["nodes"]] == ["station", "spark-1"]
    assert k3ctl("health", "spark-1").code == 0


STATES = [
    ({"state": "degraded", "reason": "refilling"}, 1, "refilling"),
    ({"state": "down", "reason": "loading"}, 3, "loading"),
    ({"state": "unknown"}, 4, ""),
    ({"state": "splendid"}, 4, ""),
    ({"progress_age_s": None}, 4, "does not say when"),
    ({"progress_age_s": 6.0}, 1, "no progress for 6 s"),
    ({"progress_age_s": 61.0}, 3, "stalled: no progress for 61 s"),
    ({"state": "down", "reason": "loading", "progress_age_s": 6.0}, 3, "loading"),
]


@pytest.mark.parametrize(("answer", "code", "reason"), STATES)
def test_a_port_that_answers_is_not_enough(
    k3ctl: K3ctl, home: Path, station: FakeDaemon, answer: dict, code: int, reason: str
) -> None:
    write_script(home, "station", health=answer)
    ran = k3ctl("health")
    assert ran.code == code
    assert reason in ran.out


def test_the_worst_of_all_counts(k3ctl: K3ctl, home: Path, station: FakeDaemon,
                                 spark: FakeDaemon) -> None:  # fmt: skip
    write_script(home, "spark-1", health={"state": "degraded", "reason": "refilling"})
    assert k3ctl("health").code == 1
    assert k3ctl("health", "station").code == 0
    write_script(home, "station", health={"state": "down"})
    assert k3ctl("health").code == 3


def test_states_are_ordered() -> None:
    assert worst(["healthy", "degraded"]) == "degraded"
    assert worst(["degraded", "unknown"]) == "unknown"
    assert worst(["unknown", "down", "healthy"]) == "down"
    assert worst([]) == "unknown"


def test_the_station_may_know_worse_of_a_spark(
    k3ctl: K3ctl, home: Path, station: FakeDaemon, spark: FakeDaemon
) -> None:
    nodes = station.status()["nodes"]
    nodes[1] |= {"state": "degraded", "reason": "it refused the handshake"}
    write_script(home, "station", status={"nodes": nodes})
    ran = k3ctl("health", "spark-1")
    assert ran.code == 1
    assert "the Station says: it refused" in ran.out


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ({"health_status": 500}, 4),
        ({"health": {"schema": "other/1"}}, 4),
        ({"health_status": 401}, 4),
    ],
)
def test_an_answer_that_means_nothing_is_unknown(
    k3ctl: K3ctl, home: Path, station: FakeDaemon, script: dict, code: int
) -> None:
    write_script(home, "station", **script)
    assert k3ctl("health").code == code


def test_another_secret_is_unknown_and_says_so(
    k3ctl: K3ctl, home: Path, station: FakeDaemon
) -> None:
    secret_path(home).unlink()
    create_secret(home)
    ran = k3ctl("health")
    assert ran.code == 4
    assert "does not accept the secret" in k3ctl("pod", "status").out


def test_silence_is_down(k3ctl: K3ctl, home: Path, station: FakeDaemon,
                         monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr("k3ctl.client.health.ANSWER_S", 0.2)
    write_script(home, "station", silent=True)
    ran = k3ctl("health")
    assert ran.code == 3
    assert "has not answered" in ran.out


def test_processes_that_ended_or_were_stopped_are_down(k3ctl: K3ctl, home: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        run = RunFile.of_this_process(
            name="spark-1", role="spark", pod="p", http_host="127.0.0.1", http_port=1
        )
        from k3d.store.run_file import process_start_ticks

        ticks = process_start_ticks(child.pid)
        assert ticks is not None
        msgspec.structs.replace(run, pid=child.pid, start_time_ticks=ticks).write(home)
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert "is stopped" in k3ctl("health").out
        os.kill(child.pid, signal.SIGCONT)
        assert "cannot be reached" in k3ctl("health").out
        child.kill()
        child.wait()
        ran = k3ctl("health")
    assert ran.code == 3
    assert "has ended" in ran.out


def test_no_pod_is_down_and_no_node_is_not_found(k3ctl: K3ctl, station: FakeDaemon) -> None:
    assert k3ctl("health", "spark-9").code == 10
    station.run_file.remove(station.home)
    ran = k3ctl("health", "--json")
    assert ran.code == 3
    assert ran.document["nodes"] == []
    assert "no pod runs" in ran.document["reason"]


def test_status_shows_nodes_tiers_hops_and_rates(k3ctl: K3ctl, station: FakeDaemon) -> None:
    ran = k3ctl("pod", "status")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    for piece in ("k3-mini", "epoch 1", "spark-4", "3/4", "307/768", "391.0 MiB", "40.0 %",
                  "120 us", "480 us", "9,000", "decode 21.4", "3 finished", "measured",
                  "simulated tiers"):  # fmt: skip
        assert piece in ran.out


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("layer-balanced", "placement layer-balanced; transport"),
        ("contiguous", "placement contiguous, swapped in for layer-balanced; transport"),
        ("/home/me/hot.json", "placement hot.json, swapped in for layer-balanced; transport"),
    ],
)
def test_status_names_the_map_in_force(
    k3ctl: K3ctl, home: Path, station: FakeDaemon, name: str, shown: str
) -> None:
    write_script(home, "station", status={"placement": name, "policy": "layer-balanced"})
    assert shown in k3ctl("status").out


def test_status_as_json_is_the_stations(k3ctl: K3ctl, home: Path, station: FakeDaemon) -> None:
    document = k3ctl("pod", "status", "--json").document
    assert document["schema"] == "k3ctl.pod-status/1"
    assert document["home"] == str(home)
    assert document["tiers"] == station.status()["tiers"]
    assert document["provenance"] == "measured"


def test_figures_that_are_not_there_are_dashes(
    k3ctl: K3ctl, home: Path, station: FakeDaemon
) -> None:
    tiers = [{**tier, "hit_share": None, "hop_us": None} for tier in station.status()["tiers"]]
    nodes = [{**node, "rss_bytes": None, "progress_age_s": None, "slots_used": None}
             for node in station.status()["nodes"]]  # fmt: skip
    write_script(
        home, "station",
        status={"tiers": tiers, "nodes": nodes, "tokens_per_s": {"decode": None, "prompt": None}},
    )  # fmt: skip
    ran = k3ctl("pod", "status")
    assert ran.code == 0
    assert "decode -, prompt -" in ran.out
    assert " 0 us" not in ran.out


@pytest.mark.parametrize(("state", "code"), [("degraded", 1), ("down", 3), ("unknown", 4)])
def test_the_code_of_status_is_the_pods_state(
    k3ctl: K3ctl, home: Path, station: FakeDaemon, state: str, code: int
) -> None:
    long = "spark-2 was lost in the middle of a very long sentence that goes on " * 3
    write_script(home, "station", status={"state": state, "reason": long})
    ran = k3ctl("pod", "status")
    assert ran.code == code
    assert "spark-2 was lost" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_status_without_a_station_shows_its_sparks(k3ctl: K3ctl, spark: FakeDaemon) -> None:
    ran = k3ctl("pod", "status")
    assert ran.code == 3
    assert "no Station runs" in ran.out
    assert "spark-1" in ran.out
    document = k3ctl("pod", "status", "--json").document
    assert (document["state"], document["nodes"][0]["state"]) == ("down", "healthy")


def test_status_of_a_station_that_does_not_answer_is_its_health(
    k3ctl: K3ctl, home: Path, station: FakeDaemon, spark: FakeDaemon,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("k3ctl.client.health.ANSWER_S", 0.2)
    monkeypatch.setattr(Daemon.station_of.__func__, "__kwdefaults__", {"timeout_s": 0.2})
    write_script(home, "station", silent=True)
    ran = k3ctl("pod", "status", "--json")
    assert ran.code == 3
    assert ran.document["state"] == "down"
    states = {node["name"]: node["state"] for node in ran.document["nodes"]}
    assert states == {"station": "down", "spark-1": "healthy"}


def test_a_damaged_run_file_is_one_sentence(k3ctl: K3ctl, home: Path, station: FakeDaemon) -> None:
    assert read_run_file(home, "station") is not None
    (home / "run" / "station.json").write_text("{")
    for command in (["health"], ["pod", "status"], ["chat", "hello"]):
        ran = k3ctl(*command)
        assert "station.json cannot be read" in " ".join((ran.err + ran.out).split())
        assert "Traceback" not in ran.err
    station.run_file.write(home)


def test_a_damaged_file_of_another_node_hides_neither_the_station_nor_the_rest(
    k3ctl: K3ctl, home: Path, station: FakeDaemon, spark: FakeDaemon
) -> None:
    (home / "run" / "spark-2.json").write_text("{")
    assert k3ctl("pod", "status").code == 0
    assert k3ctl("chat", "hello").out.startswith("It lists")
    ran = k3ctl("health", "--json")
    assert ran.code == 4
    states = {node["node"]: node["state"] for node in ran.document["nodes"]}
    assert states == {"station": "healthy", "spark-1": "healthy", "spark-2": "unknown"}
    assert "spark-2.json cannot be read" in ran.document["nodes"][2]["reason"]
    assert k3ctl("health", "spark-1").code == 0
