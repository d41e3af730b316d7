"""Every error k3pod shows a person, and the exit code it ends a command with.

An error has three parts: what happened and to what (`message`), what to do next (`hint`), and a
code from the one table below. Scripts rely on the table; man/k3ctl.1 prints it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Exit codes of k3ctl and k3d. An interface: numbers are never reused."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMEOUT = 4
    REFUSED = 5
    PARTIAL = 6
    NOT_FOUND = 10
    LOCKED = 11
    STALE = 12
    DIFFERS = 13
    WOULD_CHANGE = 20
    INTERRUPT = 130
    TERMINATED = 143


class HealthCode(IntEnum):
    """Exit codes of `k3ctl health` and `k3ctl pod status`, which report a state, not a failure."""

    HEALTHY = 0
    DEGRADED = 1
    DOWN = 3
    UNKNOWN = 4

    @classmethod
    def of(cls, state: str) -> HealthCode:
        """The code of a state's word; what is no state is unknown."""
        return cls.__members__.get(state.upper(), cls.UNKNOWN)


class K3Error(Exception):
    """An error with a sentence for a person and a code for a script."""

    code: ExitCode = ExitCode.FAILED
    retryable: bool = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def document(self) -> dict[str, Any]:
        """The error as JSON carries it: on stderr, in a stream's last line, in a response.

        `node` is the node that was lost, if it was that.
        """
        return {
            "type": "error",
            "code": int(self.code),
            "name": self.code.name,
            "node": getattr(self, "node", None),
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
        }


class ConfigError(K3Error):
    """A flag, description, policy or model config that cannot be used."""

    code = ExitCode.USAGE


class CheckpointError(K3Error):
    """A checkpoint that is damaged, incomplete or of another model."""


class BankError(K3Error):
    """A bank or a record that does not hold what it should."""


class StoreError(K3Error):
    """state.db or telemetry.db cannot be read or written."""


class FabricError(K3Error):
    """A link to a node broke or carried something that is not a frame."""

    code = ExitCode.UNREACHABLE
    retryable = True


class NodeLost(FabricError):
    """A node stopped answering; `node` is its name."""

    def __init__(self, node: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.node = node


class HandshakeRefused(K3Error):
    """The two ends of a link do not belong to the same pod, model, slice or version."""

    code = ExitCode.REFUSED


class Refused(K3Error):
    """The request is understood and not allowed."""

    code = ExitCode.REFUSED


class TimedOut(K3Error):
    """Nothing came within the time given."""

    code = ExitCode.TIMEOUT
    retryable = True


class NotFound(K3Error):
    """The thing named does not exist."""

    code = ExitCode.NOT_FOUND


class TokensDiffer(K3Error):
    """Two ways of decoding gave different tokens."""

    code = ExitCode.DIFFERS


class PlanStale(K3Error):
    """The state that a plan was made from has changed since."""

    code = ExitCode.STALE


class Locked(K3Error):
    """Another process holds the lock."""

    code = ExitCode.LOCKED
    retryable = True
