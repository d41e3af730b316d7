"""The banks that a command line asks for: pod, checkpoint, placement, and what they make."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from k3d.errors import ConfigError
from k3d.model.checkpoint import Checkpoint
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import PodDescription, load_pod, model_directory
from k3d.placement.policy import load_policy, plan
from k3d.staging.wanted import WantedBank, wanted_banks
from k3d.store.home import banks_directory


@dataclass(frozen=True)
class PodBanks:
    """A pod with its checkpoint open, and the banks that it needs under a placement: `everything`,
    and those `wanted` by --no-whole and --no-slices."""

    pod: PodDescription
    checkpoint: Checkpoint
    placement: PlacementMap
    everything: list[WantedBank]
    wanted: list[WantedBank]
    as_nvfp4: bool


def pod_banks(home: Path, options: Namespace) -> PodBanks:
    """Raises K3Error for a description, checkpoint or placement that cannot be used."""
    pod = load_pod(options.pod, home)
    folder = model_directory(pod, home)
    if folder is None or not folder.is_dir():
        raise ConfigError(
            f"pod {pod.name} has no checkpoint here: {folder or 'it names no model'}",
            hint="put the model in place; k3ctl bank census counts one from its config alone",
        )
    checkpoint = Checkpoint(folder)
    config = checkpoint.config
    policy = load_policy(options.placement or pod.placement, home)
    placement = plan(config.moe_layers, config.experts, pod.slots, policy)
    as_nvfp4 = not options.as_released
    everything = wanted_banks(checkpoint, pod, placement, banks_directory(home), as_nvfp4=as_nvfp4)
    unwanted = {
        is_slice
        for flag, is_slice in (("no_whole", False), ("no_slices", True))
        if getattr(options, flag, False)
    }
    wanted = [bank for bank in everything if bank.is_slice not in unwanted]
    return PodBanks(pod, checkpoint, placement, everything, wanted, as_nvfp4)
