"""What to run after a look at drift: measure the tiers and look again, or replan and swap."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from k3ctl.client.map_in_force import InForce
from k3ctl.client.next_command import at_home
from k3ctl.client.pod_run import read_pod_run
from k3d.errors import K3Error
from k3d.placement.pod import PodDescription, load_pod

PLANNED = "replanned.json"


@dataclass(frozen=True)
class Look:
    """One look at drift, as it was asked for: a trace or the newest of live traffic, a policy."""

    home: Path
    trace: str | None
    since_s: float | None
    policy: str | None

    @property
    def replan(self) -> str:
        """Write the map that this look plans, and serve by it."""
        return at_home(
            f"{self._again} --out {PLANNED} && k3ctl placement swap {PLANNED}", self.home
        )

    @property
    def ask(self) -> str:
        """Ask the pod something and look again."""
        return at_home(f"k3ctl chat 'What is a map for?' && {self._again}", self.home)

    def measure(self, in_force: InForce) -> str | None:
        """Measure what the tiers cost and look again; None where k3ctl cannot measure the pod."""
        name = _described_by(self.home, in_force.pod)
        if name is None or any(not node.loopback for node in in_force.pod.nodes):
            return None
        measured = f"k3ctl placement measure {shlex.quote(name)}"
        return at_home(f"{measured} && {self._again}", self.home)

    @property
    def _again(self) -> str:
        words = ["k3ctl", "placement", "drift"]
        words += [] if self.trace is None else [self.trace]
        words += [] if self.since_s is None else ["--since", f"{self.since_s:g}"]
        words += [] if self.policy is None else ["--policy", self.policy]
        return shlex.join(words)


def _described_by(home: Path, pod: PodDescription) -> str | None:
    """The name or the file by which commands find the description of a pod that has served."""
    run = read_pod_run(home)
    for name in (pod.name, *([run.path] if run is not None else [])):
        try:
            found = load_pod(name, home)
        except K3Error:
            continue
        if (found.name, found.slots) == (pod.name, pod.slots):
            return name
    return None
