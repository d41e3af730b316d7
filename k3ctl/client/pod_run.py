"""run/pod.json: which pod was brought up here and how, for the commands that come after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from k3d.errors import StoreError
from k3d.store.paths import run_directory
from k3d.store.run_file import write_atomically

if TYPE_CHECKING:
    from k3d.placement.pod import PodDescription

SCHEMA = "k3ctl.pod-run/1"
EMBEDDED = "embedded"
"""The description of a pod on one machine."""


class NodeOfRun(msgspec.Struct, frozen=True):
    """A node that was to run."""

    name: str
    role: str
    local: bool


class PodRun(msgspec.Struct, frozen=True, kw_only=True):
    """What `pod up` was told. Two runs with equal `digest` differ in nothing."""

    schema: str = SCHEMA
    pod: str
    path: str
    digest: str
    transport: str
    placement: str
    dtype: str
    chunk: int
    nodes: tuple[NodeOfRun, ...]

    @classmethod
    def of(cls, description: PodDescription, path: Path) -> PodRun:
        """The run of a description with every option in force. Under inproc only the Station."""
        return cls(
            pod=description.name,
            path=str(path),
            digest=description.digest,
            transport=description.transport,
            placement=description.placement,
            dtype=description.dtype,
            chunk=description.chunk,
            nodes=tuple(
                NodeOfRun(node.name, node.role, node.loopback)
                for node in description.nodes
                if node.role == "station" or description.transport != "inproc"
            ),
        )

    def write(self, home: Path) -> None:
        write_atomically(_path(home), msgspec.json.encode(self))


def read_pod_run(home: Path) -> PodRun | None:
    """What was brought up, or None. Raises StoreError when the file is damaged."""
    path = _path(home)
    try:
        run = msgspec.json.decode(path.read_bytes(), type=PodRun)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(
            f"{path} cannot be read: {error}", hint="remove it, then: k3ctl pod down"
        ) from error
    return run


def pod_meant(home: Path, given: str | None) -> str:
    """The pod that a command is about, by name or file: the one given, else the one that runs here,
    else the embedded one."""
    if given is not None:
        return given
    run = read_pod_run(home)
    return EMBEDDED if run is None else run.path


def remove_pod_run(home: Path) -> None:
    _path(home).unlink(missing_ok=True)


def _path(home: Path) -> Path:
    return run_directory(home) / "pod.json"
