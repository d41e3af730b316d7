"""What every test gets: a printed seed, a home of its own, no network; and tiny checkpoints."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from k3d.store.home import create_secret, make_home

if TYPE_CHECKING:
    from tests.tiny_checkpoint import TinyModel

GOLDEN = Path(__file__).parent / "golden"

SEED_VARIABLE = "K3_TEST_SEED"
LOOPBACK = ("127.", "localhost", "::1", "0.0.0.0")


def pytest_configure(config: pytest.Config) -> None:
    # Set once by the first process, so that parallel workers draw from the same seed.
    os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(2**31)))


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed for this test, from K3_TEST_SEED and the test's name; printed when it fails."""
    value = random.Random(f"{os.environ[SEED_VARIABLE]} {request.node.nodeid}").randrange(2**31)
    print(f"seed of this test: {value} (with {SEED_VARIABLE}={os.environ[SEED_VARIABLE]})")
    return value


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pod home with a secret, in force through K3_HOME."""
    path = tmp_path / "home"
    make_home(path)
    create_secret(path)
    monkeypatch.setenv("K3_HOME", str(path))
    return path


@pytest.fixture(autouse=True)
def _away_from_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test uses the home, the settings or the terminal of whoever runs it."""
    monkeypatch.setenv("K3_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in (
        "K3_DAEMON", "K3_ASCII", "K3_CONFIG", "NO_COLOR", "CLICOLOR_FORCE", "XDG_STATE_HOME",
        "LC_ALL",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of this process stay on this machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK):
            raise AssertionError(f"a test tried to connect to {address}")
        return connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[TinyModel], Path]:
    """Folder of a k3-tiny checkpoint. Shared: a test that changes files copies it first."""
    written: dict[TinyModel, Path] = {}

    def folder(model: TinyModel) -> Path:
        if model not in written:
            written[model] = model.write(tmp_path_factory.mktemp(f"tiny-{model.release}"))
        return written[model]

    return folder


@pytest.fixture(params=["nvfp4", "mxfp4"])
def golden(request: pytest.FixtureRequest) -> Path:
    """Folder of a golden checkpoint, in each release format."""
    return GOLDEN / f"k3-golden-{request.param}"
