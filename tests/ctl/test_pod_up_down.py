"""k3ctl pod up and down, with fake daemons as real processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest

from k3ctl.client.processes import find_daemons, process_state
from k3d.errors import ExitCode
from k3d.placement.pod import load_pod
from k3d.placement.policy import load_policy, plan
from k3d.store.home import RunFile, read_run_file, run_file_path, secret_path
from k3d.store.lock import FileLock
from k3d.store.state import StateStore
from tests.ctl.conftest import K3ctl
from tests.ctl.fake_daemons import write_script

pytestmark = pytest.mark.usefixtures("fake_k3d")


def _outcomes(document: dict) -> dict[str, str]:
    return {node["node"]: node["outcome"] for node in document["nodes"]}


def _pids(home: Path) -> set[int]:
    return {daemon.pid for daemon in find_daemons(home)}


def test_up_is_idempotent_and_down_leaves_nothing(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    up = k3ctl("pod", "up", str(pod_file), "--json")
    assert up.code == 0, up.err
    assert up.document["schema"] == "k3ctl.pod-up/1"
    assert _outcomes(up.document) == {"spark-1": "ready", "spark-2": "ready", "station": "ready"}
    pids = _pids(home)
    assert len(pids) == 3

    again = k3ctl("pod", "up", str(pod_file), "--json")
    assert again.code == 0
    assert set(_outcomes(again.document).values()) == {"running"}
    assert _pids(home) == pids

    down = k3ctl("pod", "down", "--json")
    assert down.code == 0
    assert _outcomes(down.document) == dict.fromkeys(("station", "spark-1", "spark-2"), "stopped")
    assert _pids(home) == set()
    assert all(process_state(pid) in (None, "Z") for pid in pids)
    assert {path.suffix for path in (home / "run").iterdir()} <= {".log", ".lock"}

    assert k3ctl("pod", "down").code == 0
    assert "no pod runs" in k3ctl("pod", "down").out


def test_only_what_is_missing_is_started(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    k3ctl("pod", "up", str(pod_file))
    before = _pids(home)
    victim = read_run_file(home, "spark-2")
    assert victim is not None
    os.kill(victim.pid, signal.SIGKILL)
    os.waitpid(victim.pid, 0)
    assert k3ctl("health", "spark-2").code == 3
    up = k3ctl("pod", "up", str(pod_file), "--json")
    assert _outcomes(up.document) == {
        "spark-1": "running",
        "spark-2": "ready",
        "station": "running",
    }
    assert len(before & _pids(home)) == 2


def test_a_stale_run_file_with_a_reused_pid_does_no_harm(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        stale = RunFile.of_this_process(
            name="spark-1", role="spark", pod="small", http_host="127.0.0.1", http_port=1
        )
        msgspec.structs.replace(stale, pid=bystander.pid, start_time_ticks=1).write(home)
        assert k3ctl("pod", "up", str(pod_file)).code == 0
        run = read_run_file(home, "spark-1")
        assert run is not None
        assert run.pid != bystander.pid
        assert k3ctl("pod", "down").code == 0
        assert bystander.poll() is None
        bystander.kill()


def test_a_daemon_that_ends_says_why(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    write_script(home, "spark-2", end=[5, "another pod's secret"])
    write_script(home, "station", health={"state": "degraded", "reason": "spark-2 is missing"})
    up = k3ctl("pod", "up", str(pod_file), "--json")
    assert up.code == ExitCode.PARTIAL
    assert _outcomes(up.document)["spark-2"] == "failed"
    assert up.error["name"] == "PARTIAL"
    assert "spark-2: another pod's secret" in up.error["message"]


def test_a_station_that_ends_fails_the_command_at_once(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    write_script(home, "station", end=[1, "shard 3 is truncated"])
    for spark in ("spark-1", "spark-2"):
        write_script(home, spark, health={"state": "degraded", "reason": "no Station"})
    up = k3ctl("pod", "up", str(pod_file))
    assert up.code == ExitCode.FAILED
    assert "shard 3 is truncated" in up.err
    assert len(_pids(home)) == 2


def test_a_node_that_is_late_times_out(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    write_script(home, "station", health={"state": "down", "reason": "loading"})
    up = k3ctl("pod", "up", str(pod_file), "--deadline", "1", "--json")
    assert up.code == ExitCode.TIMEOUT
    assert up.error["retryable"] is True
    assert "station: not ready yet: loading" in up.error["message"]


def _refusing(name: str, reason: str) -> dict:
    """What a Station says that refuses a spark."""
    node = {"name": name, "role": "spark", "state": "down", "link": "refused", "reason": reason}
    return {"nodes": [node]}


DAMAGED = "spark-2: the record of layer 8 expert 15 does not match its hash (remove the file)"


def test_a_refused_spark_fails_at_once_with_the_stations_sentence(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    write_script(
        home,
        "station",
        health={"state": "degraded", "reason": DAMAGED},
        status=_refusing("spark-2", DAMAGED),
    )
    write_script(home, "spark-2", health={"state": "degraded", "reason": "no Station"})
    up = k3ctl("pod", "up", str(pod_file), "--json")
    assert up.code == ExitCode.PARTIAL
    assert up.error["message"] == DAMAGED, "the node is named once"
    assert _outcomes(up.document) == {"spark-1": "ready", "spark-2": "failed", "station": "ready"}


def test_nodes_with_one_reason_share_it(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    for spark in ("spark-1", "spark-2"):
        write_script(home, spark, end=[1, "the disk is full"])
    write_script(home, "station", health={"state": "degraded", "reason": "no sparks"})
    up = k3ctl("pod", "up", str(pod_file))
    assert "k3ctl: spark-1, spark-2: the disk is full\n" in up.err
    assert "spark-1      failed: the disk is full" in up.out


def test_a_station_that_refuses_a_spark_inside_itself_fails(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    write_script(
        home,
        "station",
        health={"state": "degraded", "reason": DAMAGED},
        status=_refusing("spark-2", DAMAGED),
    )
    up = k3ctl("pod", "up", str(pod_file), "--transport", "inproc", "--json")
    assert up.code == ExitCode.FAILED
    assert DAMAGED in up.error["message"]


def test_a_refusal_of_the_spark_before_is_not_this_ones(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    """A Station that ran before asks a new spark only after a while."""
    assert k3ctl("pod", "up", str(pod_file)).code == 0
    victim = read_run_file(home, "spark-2")
    assert victim is not None
    os.kill(victim.pid, signal.SIGKILL)
    os.waitpid(victim.pid, 0)
    write_script(home, "station", status=_refusing("spark-2", "spark-2 holds another secret"))
    write_script(home, "spark-2", health={"state": "degraded", "reason": "no Station"})

    def mend() -> None:
        write_script(home, "station")
        write_script(home, "spark-2")

    mended = threading.Timer(0.5, mend)
    mended.start()
    up = k3ctl("pod", "up", str(pod_file), "--json")
    mended.join()
    assert up.code == 0
    assert _outcomes(up.document)["spark-2"] == "ready"


def test_a_spark_of_another_secret_fails_at_once(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    write_script(home, "spark-1", health_status=401)
    up = k3ctl("pod", "up", str(pod_file), "--json")
    assert up.code == ExitCode.PARTIAL
    assert "spark-1 does not accept the secret" in up.error["message"]


def test_a_late_node_has_the_stations_reason(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    nodes = _refusing("spark-2", "spark-2 ended the link")
    nodes["nodes"][0]["link"] = "lost"
    write_script(home, "station", status=nodes)
    write_script(home, "spark-2", health={"state": "degraded", "reason": "no Station"})
    up = k3ctl("pod", "up", str(pod_file), "--deadline", "1", "--json")
    assert "spark-2: not ready yet: spark-2 ended the link" in up.error["message"]


def test_detach_does_not_wait(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    write_script(home, "station", health={"state": "down", "reason": "loading"})
    up = k3ctl("pod", "up", str(pod_file), "--detach", "--json")
    assert up.code == 0
    assert set(_outcomes(up.document).values()) == {"started"}
    again = k3ctl("pod", "up", str(pod_file), "--detach", "--json")
    assert set(_outcomes(again.document).values()) == {"running"}


def test_other_options_for_a_running_pod_are_refused(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    k3ctl("pod", "up", str(pod_file))
    ran = k3ctl("pod", "up", str(pod_file), "--transport", "tcp")
    assert ran.code == ExitCode.REFUSED
    assert "already runs" in ran.err
    assert "transport shm" in ran.err
    assert "k3ctl pod down" in ran.err


def test_another_placement_for_a_running_pod_is_a_swap_away(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    """The map in force is named, not the one that the pod was started with."""
    k3ctl("pod", "up", str(pod_file))
    described = load_pod(str(pod_file))

    def refused(*flags: str) -> tuple[str, str]:
        ran = k3ctl("pod", "up", str(pod_file), *flags, "--json")
        assert ran.code == ExitCode.REFUSED
        return ran.error["message"], ran.error["hint"]

    message, hint = refused("--placement", "all-spark")
    assert message.endswith(f"with placement {described.placement}")
    assert hint.endswith("k3ctl placement swap all-spark")
    placed = plan(range(1, 13), 64, described.slots, load_policy("all-spark"))
    with StateStore.open_as_writer(home, holder="test") as store:
        store.record_pod(described.name, described.digest, msgspec.to_builtins(described))
        store.record_placement_map(2, placed.digest, "/maps/mine.json", placed.to_json())
    message, hint = refused("--placement", "all-spark")
    assert f"with placement mine.json, swapped in for {described.placement}" in message
    assert hint.endswith("k3ctl placement swap all-spark")
    with StateStore.open_as_writer(home, holder="test") as store:
        store.record_placement_map(3, placed.digest, "all-spark", placed.to_json())
    assert "serves by all-spark already" in refused("--placement", "all-spark")[1]
    message, hint = refused("--placement", "all-spark", "--transport", "tcp")
    assert "transport shm" in message
    assert "k3ctl pod down" in hint


def test_flags_reach_the_daemons(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    flags = ["--transport", "tcp", "--placement", "all-spark", "--dtype", "fp32", "--chunk", "3"]
    assert k3ctl("pod", "up", str(pod_file), *flags).code == 0
    entries = k3ctl("logs", "--json").document["entries"]
    given = {entry["node"]: entry["arguments"] for entry in entries}
    assert given["spark-1"] == ["--transport", "tcp"]
    station = given["station"]
    assert station[:2] == ["--transport", "tcp"]
    assert station[3].endswith("policies/placement/all-spark.toml")
    assert station[4:] == ["--dtype", "fp32", "--chunk", "3"]


def test_inproc_starts_the_station_alone(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    up = k3ctl("pod", "up", str(pod_file), "--transport", "inproc", "--json")
    assert _outcomes(up.document) == {"station": "ready"}
    assert len(_pids(home)) == 1


def test_a_port_in_use_is_named_and_nothing_is_started(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = pod_file.read_text().replace('"station"\nsim', f'"station"\nhttp_port = {port}\nsim')
        pod_file.write_text(text)
        ran = k3ctl("pod", "up", str(pod_file))
    assert ran.code == ExitCode.FAILED
    assert f"station cannot listen on 127.0.0.1:{port}" in ran.err
    assert _pids(home) == set()


def test_an_unreadable_secret_stops_before_anything_starts(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    secret_path(home).chmod(0o644)
    ran = k3ctl("pod", "up", str(pod_file))
    assert ran.code == ExitCode.REFUSED
    assert _pids(home) == set()


def test_a_log_that_cannot_be_written_is_named(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    (home / "run" / "spark-1.log").mkdir()
    ran = k3ctl("pod", "up", str(pod_file), "--json")
    assert ran.code == ExitCode.FAILED
    assert f"{home}/run/spark-1.log cannot be written: Is a directory" in ran.error["message"]
    assert "pip" not in ran.error["hint"]
    ran = k3ctl("logs", "--json")
    assert "spark-1.log cannot be read: Is a directory" in ran.error["message"]


def test_two_ups_do_not_meet(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    with FileLock(home / "run" / "pod.lock", "the pod", "k3ctl pod up"):
        ran = k3ctl("pod", "up", str(pod_file))
        assert ran.code == ExitCode.LOCKED
        assert "k3ctl pod up (pid" in ran.err


def test_a_daemon_that_ignores_the_signal_is_killed(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    write_script(home, "spark-1", ignore_term=True)
    k3ctl("pod", "up", str(pod_file))
    down = k3ctl("pod", "down", "--deadline", "0.3", "--json")
    assert down.code == 0
    assert _outcomes(down.document)["spark-1"] == "killed"
    assert _pids(home) == set()


def test_a_stopped_daemon_ends_too(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    k3ctl("pod", "up", str(pod_file))
    run = read_run_file(home, "spark-1")
    assert run is not None
    os.kill(run.pid, signal.SIGSTOP)
    assert _outcomes(k3ctl("pod", "down", "--json").document)["spark-1"] == "stopped"


def test_down_finds_daemons_without_run_files(k3ctl: K3ctl, home: Path, pod_file: Path) -> None:
    k3ctl("pod", "up", str(pod_file))
    run_file_path(home, "spark-1").unlink()
    run_file_path(home, "spark-2").write_text("{damaged")
    (home / "run" / "pod.json").write_text("{damaged")
    assert k3ctl("pod", "down").code == 0
    assert _pids(home) == set()


def test_down_finds_daemons_without_a_run_directory(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    k3ctl("pod", "up", str(pod_file))
    assert len(_pids(home)) == 3
    shutil.rmtree(home / "run")
    assert k3ctl("pod", "down").code == 0
    assert _pids(home) == set()


def test_a_killed_up_leaves_a_pod_that_the_next_one_takes_over(
    k3ctl: K3ctl, home: Path, pod_file: Path
) -> None:
    write_script(home, "station", health={"state": "down", "reason": "loading"})
    k3ctl("pod", "up", str(pod_file), "--detach")
    ready = threading.Timer(0.3, write_script, args=(home, "station"))
    ready.start()
    up = k3ctl("pod", "up", str(pod_file), "--json")
    ready.join()
    assert up.code == 0
    assert _outcomes(up.document)["station"] == "running"
