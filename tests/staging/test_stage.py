"""Staging: to many at once, what arrives is what was sent, and only what is missing is sent."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from k3d import __version__
from k3d.errors import BankError, ExitCode, FabricError, HandshakeRefused, K3Error
from k3d.experts import bank_writer
from k3d.experts.bank_file import Bank
from k3d.staging import transfer, wanted
from k3d.staging.bank_names import check_name
from k3d.staging.pace import Pace
from k3d.staging.receive import Receiver, receiving
from k3d.staging.send import Sent, send_bank
from k3d.staging.transfer import runs_of
from k3d.staging.wire import Channel, Offer, offer
from k3d.store.home import read_secret
from tests.staging.conftest import Make, PodHome, flip
from tests.tiny_checkpoint import TinyModel

SECRET = bytes(range(32))
NODE = "spark-1"


@contextmanager
def receiver(folder: Path, node: str = NODE, secret: bytes = SECRET) -> Iterator[Receiver]:
    with receiving(Receiver(folder, node, secret, "127.0.0.1", 0)) as found:
        yield found


def send(
    path: Path, to: Receiver, *, secret: bytes = SECRET, node: str = NODE, look_only: bool = False
) -> Sent:
    bank = Bank(path)
    try:
        return send_bank(
            bank, node, to.address, secret, Pace(), lambda _: None, look_only=look_only
        )
    finally:
        bank.close()


def test_what_arrives_is_what_was_sent(built: PodHome, tmp_path: Path) -> None:
    path = built.slice(1)
    with receiver(tmp_path / "taken") as to:
        sent = send(path, to)
    assert (tmp_path / "taken" / path.name).read_bytes() == path.read_bytes()
    assert [p.name for p in (tmp_path / "taken").iterdir()] == [path.name]
    bank = Bank(path)
    bank.close()
    layout = bank.manifest.layout
    records = path.stat().st_size - layout.data_start
    assert records < sent.payload_bytes < records + layout.packed_bytes
    assert sent.wire_bytes - sent.payload_bytes < 2000


def test_what_is_there_is_not_sent_again(built: PodHome, tmp_path: Path) -> None:
    path = built.slice(1)
    with receiver(tmp_path) as to:
        send(path, to)
        again = send(path, to)
    assert (again.payload_bytes, again.kept, again.lacking) == (0, again.records, 0)


def test_a_damaged_copy_is_mended_by_what_it_lacks(built: PodHome, tmp_path: Path) -> None:
    path = built.slice(1)
    taken = tmp_path / path.name
    with receiver(tmp_path) as to:
        send(path, to)
        bank = Bank(path)
        size = bank.header.record_bytes
        bank.close()
        for index in (2, 3, 9):
            flip(taken, bank.manifest.layout.offset(index) + 7)
        look = send(path, to, look_only=True)
        assert (look.lacking, look.payload_bytes) == (3, 0)
        sent = send(path, to)
        assert (sent.repaired, sent.payload_bytes) == (3, 3 * size)
        assert taken.read_bytes() == path.read_bytes()
        flip(taken, 50)  # its manifest: then it is sent whole, under the same name
        assert send(path, to).records == len(bank.order)
    assert taken.read_bytes() == path.read_bytes()


def test_a_transfer_that_was_cut_goes_on(
    pod_home: PodHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wanted, "SEGMENT_BYTES", 8192)
    assert pod_home.bank("build").code == 0
    path, put, left = pod_home.slice(1), bank_writer.BankWriter.write_run, 3
    monkeypatch.setattr(transfer, "PIECE_BYTES", 8192)

    def cut(self: bank_writer.BankWriter, first: int, records: memoryview) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise BankError("the disk is on fire", hint="put it out")
        put(self, first, records)

    with receiver(tmp_path) as to:
        monkeypatch.setattr(bank_writer.BankWriter, "write_run", cut)
        with pytest.raises(K3Error, match="the disk is on fire"):
            send(path, to)
        assert not (tmp_path / path.name).exists()
        monkeypatch.setattr(bank_writer.BankWriter, "write_run", put)
        sent = send(path, to)
    assert sent.kept > 0
    assert sent.lacking == sent.records - sent.kept
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_damaged_source_is_named_and_nothing_of_it_is_kept(
    built: PodHome, tmp_path: Path
) -> None:
    path = built.slice(1)
    bank = Bank(path)
    bank.close()
    flip(path, bank.manifest.layout.offset(5) + 3)
    layer, expert = bank.order[5]
    with receiver(tmp_path) as to, pytest.raises(K3Error, match=f"layer {layer} expert {expert} "):
        send(path, to)
    assert not (tmp_path / path.name).exists()


def test_another_secret_is_refused(built: PodHome, tmp_path: Path) -> None:
    with receiver(tmp_path) as to, pytest.raises(HandshakeRefused, match="pod's secret"):
        send(built.slice(1), to, secret=bytes(32))
    assert list(tmp_path.glob("*.bank")) == []


def test_a_caller_without_the_secret_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    with receiver(folder) as to:
        host, _, port = to.address.rpartition(":")
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(b"\x00\x00\x00\x10" * 64)
            sock.settimeout(5.0)
            with suppress(ConnectionResetError):
                while sock.recv(4096):
                    pass
    assert not folder.exists()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"version": "9.9"}, "the sender 9.9"),
        ({"node": "spark-2"}, "answered where spark-2 was called"),
        ({"name": "../../x.bank"}, "is no name of a bank file"),
        ({"name": "/etc/x.bank"}, "is no name of a bank file"),
        ({"manifest_bytes": 10**15, "size_bytes": 10**16}, "too many"),
        ({"manifest_bytes": 4}, "contradicts itself"),
        ({"deflated_bytes": 0}, "contradicts itself"),
        ({"deflated_bytes": 2**21}, "contradicts itself"),
    ],
)
def test_offers_that_are_refused(tmp_path: Path, changed: dict[str, object], sentence: str) -> None:
    facts = {
        "version": __version__, "node": NODE, "name": "x.bank", "size_bytes": 8192,
        "manifest_bytes": 4096, "deflated_bytes": 900, "manifest_digest": bytes(32), **changed,
    }  # fmt: skip
    with receiver(tmp_path) as to:
        host, _, port = to.address.rpartition(":")
        channel = Channel(socket.create_connection((host, int(port))), NODE)

        def make_offer() -> None:
            offer(channel, SECRET, Offer(**facts))  # type: ignore[arg-type]
            channel.receive_any()

        with pytest.raises(K3Error, match=sentence):
            make_offer()
        channel.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".hidden.bank", "a/b.bank", "..", "x.bank\n", "x.txt"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(BankError, match="no name of a bank file"):
        check_name(name)


def test_nobody_there(built: PodHome, tmp_path: Path) -> None:
    with receiver(tmp_path) as to:
        pass
    with pytest.raises(FabricError, match="nothing receives banks for spark-1"):
        send(built.slice(1), to)


def test_a_full_disk_there_is_said_here(
    built: PodHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "free_bytes", lambda _folder: 1000)
    with receiver(tmp_path) as to, pytest.raises(K3Error, match="has 1000 bytes free"):
        send(built.slice(1), to)
    assert list(tmp_path.glob("*.bank")) == []


def test_a_source_that_is_cut_short_while_it_is_sent(
    built: PodHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sendfile = built.slice(1), os.sendfile

    def cutting(target: int, source: int, offset: int, count: int) -> int:
        os.truncate(path, 9000)
        return sendfile(target, source, offset, min(count, 4096))

    monkeypatch.setattr(os, "sendfile", cutting)
    with receiver(tmp_path) as to, pytest.raises(BankError, match="was cut short"):
        send(path, to)
    assert list(tmp_path.glob("*.bank")) == []


def test_runs() -> None:
    assert runs_of([]) == []
    assert runs_of([0, 1, 2, 5, 7, 8]) == [(0, 3), (5, 1), (7, 2)]


def test_a_pace_shares_a_rate() -> None:
    now, waited = 0.0, []

    def wait(time_s: float) -> None:
        nonlocal now
        waited.append(time_s)
        now += time_s

    pace = Pace(1000.0, clock=lambda: now, wait=wait)
    for _ in range(4):
        pace.take(500)
    assert waited == [0.5, 0.5, 0.5]
    assert Pace(2**20).chunk_bytes == 2**17
    assert Pace(None).chunk_bytes == 4 * 2**20


def test_eight_sparks_at_once(make_home: Make) -> None:
    """Real processes: every spark has its slice, for little more than its bytes."""
    pod = make_home(TinyModel(seed=4, expert_width=128), 8)
    assert pod.bank("build", "--no-whole").code == 0
    ran = pod.run("stage", "--progress")
    assert ran.code == ExitCode.OK, ran.err
    nodes = ran.document["nodes"]
    assert [node["node"] for node in nodes] == [f"spark-{n}" for n in range(1, 9)]
    for number, node in enumerate(nodes, start=1):
        path = pod.slice(number)
        assert (pod.banks / node["node"] / path.name).read_bytes() == path.read_bytes()
        bank = Bank(path)
        bank.close()
        slices = len(bank.order) * bank.header.record_bytes
        assert slices < node["payload_bytes"] < node["wire_bytes"] < 1.03 * path.stat().st_size
        assert node["wire_bytes"] < slices + bank.manifest.layout.packed_bytes + 2000
    again = pod.bank("stage", "--node", "spark-3").document["nodes"]
    assert [(node["node"], node["payload_bytes"]) for node in again] == [("spark-3", 0)]
    assert pod.bank("verify").code == ExitCode.OK
    victim = pod.banks / "spark-5" / pod.slice(5).name
    flip(victim, victim.stat().st_size - 3)
    damage = pod.bank("verify").document["damages"]
    assert [(d["node"], d["file"]) for d in damage] == [("spark-5", str(victim))]
    assert pod.bank("verify", "--repair").code == ExitCode.OK
    assert victim.read_bytes() == pod.slice(5).read_bytes()


def test_some_nodes_and_not_others(built: PodHome, tmp_path: Path) -> None:
    with receiver(tmp_path / "one", "spark-1", read_secret(built.home)) as one:
        to = ["--to", f"spark-1={one.address}", "--to", "spark-2=127.0.0.1:9"]
        ran = built.bank("stage", *to)
        assert ran.code == ExitCode.PARTIAL
        good, bad = ran.document["nodes"]
        assert (good["error"], bad["error"]["name"]) == (None, "UNREACHABLE")
        assert built.bank("stage", "--node", "spark-2", *to).code == ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--node", "spark-9"], ExitCode.NOT_FOUND, "no spark named 'spark-9'"),
        (["--to", "spark-1"], ExitCode.USAGE, "names no node and address"),
        ([], ExitCode.FAILED, "the slice for spark-1 is missing"),
    ],
)
def test_what_cannot_be_staged(
    pod_home: PodHome, arguments: list[str], code: int, sentence: str
) -> None:
    ran = pod_home.bank("stage", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert sentence in ran.error["message"]


def test_a_receiver_ends_with_whoever_started_it(pod_home: PodHome) -> None:
    process = pod_home.process(
        "receive", "--name", NODE, "--listen", "127.0.0.1:0", "--watch-stdin",
        stdin=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert '"address": "127.0.0.1:' in process.stdout.readline()
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()


def test_receivers_take_several_at_once(built: PodHome, tmp_path: Path) -> None:
    sent: list[Sent] = []
    with receiver(tmp_path) as to:
        threads = [
            threading.Thread(target=lambda n=n: sent.append(send(built.slice(n), to)))
            for n in (1, 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(sent) == 2
    assert len(list(tmp_path.glob("*.bank"))) == 2
