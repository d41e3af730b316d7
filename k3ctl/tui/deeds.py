"""What changes the pod: a deed is shown as the k3ctl line it is, confirmed, then done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Deed:
    """One change. `command` is the k3ctl line that does the same; `sentence` says what will happen.

    `call` runs in a thread and returns a sentence that says what was done; it raises K3Error. With
    a `word`, that word has to be typed before it can be confirmed: for what cannot be taken back.
    """

    title: str
    command: str
    sentence: str
    call: Callable[[], str]
    confirm: str = "Do it"
    word: str | None = None
