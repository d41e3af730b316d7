"""Changing the pod from the console: whether that is allowed, and deeds once they are confirmed."""

from __future__ import annotations

from collections.abc import Callable

from k3ctl.tui.deeds import Deed
from k3ctl.tui.dialogs import ConfirmDialog
from k3ctl.tui.pane import Console
from k3ctl.tui.writing import WriteGuard
from k3d.errors import Refused

Confirm = Callable[[ConfirmDialog, Callable[[bool | None], None]], object]
"""Shows a dialog and calls with what was answered."""


class Changes:
    """Deeds of one console. `reason` says why nothing may be changed, or None."""

    def __init__(self, console: Console, guard: WriteGuard, confirm: Confirm) -> None:
        self.reason = console.not_live or guard.reason()
        self.allowed = self.reason is None
        self._console = console
        self._guard = guard
        self._confirm = confirm

    def carry_out(self, deed: Deed, done: Callable[[], None] | None) -> None:
        if not self.allowed:
            self._console.say(f"nothing is changed: {self.reason}", "warning")
            return

        def answered(wanted: bool | None) -> None:
            if wanted:
                self._console.say(f"$ {deed.command}")
                self._console.ask(f"deed {deed.command}", do, finished)

        def do() -> str:
            reason = self._guard.reason()  # the Station may be another one by now
            if reason is not None:
                raise Refused(f"nothing was changed: {reason}")
            return deed.call()

        def finished(sentence: str) -> None:
            self._console.say(sentence)
            if done is not None:
                done()

        self._confirm(ConfirmDialog(deed), answered)
