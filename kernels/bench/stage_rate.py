"""Staging beside plain sendfile: python kernels/bench/stage_rate.py [--mib 256] [--rounds 3]

One sender over loopback, first to one receiver, then to eight at once, each a process of its own.
In turns: socket.sendfile of a file to a process that drops what comes, and a staged bank of the
same bytes, which is hashed record by record, written and published. `sender` is the transfer to a
receiver that drops its records, `left` the rate at which bytes leave for one that keeps them,
`stored` that until they are on its disk; of several, all bytes over the time of the last.
`cpu` is processor time of both ends a byte: of two figures that share too few cores, the one that
says more. Every turn sends a file that is all in the page cache: a transfer lets go of what it has
sent, and the next would wait for the disk. Plain sendfile writes nothing anywhere; `stored` waits
for a disk too. The figures are of this machine, and of little use while it does something else.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k3d.experts.bank_file import Bank
from k3d.experts.bank_header import SEGMENT_BYTES, BankHeader, RecordOrder
from k3d.experts.bank_writer import BankWriter
from k3d.experts.shape import ExpertShape
from k3d.staging.bank_names import bank_name
from k3d.staging.pace import Pace
from k3d.staging.send import Sent, send_bank

SECRET = bytes(32)
NODE = "spark-1"
MIB = 2**20
K3 = {"latent": 3584, "width": 3072}
MINI = {"latent": 128, "width": 128}
DROP = (
    "import socket,sys\n"
    "s=socket.create_server(('127.0.0.1',0));print(s.getsockname()[1],flush=True)\n"
    "b=bytearray(2**20)\n"
    "while 1:\n"
    " c,_=s.accept()\n"
    " while c.recv_into(b):pass\n"
    " c.sendall(b'.');c.close()\n"
)
MEET = (
    "import socket,sys\n"
    "from k3d.staging.wire import *\n"
    "s=socket.create_server(('127.0.0.1',0));print(s.getsockname()[1],flush=True)\n"
    "n,size=map(int,sys.argv[1:]);b=memoryview(bytearray(2**20))\n"
    "while 1:\n"
    " c=Channel(s.accept()[0],'sender');w=Welcome(c,bytes(32));w.hear()\n"
    " w.answer(Answer('spark-1',True));c.send(Wanted([(0,n)],0))\n"
    " for at in range(0,n*size,2**20):c.receive_into(b[:min(2**20,n*size-at)])\n"
    " c.send(Stored(n,0));c.close()\n"
)
TAKE = (
    "import sys,pathlib;sys.setswitchinterval(1e-4)\n"
    "from k3d.staging.receive import Receiver\n"
    "r=Receiver(pathlib.Path(sys.argv[1]),'spark-1',bytes(32),'127.0.0.1',0)\n"
    "print(r.address.rpartition(':')[2],flush=True);r.run()\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="all bytes of a turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--receivers", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--mini", action="store_true", help="records as small as k3-mini's")
    parser.add_argument("--folder", type=Path, help="where to write, else the system's choice")
    options = parser.parse_args()
    for receivers in options.receivers:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            show(receivers, options.rounds, measure(Path(folder), receivers, options))


@dataclass
class Turn:
    """One way of sending: seconds and processor seconds a byte, a round each."""

    size_bytes: int
    times_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.size_bytes / statistics.median(self.times_s)


def measure(folder: Path, receivers: int, options: argparse.Namespace) -> dict[str, Turn]:
    """Every way of sending, in turns, with the page cache warm."""
    widths = MINI if options.mini else K3
    path = make_bank(folder, options.mib * MIB // receivers, widths)
    bank, taken = Bank(path), folder / "taken"
    size, count, record = path.stat().st_size, len(bank.order), bank.header.record_bytes
    turns = {name: Turn(receivers * size) for name in ("plain", "left", "stored", "wire")}
    turns["sender"] = Turn(receivers * count * record)
    with ExitStack() as stack:
        drops = [stack.enter_context(child(DROP)) for _ in range(receivers)]
        meets = [
            stack.enter_context(child(MEET, str(count), str(record))) for _ in range(receivers)
        ]
        takes = [stack.enter_context(child(TAKE, str(taken / str(n)))) for n in range(receivers)]
        for turn in range(options.rounds + 1):
            for each in range(receivers):
                (taken / str(each) / path.name).unlink(missing_ok=True)
            read_all(path)
            plain = together(drops, lambda port: send_plain(path, port))
            read_all(path)
            met = together(meets, lambda port: send(bank, port))
            read_all(path)
            sent = together(takes, lambda port: send(bank, port))
            if turn:  # before the first everything is new to everybody
                note(turns["plain"], max(plain.found), plain.cpu_s)
                note(turns["sender"], max(one.send_s for one in met.found), met.cpu_s)
                note(turns["left"], max(one.pour_s for one in sent.found), sent.cpu_s)
                note(turns["stored"], max(one.send_s for one in sent.found), sent.cpu_s)
                turns["wire"].times_s.append(sum(one.wire_bytes for one in sent.found))
    bank.close()
    return turns


def show(receivers: int, rounds: int, turns: dict[str, Turn]) -> None:
    plain, wire = turns["plain"], turns.pop("wire")
    size = plain.size_bytes
    over = statistics.median(wire.times_s) / size - 1
    print(f"{receivers} at once")
    for name in ("plain", "sender", "left", "stored"):
        turn = turns[name]
        cpu_ns = statistics.median(turn.cpu_s) / turn.size_bytes * 1e9
        print(
            f"{name:8} {turn.rate / 1e9:7.2f} GB/s   {turn.rate / plain.rate:5.2f} x plain   "
            f"cpu {cpu_ns:5.2f} ns/B"
        )
    here = f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"
    more = f"{100 * over:.3f} % of them more on the wire"
    print(f"measured; {size} bytes, {more}, medians of {rounds}, {here}\n")


def note(turn: Turn, time_s: float, cpu_s: float) -> None:
    turn.times_s.append(time_s)
    turn.cpu_s.append(cpu_s)


@dataclass(frozen=True)
class Together:
    """What each of several transfers gave, and the processor time of both ends."""

    found: list[Any]
    cpu_s: float


def together(children: list[Child], transfer: Callable[[int], Any]) -> Together:
    """One transfer to every child, all at once."""
    before = own_cpu_s() + sum(each.cpu_s() for each in children)
    with ThreadPoolExecutor(len(children)) as senders:
        found = list(senders.map(lambda each: transfer(each.port), children))
    return Together(found, own_cpu_s() + sum(each.cpu_s() for each in children) - before)


def own_cpu_s() -> float:
    return time.process_time()


def read_all(path: Path) -> None:
    """Bring a file into the page cache."""
    with path.open("rb", buffering=0) as file:
        while file.read(MIB):
            pass


def send(bank: Bank, port: int) -> Sent:
    return send_bank(bank, NODE, f"127.0.0.1:{port}", SECRET, Pace(), lambda _: None)


def make_bank(folder: Path, size_bytes: int, widths: dict[str, int]) -> Path:
    """A sound slice bank of about this size, with records of drawn bytes."""
    shape = ExpertShape(
        layers=(1,), experts=1, **widths, top_k=1, format="nvfp4", situ_beta=4.0,
        situ_linear_beta=25.0, grid_exponents=(0,),
    )  # fmt: skip
    record = shape.slice_bytes(8)
    shape = ExpertShape(**{**vars(shape), "experts": max(1, size_bytes // record)})
    header = BankHeader(
        "0" * 64, 0, 8, shape, record, map_digest="0" * 64, segment_bytes=SEGMENT_BYTES
    )
    path = folder / bank_name("bench", header)
    with BankWriter(path, header) as writer:
        for index in range(len(RecordOrder(shape))):
            writer.put(index, os.urandom(record))
        writer.publish()
    return path


def send_plain(path: Path, port: int) -> float:
    """Seconds of socket.sendfile of a file, until the other end has taken all of it."""
    with path.open("rb") as file, socket.create_connection(("127.0.0.1", port)) as sock:
        began = time.perf_counter()
        sock.sendfile(file)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)
        return time.perf_counter() - began


@dataclass(frozen=True)
class Child:
    """A process that receives on a port."""

    pid: int
    port: int

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def child(program: str, *arguments: str) -> Iterator[Child]:
    """A process that says its port first and ends with the context."""
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield Child(process.pid, int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
