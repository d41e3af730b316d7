"""Writing traces, as a recorder or an import goes along. The layout is in trace.py."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from k3d.errors import ConfigError, K3Error
from k3d.placement.trace import BLOCK, BLOCK_HEADER, BLOCK_TOKENS, MAGIC, TraceHeader


class TraceWriter:
    """Writes FILE.part and gives it its name on close. Use as a context manager.

    An error leaves the part for `--salvage`. Tokens are kept until a block is full.
    """

    def __init__(self, path: Path, header: TraceHeader) -> None:
        self.path = path
        self.header = header
        self.tokens = 0
        self._part = path.with_name(path.name + ".part")
        self._pending: list[tuple[np.ndarray, np.ndarray | None, np.ndarray]] = []
        self._pending_tokens = 0
        try:
            self._file: BinaryIO = self._part.open("wb")
        except OSError as error:
            raise K3Error(f"{self._part} cannot be written: {error.strerror}") from error
        text = msgspec.json.encode(header)
        self._write(MAGIC + struct.pack("<I", len(text)) + text)

    def append(self, ids: np.ndarray, weights: np.ndarray | None, sequence: np.ndarray) -> None:
        """Add tokens: ids [tokens, layers, top_k], weights alike or None, sequence [tokens].

        Raises ConfigError naming the token, layer and expert that cannot be.
        """
        ids, weights = checked(ids, weights, self.header, self.tokens + self._pending_tokens)
        if sequence.shape != ids.shape[:1]:
            raise ConfigError(f"trace: {len(sequence)} sequence numbers for {len(ids)} tokens")
        self._pending.append((ids, weights, sequence.astype(np.uint32)))
        self._pending_tokens += len(ids)
        if self._pending_tokens >= BLOCK_TOKENS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending, as blocks."""
        if not self._pending_tokens:
            return
        ids = np.concatenate([part[0] for part in self._pending])
        parts = [part[1] for part in self._pending if part[1] is not None]
        weights = np.concatenate(parts) if parts else None
        sequence = np.concatenate([part[2] for part in self._pending])
        self._pending.clear()
        self._pending_tokens = 0
        for start in range(0, len(ids), BLOCK_TOKENS):
            rows = slice(start, start + BLOCK_TOKENS)
            raw = sequence[rows].astype("<u4").tobytes()
            raw += ids[rows].astype("<u2").transpose(1, 0, 2).tobytes()
            if weights is not None:
                raw += weights[rows].astype("<f2").transpose(1, 0, 2).tobytes()
            payload = zlib.compress(raw, 1)
            tokens = len(sequence[rows])
            head = BLOCK_HEADER.pack(BLOCK, tokens, len(payload), zlib.crc32(payload))
            self._write(head + payload)
            self.tokens += tokens

    def close(self) -> None:
        """Write the rest and name the file. Raises ConfigError for a trace of no token."""
        self.flush()
        self._file.close()
        if not self.tokens:
            self._part.unlink()
            raise ConfigError("trace: it holds no token", hint="name a source that has some")
        self._part.replace(self.path)

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise K3Error(f"{self._part} cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._file.close()


def checked(
    ids: np.ndarray, weights: np.ndarray | None, header: TraceHeader, first: int = 0
) -> tuple[NDArray[np.uint16], NDArray[np.float16] | None]:
    """ids ascending as u16 with their weights as f16, [tokens, layers, top_k] both.

    `first` is the number of the first token, for messages. Raises ConfigError.
    """
    wanted = (len(header.layers), header.top_k)
    if ids.ndim != 3 or ids.shape[1:] != wanted or ids.dtype.kind not in "iu":
        raise ConfigError(
            f"trace: ids are {ids.dtype} {list(ids.shape)}, not whole numbers "
            f"[tokens, {wanted[0]}, {wanted[1]}]"
        )
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= header.experts):
        token, layer, place = np.argwhere((ids < 0) | (ids >= header.experts))[0]
        raise ConfigError(
            f"trace: token {first + token} chose expert {ids[token, layer, place]} in layer "
            f"{header.layers[layer]}, which has {header.experts}",
            hint="the trace is of another model, or --experts is wrong",
        )
    order = np.argsort(ids, axis=-1, kind="stable")
    ids = np.take_along_axis(ids, order, -1).astype(np.uint16)
    twice = ids[..., 1:] == ids[..., :-1]
    if twice.any():
        token, layer, place = np.argwhere(twice)[0]
        raise ConfigError(
            f"trace: token {first + token} chose expert {ids[token, layer, place]} of layer "
            f"{header.layers[layer]} twice"
        )
    if (weights is not None) != header.weights:
        raise ConfigError("trace: weights are given for all tokens or for none")
    if weights is None:
        return ids, None
    if weights.shape != ids.shape or weights.dtype.kind != "f":
        raise ConfigError(
            f"trace: weights are {weights.dtype} {list(weights.shape)}, not floats "
            f"{list(ids.shape)}"
        )
    with np.errstate(over="ignore"):
        half = np.take_along_axis(weights, order, -1).astype(np.float16)
    bad = ~np.isfinite(half) | (half < 0)
    if bad.any():
        token, layer, place = np.argwhere(bad)[0]
        raise ConfigError(
            f"trace: token {first + token} gives expert {ids[token, layer, place]} of layer "
            f"{header.layers[layer]} a weight that is not a number from 0 to 65,504"
        )
    return ids, half
