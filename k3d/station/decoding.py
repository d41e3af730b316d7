"""How a Station decodes: its drafter, its lanes and what it keeps for the next turn."""

from __future__ import annotations

import logging
from pathlib import Path

from k3d.engine.engine import Limits
from k3d.engine.synthetic import SyntheticAcceptance
from k3d.errors import ConfigError
from k3d.model.config import ModelConfig
from k3d.model.drafter import Drafter, load_drafter
from k3d.model.weights import ModelWeights
from k3d.placement.pod import LOOPBACK, PodDescription
from k3d.station.options import StationOptions

BESIDE = "drafter"
"""The folder of a model that holds its drafter."""
MIB = 2**20

log = logging.getLogger(__name__)


def find_drafter(
    wanted: str, model: Path, home: Path, config: ModelConfig, weights: ModelWeights
) -> Drafter | None:
    """The drafter that `wanted` names (auto, none or a folder), checked against the model."""
    if wanted == "none":
        return None
    folder = model / BESIDE if wanted == "auto" else Path(wanted).expanduser()
    if wanted != "auto" and not folder.is_absolute() and not folder.is_dir():
        folder = home / folder
    if not (folder / "config.json").is_file():
        if wanted == "auto":
            return None
        raise ConfigError(
            f"there is no drafter in {folder}",
            hint="name a folder with config.json and model.safetensors, or none",
        )
    drafter = load_drafter(folder, config, weights.embed, weights.head)
    log.info("drafts come from %s, up to %d a round", folder, drafter.block)
    return drafter


def limits_of(pod: PodDescription, options: StationOptions) -> Limits:
    """Lanes and their memory."""
    return Limits(
        lanes=pod.lanes,
        row_bytes=pod.row_mib * MIB,
        snapshot_bytes=options.prefix_mib * MIB,
    )


def synthetic_acceptance(
    options: StationOptions, pod: PodDescription
) -> SyntheticAcceptance | None:
    """For benchmarks of random text. Raises ConfigError where a user could be served by it."""
    length = options.synthetic_acceptance
    if length is None:
        return None
    node = pod.station
    if node.host not in LOOPBACK or node.api_host not in LOOPBACK:
        raise ConfigError(
            "synthetic acceptance writes what no model said: it is for loopback only",
            hint="give the station's host and api_host a loopback address, or leave it out",
        )
    if options.prefix_mib:
        raise ConfigError(
            "synthetic acceptance writes what no model said, and a prefix cache would keep it",
            hint="add --prefix-mib 0",
        )
    log.warning("SYNTHETIC ACCEPTANCE of %.2f: drafts are not checked, for benchmarks only", length)
    return SyntheticAcceptance(length)
