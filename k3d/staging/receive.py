"""Receiving banks: who calls, what is offered, and whether it is what its manifest says."""

from __future__ import annotations

import logging
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from blake3 import blake3

from k3d import __version__
from k3d.errors import BankError, FabricError, HandshakeRefused, K3Error, NotFound
from k3d.experts.bank_file import Bank
from k3d.experts.bank_layout import PREFIX, BankLayout, Manifest
from k3d.staging.bank_names import bank_suffix, check_name
from k3d.staging.transfer import Transfer
from k3d.staging.wire import STALL_S, Answer, Channel, Offer, Wanted, Welcome

GREETING_S = 5.0
EXPECTED_BYTES = 4 * 2**20
"""Room in the kernel for what comes while a piece waits for a buffer."""
MOST_MANIFEST_BYTES = 512 * 2**20
MOST_INFLATED = 2**20
"""Deflating what does not shrink makes it a little longer."""
MOST_CALLERS = 8

log = logging.getLogger(__name__)


class Receiver:
    """Takes banks for one node into `folder`. `address` is where it listens."""

    def __init__(self, folder: Path, node: str, secret: bytes, host: str, port: int) -> None:
        self.folder = folder
        self.node = node
        self._secret = secret
        self._stopping = threading.Event()
        self._callers = threading.BoundedSemaphore(MOST_CALLERS)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._sock = socket.create_server((host, port), family=family)
        except OSError as error:
            raise FabricError(
                f"{node} cannot listen on {host}:{port}: {error.strerror or error}",
                hint="choose another address with --listen",
            ) from None
        found = self._sock.getsockname()
        self.address = f"[{found[0]}]:{found[1]}" if ":" in found[0] else f"{found[0]}:{found[1]}"

    def run(self, transfers: int | None = None) -> None:
        """Serve until `stop`, or until so many transfers ended well."""
        left = threading.Semaphore(0)
        self._sock.settimeout(0.2)
        done = 0
        while not self._stopping.is_set():
            while left.acquire(blocking=False):
                done += 1
            if transfers is not None and done >= transfers:
                return
            try:
                sock, _ = self._sock.accept()
            except (TimeoutError, OSError):
                continue
            if not self._callers.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(target=self._serve, args=(sock, left), daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self.stop()
        self._sock.close()

    def _serve(self, sock: socket.socket, ended: threading.Semaphore) -> None:
        channel = Channel(sock, "the sender")
        try:
            channel.allow(GREETING_S)
            self._take(channel)
            ended.release()
        except FabricError as error:
            log.warning("%s: a transfer ended: %s", self.node, error)
        except K3Error as error:
            log.warning("%s: %s", self.node, error)
            channel.refuse(error)
        except OSError as error:
            log.warning("%s: %s", self.node, error)
            channel.refuse(BankError(f"{self.node}: {error.strerror or error}"))
        finally:
            channel.close()
            self._callers.release()

    def _take(self, channel: Channel) -> None:
        welcome = Welcome(channel, self._secret)
        offer = welcome.hear()
        self._check(offer)
        channel.allow(STALL_S)
        channel.expect(EXPECTED_BYTES)
        path = self.folder / offer.name
        manifest = _manifest_at(path, offer)
        has = manifest is not None
        welcome.answer(Answer(self.node, has))
        if manifest is None:
            manifest = _receive_manifest(channel, offer)
        transfer = Transfer(channel, path, manifest, offer.look_only)
        if has:
            transfer.mend()
        elif offer.look_only:
            channel.send(Wanted([(0, manifest.layout.count)], 0))
        else:
            transfer.fill()

    def _check(self, offer: Offer) -> None:
        check_name(offer.name)
        if offer.version != __version__:
            raise HandshakeRefused(
                f"{self.node} runs k3d {__version__}, the sender {offer.version}",
                hint="install the same k3pod on every node",
            )
        if offer.node != self.node:
            raise NotFound(
                f"{self.node} answered where {offer.node} was called",
                hint="two addresses are swapped: check the pod description",
            )
        sound = PREFIX.size < offer.manifest_bytes <= offer.size_bytes
        if not sound or not 0 < offer.deflated_bytes <= offer.manifest_bytes + MOST_INFLATED:
            raise BankError(f"the offer of {offer.name} contradicts itself")


def _manifest_at(path: Path, offer: Offer) -> Manifest | None:
    """The manifest of the bank that is there, if it is the offered one."""
    try:
        bank = Bank(path)
    except BankError:
        return None
    bank.close()
    same = blake3(bank.manifest.packed).digest() == offer.manifest_digest
    return bank.manifest if same else None


def _receive_manifest(channel: Channel, offer: Offer) -> Manifest:
    """The offered manifest off the wire. Raises BankError unless it is that."""
    name = offer.name
    if offer.manifest_bytes > MOST_MANIFEST_BYTES:
        raise BankError(f"the manifest of {name} is {offer.manifest_bytes} bytes: too many")
    deflated = bytearray(offer.deflated_bytes)
    channel.receive_into(memoryview(deflated))
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(deflated, offer.manifest_bytes + 1) + inflate.unused_data
    except zlib.error:
        raw = b""
    if blake3(raw).digest() != offer.manifest_digest or len(raw) != offer.manifest_bytes:
        raise BankError(f"the manifest of {name} was damaged on the way", hint="send it again")
    _, length, _, _ = PREFIX.unpack_from(raw)
    encoded = bytes(raw[PREFIX.size : PREFIX.size + length])
    layout = BankLayout.decoded(encoded, name)
    table = layout.table_start
    manifest = Manifest(layout, bytes(raw[table : table + layout.table_bytes]))
    if manifest.packed != raw or layout.size_bytes != offer.size_bytes:
        raise BankError(f"the manifest of {name} contradicts itself", hint="build the bank again")
    if not name.endswith(bank_suffix(layout.header)):
        raise BankError(f"{name} is the name of another bank than the one offered")
    return manifest


@contextmanager
def receiving(receiver: Receiver) -> Iterator[Receiver]:
    """A receiver that serves in a thread of its own until the context ends."""
    thread = threading.Thread(target=receiver.run, name=f"{receiver.node}-receiver", daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.stop()
        thread.join()
        with suppress(OSError):
            receiver.close()
