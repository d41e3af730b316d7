"""Changing the map in force: each change is planned by the Station first, shown, and confirmed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from k3ctl.cli.placement_swap_text import ended_lines
from k3ctl.client import swaps
from k3ctl.client.candidates import newest_trace, weigh
from k3ctl.tui.deeds import Deed
from k3ctl.tui.pane import Pane
from k3ctl.tui.screens.placement_view import plan_sentence
from k3d.errors import ConfigError
from k3d.store.frame import SwapFrame
from k3d.store.paths import resolve_home

LONGEST_S = 86_400.0
"""A swap is followed for as long."""
RATE_BYTES_S = 64 * 2**20
"""What `k3ctl placement swap` copies a second unless it is told otherwise."""

Plan = Mapping[str, Any]
"""What the Station answers to a dry run."""


class PlacementChanges:
    """Swap, rollback and abort for one pane.

    `planned(name, title, plan)` shows a plan, with the candidate it is about or None; `done` is
    called after a change.
    """

    def __init__(
        self,
        pane: Pane,
        planned: Callable[[str | None, str, Plan], None],
        done: Callable[[], None],
    ) -> None:
        self._pane = pane
        self._planned = planned
        self._done = done
        self._intent: str | None = None

    def _home(self) -> Path | None:
        """Of the Station to be asked; None, and said why, where there is none."""
        console = self._pane.console
        if console.live is None or console.home is None:
            console.say(console.not_live or "these frames have no home to swap in", "warning")
            return None
        return console.home

    def dry_run(self, name: str | None, argument: str | None) -> None:
        self._plan_swap(name, argument, None)

    def swap(self, name: str | None, argument: str | None) -> None:
        self._plan_swap(name, argument, self._confirm_swap)

    def _plan_swap(
        self,
        name: str | None,
        argument: str | None,
        then: Callable[[Path, Plan, str], None] | None,
    ) -> None:
        """Ask the Station what a swap to a candidate would do, show that, and go on. `argument`
        is what swaps name it by; without one its map is planned, and kept in a file, first."""
        console, keep = self._pane.console, self._pane.console.may_write
        home = self._home()
        if home is None:
            return
        if name is None:
            console.say("there is no candidate yet; choose one, then S", "warning")
            return

        def call() -> tuple[Plan, str]:
            named = argument if argument is not None else _kept_map(home, name, keep=keep)
            body = {"placement": swaps.placement_argument(named), "dry_run": True,
                    "rate_bytes_s": RATE_BYTES_S}  # fmt: skip
            return swaps.ask_for_swap(home, body), named

        def show(answer: tuple[Plan, str]) -> None:
            plan, named = answer
            self._planned(name, Path(name).name, plan)
            if then is not None:
                then(home, plan, named)

        if not console.ask("swap-plan", call, show):
            console.say("the Station is still planning", "note")

    def _confirm_swap(self, home: Path, plan: Plan, argument: str) -> None:
        console = self._pane.console
        if not plan["copies"]:
            console.say("the map in force places experts so already")
            return
        body = {"placement": swaps.placement_argument(argument), "if_token": plan["token"],
                "rate_bytes_s": RATE_BYTES_S}  # fmt: skip

        def call() -> str:
            return self._begun(swaps.ask_for_swap(home, body), "to")

        console.carry_out(
            Deed(
                title=f"Swap to {Path(argument).name}",
                command=_command(home, "swap", argument, "--if-token", plan["token"], "--detach"),
                sentence=plan_sentence(plan),
                call=call,
                confirm="Swap",
            ),
            lambda: self._follow(home),
        )

    def roll_back(self) -> None:
        home = self._home()
        if home is None:
            return
        body = {"rate_bytes_s": RATE_BYTES_S, "dry_run": True}

        def show(plan: Plan) -> None:
            self._planned(None, f"back to {plan['name']}", plan)
            self._confirm_rollback(home, plan)

        self._pane.console.ask("swap-plan", lambda: swaps.ask_for_rollback(home, body), show)

    def _confirm_rollback(self, home: Path, plan: Plan) -> None:
        console = self._pane.console
        if not plan["copies"]:
            console.say("the map in force places experts so already")
            return
        body = {"rate_bytes_s": RATE_BYTES_S, "if_token": plan["token"]}

        def call() -> str:
            return self._begun(swaps.ask_for_rollback(home, body), "back to")

        console.carry_out(
            Deed(
                title=f"Roll back to the map of {plan['name']}",
                command=_command(home, "rollback", "--if-token", plan["token"], "--detach"),
                sentence=plan_sentence(plan),
                call=call,
                confirm="Roll back",
            ),
            lambda: self._follow(home),
        )

    def _begun(self, begun: Mapping[str, Any], to: str) -> str:
        """What is said of a swap that the Station has taken up; the thread of its deed calls."""
        self._intent = begun["intent"]
        return f"swap {begun['intent']} {to} {begun['name']} begins"

    def _follow(self, home: Path) -> None:
        """Say how the swap ended when it has: until then it begins, whatever pane is in front."""
        self._done()
        intent = self._intent
        if intent is None:
            return

        def ended(last: Mapping[str, Any]) -> None:
            reason = f": {last['reason']}" if last.get("reason") else ""
            words = f"{ended_lines(last)[0]}{reason}"
            self._pane.console.say(words, "note" if last["state"] == "done" else "alert")
            self._done()

        self._pane.console.ask(
            f"swap {intent}", lambda: swaps.wait_for_swap(home, intent, LONGEST_S, _untold), ended
        )

    def abort(self, swap: SwapFrame | None) -> None:
        """End the swap that is under way."""
        console, home = self._pane.console, self._home()
        if home is None:
            return
        if swap is None:
            console.say("no swap is under way", "warning")
            return

        def call() -> str:
            done = swaps.ask_for_abort(home)
            return f"swap {done['intent']} {done['state']}"

        console.carry_out(
            Deed(
                title=f"Abort the swap to {Path(swap.to).name}",
                command=_command(home, "abort"),
                sentence="The map in force stays; what was copied is dropped.",
                call=call,
                confirm="Abort",
            )
        )


def _untold(_progress: Mapping[str, Any]) -> None:
    """How far a swap is comes with the frames."""


def _kept_map(home: Path, name: str, *, keep: bool) -> str:
    """The file of a map that has to be planned first. Raises ConfigError where it is not kept."""
    found = weigh(home, name, newest_trace(home), keep=keep).argument
    if found is None:
        raise ConfigError(
            f"{name} is planned from a trace, and a read-only console keeps no map",
            hint=f"plan it: k3ctl placement plan --policy {name} --trace FILE --out MAP.json",
        )
    return found


def _command(home: Path, *words: str) -> str:
    """The k3ctl line that does the same."""
    flag = () if resolve_home() == home else ("--home", str(home))
    return shlex.join(("k3ctl", "placement", *words, *flag))
