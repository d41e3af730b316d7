"""A home with a pod of a tiny K3, whose banks a test may build, send and damage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from k3d.experts.bank_file import Bank
from k3d.main import main
from tests.station.conftest import write_pod
from tests.tiny_checkpoint import TinyModel

K3D = [sys.executable, "-m", "k3d.main"]
MODEL = TinyModel(seed=1)


@dataclass(frozen=True)
class Ran:
    """What a verb did: its exit code, its last document and its error."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out.splitlines()[-1])

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.err.splitlines()[-1])


@dataclass(frozen=True)
class PodHome:
    """A home, its pod's description and its checkpoint, a copy that may be damaged."""

    home: Path
    pod: Path
    model: Path
    capture: pytest.CaptureFixture[str]

    @property
    def banks(self) -> Path:
        return self.home / "banks"

    def bank(self, *arguments: str) -> Ran:
        """`k3d bank` within this process."""
        self.capture.readouterr()
        code = main(["bank", *self._with_home(arguments)])
        captured = self.capture.readouterr()
        return Ran(code, captured.out, captured.err)

    def process(self, *arguments: str, **settings: Any) -> subprocess.Popen[str]:
        """`k3d bank` as a process of its own."""
        return subprocess.Popen(
            [*K3D, "bank", *self._with_home(arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, **settings,
        )  # fmt: skip

    def run(self, *arguments: str, **settings: Any) -> Ran:
        process = self.process(*arguments, **settings)
        out, err = process.communicate(timeout=60)
        return Ran(process.returncode, out, err)

    def files(self) -> dict[str, bytes]:
        """Every bank by its path within banks/."""
        found = sorted(self.banks.rglob("*.bank"))
        return {str(path.relative_to(self.banks)): path.read_bytes() for path in found}

    def whole(self) -> Path:
        """The Station's bank."""
        return next(path for path in self.banks.glob("*.bank") if "of" not in path.name)

    def slice(self, number: int) -> Path:
        return next(self.banks.glob(f"*.{number}of*.bank"))

    def _with_home(self, arguments: tuple[str, ...]) -> list[str]:
        verb, *rest = arguments
        return [verb, "--home", str(self.home), "--pod", str(self.pod), "--json", *rest]


Make = Callable[..., PodHome]


@pytest.fixture
def make_home(
    home: Path, tmp_path: Path, tiny: Callable[[TinyModel], Path],
    capsys: pytest.CaptureFixture[str],
) -> Make:  # fmt: skip
    """A PodHome of a model and a number of sparks."""

    def make(model: TinyModel = MODEL, sparks: int = 2) -> PodHome:
        folder = Path(shutil.copytree(tiny(model), tmp_path / "k3-tiny"))
        return PodHome(home, write_pod(tmp_path / "pod.toml", folder, sparks), folder, capsys)

    return make


@pytest.fixture
def pod_home(make_home: Make) -> PodHome:
    return make_home()


@pytest.fixture
def built(pod_home: PodHome) -> PodHome:
    """With its banks built."""
    assert pod_home.bank("build").code == 0
    return pod_home


def flip(path: Path, at: int, bit: int = 1) -> None:
    """Flip one bit of a file and leave it its time: what a disk does."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bit]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def record_at(path: Path, at: int) -> tuple[int, int]:
    """Layer and expert of the record that a byte of a sound bank is in."""
    bank = Bank(path)
    bank.close()
    layout = bank.manifest.layout
    return layout.order[(at - layout.data_start) // layout.header.record_bytes]
