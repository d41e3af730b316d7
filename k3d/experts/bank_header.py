"""What a bank says of itself, and in which order its records lie."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

from k3d.errors import BankError, ConfigError
from k3d.experts.shape import ExpertFormat, ExpertShape

SEGMENT_BYTES = 256 * 2**10
"""Of banks that are made now."""
MOST_SEGMENT_BYTES = 16 * 2**20
MOST_EXPERTS = 2**22
REBUILD = "remove the file, then: k3ctl bank build, or k3ctl pod down and k3ctl pod up"


class BankHeader(msgspec.Struct, frozen=True):
    """What a bank holds; checked against the pod before a byte of it is served."""

    model_digest: str
    slice_index: int
    slice_count: int
    shape: ExpertShape
    record_bytes: int
    shards: tuple[tuple[str, int, int], ...] = ()
    """Name, bytes and mtime_ns of the shards it was built from; another set means build again."""
    weights: dict[str, bytes] = {}
    """blake3 of the tensors outside the experts, by name, as they were then."""
    map_digest: str | None = None
    """The placement that chose its experts; None for a bank of all."""
    held: bytes = b""
    """One bit an expert, in record order from the lowest bit of byte 0; empty holds all."""
    recast_from: ExpertFormat | None = None
    """The release's format, when the records are an exact recast of it."""
    segment_bytes: int = 64 * 2**10
    """Most of a segment; a bank that does not say was made with this."""


def decode_header(encoded: bytes, name: str) -> BankHeader:
    """A header from its bytes. Raises BankError where it is none or contradicts itself."""
    try:
        header = msgspec.msgpack.decode(encoded, type=BankHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BankError(
            f"bank {name} has a header of another version: {error}", hint=REBUILD
        ) from None
    shape, total = header.shape, len(header.shape.layers) * header.shape.experts
    try:
        sound = (
            0 < total <= MOST_EXPERTS
            and len(set(shape.layers)) == len(shape.layers)
            and 0 <= header.slice_index < header.slice_count
            and header.record_bytes == shape.slice_bytes(header.slice_count) > 0
            and len(header.held) in (0, -(-total // 8))
            and 0 <= header.segment_bytes <= MOST_SEGMENT_BYTES
        )
    except (ConfigError, ArithmeticError):
        sound = False
    if not sound:
        raise BankError(f"bank {name} has a header that contradicts itself", hint=REBUILD)
    return header


class RecordOrder(Sequence[tuple[int, int]]):
    """(layer, expert) of every record of a bank, by its index in the file."""

    def __init__(self, shape: ExpertShape, held: bytes = b"") -> None:
        self._layers = shape.layers
        self._experts = shape.experts
        self._row_of = {layer: row for row, layer in enumerate(shape.layers)}
        self._total = len(shape.layers) * shape.experts
        self._positions: range | list[int] = range(self._total)
        if held:
            places = (
                8 * number + bit
                for number, byte in enumerate(held)
                if byte
                for bit in range(8)
                if byte >> bit & 1
            )
            self._positions = [place for place in places if place < self._total]

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: int) -> tuple[int, int]:  # type: ignore[override]
        row, expert = divmod(self._positions[index], self._experts)
        return self._layers[row], expert

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (self[index] for index in range(len(self)))

    def find(self, layer: int, expert: int) -> int | None:
        """Index of an expert's record; None where the bank does not hold it."""
        row = self._row_of.get(layer)
        if row is None or not 0 <= expert < self._experts:
            return None
        place = row * self._experts + expert
        if isinstance(self._positions, range):
            return place
        index = bisect_left(self._positions, place)
        found = index < len(self._positions) and self._positions[index] == place
        return index if found else None


def held_mask(shape: ExpertShape, experts: Sequence[tuple[int, int]]) -> bytes:
    """The `held` of a bank of these (layer, expert)."""
    row_of = {layer: row for row, layer in enumerate(shape.layers)}
    mask = bytearray(-(-len(shape.layers) * shape.experts // 8))
    for layer, expert in experts:
        place = row_of[layer] * shape.experts + expert
        mask[place // 8] |= 1 << place % 8
    return bytes(mask)
