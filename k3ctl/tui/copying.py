"""What is taken out of the console: the row under the cursor copied, table and screen saved."""

from __future__ import annotations

import json
import time

from k3ctl.tui.body import Body
from k3ctl.tui.exports import export_folder, save
from k3ctl.tui.figures import counted
from k3ctl.tui.pane import Chosen, Console


class Copying:
    """Of the pane in front of a body."""

    def __init__(self, console: Console, body: Body) -> None:
        self._console = console
        self._body = body

    def copy_id(self) -> None:
        chosen = self._chosen()
        if chosen is not None:
            self._body.app.copy_to_clipboard(chosen.id)
            self._console.say(f"copied {chosen.id}")

    def copy_row(self) -> None:
        chosen = self._chosen()
        if chosen is not None:
            text = json.dumps(dict(chosen.record), ensure_ascii=False)
            self._body.app.copy_to_clipboard(text)
            self._console.say(f"copied {chosen.id} as JSON, {counted(len(text), 'character')}")

    def _chosen(self) -> Chosen | None:
        pane = self._body.front
        chosen = None if pane is None else pane.chosen()
        if chosen is None:
            self._console.say("nothing is chosen", "warning")
        return chosen

    def save(self) -> None:
        """Look now; write in a thread."""
        pane, name = self._body.front, self._body.front_name
        sheet = None if pane is None else pane.sheet()
        frame = self._console.snapshot.frame
        at_ms = round(time.time() * 1000) if frame is None else frame.at_ms
        svg = self._body.app.export_screenshot(title=f"k3pod {name}")
        folder = export_folder(self._console.home)
        self._console.ask(
            "save",
            lambda: save(sheet, svg, folder, name, at_ms),
            lambda paths: self._console.say("saved " + ", ".join(str(path) for path in paths)),
        )
