"""A pod of real processes with a tiny K3 inside: the golden NVFP4 checkpoint, byte tokens."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from k3d.store.home import create_secret, http_token, make_home, read_run_file, read_secret

GOLDEN = Path(__file__).parents[1] / "golden" / "k3-golden-nvfp4"
READY_S = 60.0
SPECIALS = ("[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden checkpoint with a tokenizer of single bytes, so that it can chat."""
    folder = tmp_path_factory.mktemp("model") / "k3-tiny"
    shutil.copytree(GOLDEN, folder)
    ranks = (f"{base64.b64encode(bytes([b])).decode()} {b}\n" for b in range(256))
    (folder / "tiktoken.model").write_text("".join(ranks))
    decoder = {str(256 + i): {"content": name} for i, name in enumerate(SPECIALS)}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    return folder


def write_pod(path: Path, model: Path, sparks: int) -> Path:
    """A description of one Station and `sparks` sparks on loopback."""
    lines = ['schema = "k3-pod/1"', 'name = "tiny"', f'model = "{model}"', "chunk = 16"]
    for name in ("station", *(f"spark-{i + 1}" for i in range(sparks))):
        role = name.partition("-")[0]
        lines += ["[[node]]", f'name = "{name}"', f'role = "{role}"', "simulated = true"]
        for tier in ("hbm", "rtx", "grace") if role == "station" else ("spark",):
            lines += ["[[node.tier]]", f'name = "{tier}"', "slots = 128"]
    path.write_text("\n".join(lines) + "\n")
    return path


@dataclass
class RunningPod:
    """Processes of one pod and a client of its Station."""

    home: Path
    description: Path
    flags: tuple[str, ...] = ()
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, name: str, *flags: str, program: tuple[str, ...] = ("k3d.main",)
    ) -> subprocess.Popen[bytes]:
        role = "station" if name == "station" else "spark"
        command = [sys.executable, "-m", *program, role, "--home", str(self.home)]
        command += ["--pod", str(self.description), *self.flags, *flags]
        if role == "spark":
            command += ["--name", name]
        run = self.home / "run"
        run.mkdir(exist_ok=True)
        with (run / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stderr=log, start_new_session=True)
        self.processes[name] = process
        self.started.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.home / "run" / f"{name}.log").read_text()

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        run = read_run_file(self.home, "station")
        assert run is not None, self.log("station")
        request = urllib.request.Request(
            run.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {http_token(read_secret(self.home))}"},
        )
        return urllib.request.urlopen(request, timeout=60)

    def status(self) -> dict[str, Any]:
        with self.call("/status") as response:
            return json.load(response)

    def stream(self, **body: Any) -> Iterator[dict[str, Any]]:
        with self.call("/chat", body) as response:
            for line in response:
                yield json.loads(line)

    def ids(self, **body: Any) -> list[int]:
        """Token ids of one answer; fails on an error line."""
        lines = list(self.stream(**body))
        assert lines[-1]["type"] == "done", lines[-1]
        return [line["id"] for line in lines if line["type"] == "token" and line["id"] is not None]

    def wait(self, what: str, condition: Callable[[], bool], timeout_s: float = READY_S) -> float:
        """Seconds until `condition` held."""
        begun = time.monotonic()
        while not condition():
            ended = [n for n, p in self.processes.items() if p.poll() is not None and p.returncode]
            if time.monotonic() - begun > timeout_s:
                raise AssertionError(f"{what} did not happen in {timeout_s} s; ended: {ended}")
            time.sleep(0.02)
        return time.monotonic() - begun

    def wait_state(self, state: str, timeout_s: float = READY_S) -> float:
        def reached() -> bool:
            if read_run_file(self.home, "station") is None:
                return False
            try:
                return self.status()["state"] == state
            except urllib.error.URLError:
                return False

        return self.wait(f"state {state}", reached, timeout_s)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.processes[name].pid, number)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.started:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def inproc_pod(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[RunningPod]:
    """One Station process with two sparks inside, shared by a module's tests."""
    folder = tmp_path_factory.mktemp("inproc")
    home = folder / "home"
    make_home(home)
    create_secret(home)
    pod = RunningPod(home, write_pod(folder / "pod.toml", tiny_model, 2))
    pod.start("station", "--transport", "inproc")
    try:
        pod.wait_state("healthy")
        yield pod
    finally:
        pod.close()


@pytest.fixture
def start_pod(tmp_path: Path, home: Path, tiny_model: Path) -> Iterator[Callable[..., RunningPod]]:
    """Start a pod of `sparks` sparks and wait until it is healthy."""
    pods: list[RunningPod] = []

    def start(sparks: int = 2, *flags: str, wait: bool = True) -> RunningPod:
        description = write_pod(tmp_path / f"pod-{sparks}.toml", tiny_model, sparks)
        transport = flags[:2] if flags[:1] == ("--transport",) else ()
        pod = RunningPod(home, description)
        pods.append(pod)
        for index in range(0 if "inproc" in transport else sparks):
            pod.start(f"spark-{index + 1}", *transport)
        pod.start("station", *flags)
        if wait:
            pod.wait_state("healthy")
        return pod

    yield start
    for pod in pods:
        pod.close()
