"""One request and its answer, for everything that is not on the token path."""

from __future__ import annotations

from collections.abc import Sequence

from k3d.errors import FabricError, TimedOut
from k3d.fabric.control import failure_sentence
from k3d.fabric.frames import Buffer, Frame, Kind
from k3d.fabric.link import Link


def ask(
    link: Link,
    kind: Kind,
    answer: Kind,
    *,
    epoch: int,
    sequence: int,
    timeout_s: float,
    rows: int = 0,
    parts: Sequence[Buffer] = (),
) -> Frame:
    """Send one frame and return its answer, which must be of kind `answer`.

    Raises TimedOut when none comes, FabricError for an ERROR, another frame or a broken link.
    """
    link.send(kind, epoch=epoch, sequence=sequence, rows=rows, parts=parts)
    try:
        frame = link.receive(timeout_s)
    except TimedOut:
        raise TimedOut(f"{link.peer} did not answer {kind.name} within {timeout_s:.1f} s") from None
    if frame.kind is Kind.ERROR:
        raise FabricError(
            f"{link.peer} did not serve {kind.name}: {failure_sentence(frame, link.peer)}"
        )
    if frame.kind is not answer or frame.sequence != sequence:
        raise FabricError(
            f"{link.peer} answered {frame.kind.name} {frame.sequence} to {kind.name} {sequence}"
        )
    return frame
