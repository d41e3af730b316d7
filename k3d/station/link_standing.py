"""Where a link stands, why, and who is told: the threads that wait, callers by an error, the log
once."""

from __future__ import annotations

import logging
import threading

from k3d.errors import K3Error, NodeLost, Refused, TimedOut
from k3d.station.link_state import LinkState, Standing

log = logging.getLogger(__name__)


class LinkStanding:
    """The standing of the link to `node`. Any thread."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._changed = threading.Condition()  # guards and announces `now`
        self._told: set[Standing] = set()  # what the log holds since the link was last ready
        self.now = Standing("connecting")
        self.loss = ""
        """Why the link was lost last."""

    @property
    def ready(self) -> bool:
        return self.now.state == "ready"

    def wait_ready(self, timeout_s: float) -> None:
        """Raises Refused as soon as the link is, and TimedOut with the state when it is not ready
        in time."""
        with self._changed:
            self._changed.wait_for(lambda: self.now.state in ("ready", "refused"), timeout_s)
            now = self.now
        if now.state == "refused":
            raise self.error()
        if now.state != "ready":
            why = f": {now.reason}" if now.reason else ""
            raise TimedOut(
                f"{self._node} is {now.state} after {timeout_s:.1f} s{why}",
                hint=f"k3ctl logs {self._node}",
            )

    def become(self, state: LinkState, reason: str | None = None, hint: str | None = None) -> None:
        """The spark's name goes in front of a reason where a transport knew only an address."""
        if reason is not None and self._node not in reason:
            reason = f"{self._node}: {reason}"
        standing = Standing(state, reason, hint)
        with self._changed:
            self.now = standing
            self._changed.notify_all()
        if state == "lost":
            self.loss = reason or ""
        if standing not in self._told:
            # Once: what fails every two seconds for a week is one line, not a million.
            level = logging.WARNING if state == "refused" else logging.INFO
            log.log(level, "%s is %s%s", self._node, state, f": {standing}" if reason else "")
        if state == "ready":
            self._told.clear()
        else:
            self._told.add(standing)

    def after(self, error: K3Error) -> None:
        """The standing after a try that failed.

        Never reached yet: still connecting. Lost before: still lost, with the newest reason. What
        waiting does not mend is refused, and stays so through the tries that follow.
        """
        if not error.retryable:
            self.become("refused", error.message, error.hint)
        elif self.now.state == "connecting":
            self.become("connecting", error.message)
        else:
            self.become("lost", error.message)

    def error(self) -> NodeLost | Refused:
        """What a caller gets who needs a link that is not ready."""
        now = self.now
        if now.state == "refused":
            return Refused(now.reason or f"{self._node} is refused", hint=now.hint)
        return self.lost(now.reason or f"{self._node} is {now.state}")

    def lost(self, reason: str) -> NodeLost:
        return NodeLost(self._node, reason, hint=f"k3ctl logs {self._node}")
