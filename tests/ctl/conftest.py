"""k3ctl in this process or as a process, and fake daemons for it to talk to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from k3ctl.cli.main import run
from tests.ctl.fake_daemons import FakeDaemon

K3CTL = [sys.executable, "-c", "from k3ctl.cli.start import main; main()"]
FACTS = """
[model_facts]
layers = 13
moe_layers = 12
experts = 64
expert_bytes = 20000
"""


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.err.splitlines()[-1])


K3ctl = Callable[..., Ran]


@pytest.fixture
def k3ctl(home: Path, capsys: pytest.CaptureFixture[str]) -> K3ctl:
    """k3ctl within this process."""

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture
def k3ctl_process(home: Path) -> K3ctl:
    """k3ctl as a process of its own; keyword arguments go to subprocess.run."""

    def call(*arguments: str, env: dict[str, str] | None = None, **settings: Any) -> Ran:
        settings.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run(
            [*K3CTL, *arguments],
            capture_output=True,
            timeout=60,
            check=False,
            env={**os.environ, **(env or {})},
            **settings,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
def station(home: Path) -> Iterator[FakeDaemon]:
    """A fake Station in a thread of this process."""
    daemon = FakeDaemon(home, "station", "station")
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def spark(home: Path) -> Iterator[FakeDaemon]:
    """A fake spark-1 in a thread of this process."""
    daemon = FakeDaemon(home, "spark-1", "spark")
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def pod_file(tmp_path: Path) -> Path:
    """A description of a Station and two sparks whose model is not needed."""
    text = 'schema = "k3-pod/1"\nname = "small"\n' + FACTS
    for name, role, tier in (
        ("station", "station", "hbm"),
        ("spark-1", "spark", "spark"),
        ("spark-2", "spark", "spark"),
    ):
        text += (
            f'[[node]]\nname = "{name}"\nrole = "{role}"\nsimulated = true\n'
            f'[[node.tier]]\nname = "{tier}"\nslots = 768\n'
        )
    path = tmp_path / "small.toml"
    path.write_text(text.replace("[model_facts]", 'placement = "fastest-first"\n[model_facts]', 1))
    return path


@pytest.fixture
def fake_k3d(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, k3ctl: K3ctl
) -> Iterator[None]:
    """pod up starts fake daemons; whatever it left is taken down at the end."""
    program = tmp_path / "bin" / "k3d"
    program.parent.mkdir()
    program.symlink_to(Path(__file__).with_name("fake_daemons.py"))
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("K3_DAEMON", f"{sys.executable} {program}")
    monkeypatch.setenv("PYTHONPATH", str(root))
    yield
    k3ctl("pod", "down", "--deadline", "0.5")
