"""Staging beside plain sendfile: python kernels/bench/stage_rate.py [--mib 256] [--rounds 3]

One sender over loopback to a receiver in a process of its own, in turns: socket.sendfile of a file
to a process that drops what comes, and a staged bank of the same size and bytes, which is hashed
record by record, written and published. `sender` is the transfer to a receiver that drops its
records, `left` the rate at which bytes leave for one that keeps them, `stored` that until they are
on its disk. The figures are of this machine, and of little
use while it does something else.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from k3d.experts.bank_file import Bank, BankHeader, RecordOrder
from k3d.experts.bank_writer import BankWriter
from k3d.experts.shape import ExpertShape
from k3d.staging.bank_names import bank_name
from k3d.staging.pace import Pace
from k3d.staging.send import send_bank

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
    parser.add_argument("--mib", type=int, default=256, help="size of the bank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mini", action="store_true", help="records as small as k3-mini's")
    parser.add_argument("--folder", type=Path, help="where to write, else the system's choice")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = make_bank(Path(folder), options.mib * MIB, MINI if options.mini else K3)
        size = path.stat().st_size
        taken = Path(folder) / "taken"
        bank = Bank(path)
        count, record = len(bank.order), bank.header.record_bytes
        rates: dict[str, list[float]] = {"plain": [], "sender": [], "left": [], "stored": []}
        overhead = 0.0
        with (
            child(DROP) as drop,
            child(MEET, str(count), str(record)) as meet,
            child(TAKE, str(taken)) as take,
        ):
            for turn in range(options.rounds + 1):
                plain_s = plain(path, drop)
                (taken / path.name).unlink(missing_ok=True)
                met = send_bank(bank, NODE, f"127.0.0.1:{meet}", SECRET, Pace(), lambda _: None)
                sent = send_bank(bank, NODE, f"127.0.0.1:{take}", SECRET, Pace(), lambda _: None)
                overhead = sent.wire_bytes / sent.payload_bytes - 1
                if turn:  # the first warms the page cache
                    rates["plain"].append(size / plain_s)
                    rates["sender"].append(count * record / met.send_s)
                    rates["left"].append(size / sent.pour_s)
                    rates["stored"].append(size / sent.send_s)
        bank.close()
    plain_rate = statistics.median(rates["plain"])
    for name, found in rates.items():
        rate = statistics.median(found)
        print(f"{name:8} {rate / 1e9:7.2f} GB/s   {rate / plain_rate:5.2f} x plain")
    print(f"measured; {size} bytes, {100 * overhead:.3f} % of them more on the wire, medians of "
          f"{options.rounds}, load {os.getloadavg()[0]:.1f}")  # fmt: skip


def make_bank(folder: Path, size_bytes: int, widths: dict[str, int]) -> Path:
    """A sound slice bank of about this size, with records of drawn bytes."""
    shape = ExpertShape(
        layers=(1,), experts=1, **widths, top_k=1, format="nvfp4", situ_beta=4.0,
        situ_linear_beta=25.0, grid_exponents=(0,),
    )  # fmt: skip
    record = shape.slice_bytes(8)
    shape = ExpertShape(**{**vars(shape), "experts": max(1, size_bytes // record)})
    header = BankHeader("0" * 64, 0, 8, shape, record, map_digest="0" * 64)
    path = folder / bank_name("bench", header)
    with BankWriter(path, header) as writer:
        for index in range(len(RecordOrder(shape))):
            writer.put(index, os.urandom(record))
        writer.publish()
    return path


def plain(path: Path, port: int) -> float:
    """Seconds of socket.sendfile of a file, until the other end has taken all of it."""
    with path.open("rb") as file, socket.create_connection(("127.0.0.1", port)) as sock:
        began = perf_counter()
        sock.sendfile(file)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)
        return perf_counter() - began


@contextmanager
def child(program: str, *arguments: str) -> Iterator[int]:
    """A process that says its port first and ends with the context."""
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
