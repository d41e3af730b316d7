"""How a spark comes by its slices: python kernels/bench/spark_start.py [--pod NAME] [--mib 512]

In one run, in turns: over the fabric, and out of a bank that was staged to it. First a whole pod,
brought up with k3ctl in a home of its own, `start` being the time of `pod up` until every node
serves; then one spark, a process of its own, with slices as large as Kimi-K3's (random bytes).
`sent` and `back` are bytes of frames, headers and all, to the sparks and from them; `cached` is how
much of the bank the page cache holds afterwards. The figures are of this machine.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
from stage_rate import K3, MIB, make_bank  # pyright: ignore[reportMissingImports]

from k3d import __version__
from k3d.experts.bank_file import Bank
from k3d.experts.content_hash import content_hash
from k3d.experts.pages import drop_pages
from k3d.fabric.facts import Facts
from k3d.fabric.frame_buffers import DEFAULT_CAPACITY_BYTES
from k3d.fabric.records import Name, Record
from k3d.fabric.transports import connect
from k3d.station.spark_link import SparkLink

SECRET = bytes(32)
READY_S = 300.0
SPARK = (
    "import sys,pathlib\n"
    "from k3d.experts.frame_worker import worker_with_banks\n"
    "from k3d.fabric.facts import Facts\n"
    "from k3d.fabric.transports import listen\n"
    "from k3d.node.spark import SparkServer\n"
    "from k3d import __version__\n"
    "l=listen(sys.argv[2]);print(l.address,flush=True)\n"
    "f=Facts(role='spark',node='spark-1',version=__version__,capacity_bytes=int(sys.argv[3]))\n"
    "SparkServer(worker_with_banks(pathlib.Path(sys.argv[1])),l,bytes(32),f).run()\n"
)


@dataclass
class Start:
    """One start: seconds, and what travelled."""

    time_s: float
    fill_s: float
    sent_bytes: int
    received_bytes: int
    filled: int
    sent: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pod", default="embedded-2", help="a description; none for no pod")
    parser.add_argument("--mib", type=int, default=512, help="slices of the one spark; 0 for none")
    parser.add_argument("--transport", choices=("shm", "tcp"), default="shm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write, else the system's choice")
    options = parser.parse_args()
    if options.pod != "none":
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            show(f"pod {options.pod}", *measure_pod(Path(folder), options.pod, options.rounds))
    if options.mib:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            measure_spark(Path(folder), options)


def measure_pod(home: Path, pod: str, rounds: int) -> tuple[list[Start], list[Start]]:
    """Starts over the fabric and from banks, in turns. The Station's bank is there before."""
    k3ctl(home, "init")
    k3ctl(home, "bank", "build", pod)
    k3ctl(home, "bank", "stage", pod)
    banks, aside = home / "banks", home / "aside"
    over, out_of = [], []
    for turn in range(rounds + 1):
        for starts, staged in ((over, False), (out_of, True)):
            for folder in (aside if staged else banks).glob("spark-*"):
                aside.mkdir(exist_ok=True)
                folder.rename((banks if staged else aside) / folder.name)
            began = time.perf_counter()
            k3ctl(home, "pod", "up", pod)
            start = counted(k3ctl(home, "pod", "status"), time.perf_counter() - began)
            k3ctl(home, "pod", "down")
            if turn:  # the first warms the page cache
                starts.append(start)
    return over, out_of


def counted(status: dict[str, Any], time_s: float) -> Start:
    """Of all sparks together; their fillings go side by side."""
    fillings = [node["bank"]["filling"] for node in status["nodes"] if node["role"] == "spark"]
    total = {key: sum(filling[key] for filling in fillings) for key in fillings[0]}
    longest_s = max(filling["time_s"] for filling in fillings)
    return Start(
        time_s, longest_s, total["sent_bytes"], total["received_bytes"], total["filled"],
        total["sent"],
    )  # fmt: skip


def k3ctl(home: Path, *arguments: str) -> dict[str, Any]:
    program = Path(sys.executable).with_name("k3ctl")
    command = [str(program), *arguments, "--home", str(home), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: {done.stderr or done.stdout}")
    return json.loads(done.stdout)


class BankSource:
    """What a Station would send, out of a bank of the same slices."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank

    def names(self) -> Iterator[Name]:
        for index, (layer, expert) in enumerate(self._bank.order):
            yield Name(index, layer, expert, self._bank.manifest.digest(index))

    def records(self, names: Iterable[Name]) -> Iterator[Record]:
        for name in names:
            record = self._bank.read(name.slot)
            yield Record(*name[:3], content_hash(record), record)

    def everything(self) -> Iterator[Record]:
        return self.records(self.names())


def measure_spark(folder: Path, options: argparse.Namespace) -> None:
    """One spark with Kimi-K3's slices."""
    station, staged, empty = folder / "station", folder / "staged", folder / "empty"
    for each in (station, staged, empty):
        each.mkdir()
    path = make_bank(station, options.mib * MIB, K3)
    there = staged / path.name
    there.write_bytes(path.read_bytes())
    bank = Bank(path)
    over, out_of, resident, cached = [], [], [], []
    for turn in range(options.rounds + 1):
        for starts, banks in ((over, empty), (out_of, staged)):
            forget(path)
            forget(there)
            with spark(banks, options.transport) as (pid, address):
                start = fill(bank, address, options.transport)
                if turn:
                    starts.append(start)
                    resident.append(psutil.Process(pid).memory_info().rss)
                    cached.append(in_page_cache(there))
    bank.close()
    size = path.stat().st_size
    show(f"one spark, {size / MIB:.0f} MiB of slices, {options.transport}", over, out_of)
    print(
        f"resident at most {max(resident) / MIB:.0f} MiB; {max(cached) / MIB:.1f} MiB of the bank "
        "cached\n"
    )


def fill(bank: Bank, address: str, transport: str) -> Start:
    header, count = bank.header, len(bank.order)
    facts = Facts(
        role="station", node="station", calling="spark-1", incarnation=time.time_ns(),
        version=__version__, capacity_bytes=DEFAULT_CAPACITY_BYTES,
        model_digest=header.model_digest, slice_index=header.slice_index,
        slice_count=header.slice_count, slots=count, slice_bytes=header.record_bytes,
        shape=msgspec.to_builtins(header.shape), dtype="bf16", epoch=1,
        placement_digest=f"{header.map_digest}.0",
    )  # fmt: skip
    source = BankSource(bank)
    link = SparkLink(
        facts, lambda s: connect(transport, address, s), SECRET, source.everything, source=source
    )
    began = time.perf_counter()
    link.start()
    link.wait_ready(READY_S)
    time_s = time.perf_counter() - began
    filling = link.snapshot().filling
    link.close()
    assert filling is not None
    return Start(
        time_s, filling.time_s, filling.sent_bytes, filling.received_bytes, filling.filled,
        filling.sent,
    )  # fmt: skip


@contextmanager
def spark(banks: Path, transport: str) -> Iterator[tuple[int, str]]:
    """A spark's process: its pid and where it listens."""
    command = [sys.executable, "-c", SPARK, str(banks), transport, str(DEFAULT_CAPACITY_BYTES)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def forget(path: Path) -> None:
    """Take a file out of the page cache, as it is when a machine starts."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    drop_pages(descriptor, 0, 0)
    os.close(descriptor)


def in_page_cache(path: Path) -> int:
    """Bytes of a file that the page cache holds; by mincore, which Python does not have."""
    import ctypes

    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapped = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_WRITE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        flags = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
        ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), flags)
        return sum(flag & 1 for flag in flags) * mmap.PAGESIZE


def show(what: str, over: list[Start], out_of: list[Start]) -> None:
    print(what)
    for name, starts in (("fabric", over), ("bank", out_of)):
        one = starts[-1]
        start_s, fill_s = median(starts, "time_s"), median(starts, "fill_s")
        print(
            f"{name:7} start {start_s:7.3f} s   fill {fill_s:7.3f} s   "
            f"sent {one.sent_bytes:>12,} B   back {one.received_bytes:>8,} B   "
            f"slices {one.sent:,} sent, {one.filled:,} filled"
        )
    print(
        f"ratio   start {median(out_of, 'time_s') / median(over, 'time_s'):7.2f}     fill "
        f"{median(out_of, 'fill_s') / median(over, 'fill_s'):7.2f}     sent "
        f"{out_of[-1].sent_bytes / over[-1].sent_bytes:.5f}   back "
        f"{out_of[-1].received_bytes / over[-1].received_bytes:.2f}"
    )
    print(
        f"measured; medians of {len(over)}, {len(os.sched_getaffinity(0))} cores, "
        f"load {os.getloadavg()[0]:.1f}\n"
    )


def median(starts: list[Start], field: str) -> float:
    return statistics.median(getattr(start, field) for start in starts)


if __name__ == "__main__":
    main()
