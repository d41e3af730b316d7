"""What benches of an embedded pod stand on: a home, spark processes and Stations of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from k3d.placement.pod import PodDescription
from k3d.station.assembly import Station, assemble
from k3d.station.options import StationOptions
from k3d.store.home import banks_directory, create_secret, make_home, read_secret

READY_S = 60.0


@contextmanager
def bench_home(home: Path) -> Iterator[Path]:
    """A home of the benchmark's own, sharing the staged banks."""
    with tempfile.TemporaryDirectory(prefix="k3-bench-") as folder:
        own = Path(folder)
        make_home(own)
        create_secret(own)
        banks = banks_directory(home)
        banks.mkdir(parents=True, exist_ok=True)
        shared = banks_directory(own)
        if shared.exists():
            shared.rmdir()
        shared.symlink_to(banks)
        yield own


@contextmanager
def spark_processes(
    home: Path, description: Path, pod: PodDescription, options: StationOptions
) -> Iterator[None]:
    """The pod's sparks as processes that end with the context."""
    command = [sys.executable, "-m", "k3d.main", "spark", "--home", str(home), "--pod",
               str(description), "--transport", options.transport]  # fmt: skip
    with ExitStack() as stack:
        for spark in pod.sparks:
            process = subprocess.Popen(
                [*command, "--name", spark.name],
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(_end, process)
        yield


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def assembled(pod: PodDescription, home: Path, options: StationOptions) -> Iterator[Station]:
    """A Station whose sparks are ready."""
    station = assemble(pod, home, read_secret(home), options, lambda planned: planned)
    try:
        station.membership.wait_all_ready(READY_S)
        yield station
    finally:
        station.membership.close()
        station.bank.close()
