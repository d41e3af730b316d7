"""Pieces between the network and the disk: in order, bounded, and stopped by an error."""

from __future__ import annotations

import threading

import pytest

from k3d.errors import BankError
from k3d.staging.pieces import Pieces, Step


def test_every_piece_takes_every_step_in_order() -> None:
    seen: list[tuple[str, int, bytes]] = []
    guard = threading.Lock()

    def step(name: str) -> Step:
        def do(first: int, piece: memoryview) -> None:
            with guard:
                seen.append((name, first, bytes(piece)))

        return do

    with Pieces((step("check"), step("write")), 4) as pieces:
        for number in range(20):
            buffer = pieces.buffer()[:3]
            buffer[:] = bytes([number] * 3)
            pieces.put(number, buffer)
    for name in ("check", "write"):
        assert [found[1:] for found in seen if found[0] == name] == [
            (number, bytes([number] * 3)) for number in range(20)
        ]
    for number in range(20):
        order = [found[0] for found in seen if found[1] == number]
        assert order == ["check", "write"]


def test_no_more_buffers_than_steps_and_one() -> None:
    going = threading.Event()
    taken: list[memoryview] = []

    def wait(_first: int, _piece: memoryview) -> None:
        assert going.wait(10.0)

    with Pieces((wait, wait), 1) as pieces:

        def fill() -> None:
            for number in range(4):
                taken.append(pieces.buffer())
                pieces.put(number, taken[-1])

        filler = threading.Thread(target=fill)
        filler.start()
        filler.join(0.5)
        assert len(taken) == 3
        going.set()
        filler.join(10.0)
    assert len(taken) == 4


@pytest.mark.parametrize("at", [0, 1])
def test_an_error_ends_it_and_nothing_more_is_done(at: int) -> None:
    done: list[list[int]] = [[], []]

    def step(number: int) -> Step:
        def do(first: int, _piece: memoryview) -> None:
            if number == at and first == 2:
                raise BankError("the disk is on fire")
            done[number].append(first)

        return do

    def send() -> None:
        with Pieces((step(0), step(1)), 1) as pieces:
            for number in range(50):
                pieces.put(number, pieces.buffer())

    with pytest.raises(BankError, match="on fire"):
        send()
    assert done[at] == [0, 1]
    assert set(done[1]) <= {0, 1}
