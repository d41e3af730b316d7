"""What planning and simulating start from: a pod, a trace, costs; and maps as files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from k3ctl.client.pod_run import pod_meant
from k3ctl.client.tier_costs import find_costs
from k3d.errors import ConfigError, K3Error
from k3d.placement.costs import Costs, Cut
from k3d.placement.model_facts import facts_of
from k3d.placement.placement_map import PlacementMap
from k3d.placement.planners import PlanRequest, make_plan
from k3d.placement.pod import PodDescription, load_pod
from k3d.placement.policy import MAP_SUFFIX, check_map, load_policy, read_map
from k3d.placement.trace import Trace, read_trace


@dataclass(frozen=True)
class Inputs:
    """A pod, a trace of its model, and the costs of its tiers."""

    pod: PodDescription
    trace: Trace
    trace_path: Path
    costs: Costs

    @property
    def slots(self) -> Mapping[str, int]:
        return self.pod.slots


def read_inputs(home: Path, pod: str | None, trace: str, cut: Cut) -> Inputs:
    """Raises NotFound, ConfigError: what is missing, damaged or of another model."""
    description = load_pod(pod_meant(home, pod), home)
    path = Path(trace)
    read = read_trace(path, with_weights=False)
    facts = facts_of(description, home)
    if (tuple(facts.moe_layer_numbers), facts.experts) != (read.layers, read.experts):
        raise ConfigError(
            f"{path} is of {len(read.layers)} layers of {read.experts} experts, the model of pod "
            f"{description.name} has {facts.moe_layers} of {facts.experts}",
            hint="use a trace of the pod's model, or another pod with --pod",
        )
    return Inputs(description, read, path, find_costs(home, description, read, cut))


def map_or_policy(home: Path, name: str, inputs: Inputs) -> PlacementMap:
    """The map of a file, or that which a policy makes of the trace."""
    if not name.endswith(MAP_SUFFIX):
        policy = load_policy(name, home)
        return make_plan(PlanRequest(policy, inputs.trace, inputs.slots, inputs.costs)).placed
    placed = read_map(Path(name))
    try:
        check_map(placed, inputs.trace.layers, inputs.trace.experts, inputs.slots)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}", hint=error.hint) from error
    return placed


def write_map(path: Path, placed: PlacementMap) -> None:
    """Write a map whole or not at all. Raises ConfigError for a name that is no map's."""
    if path.suffix != MAP_SUFFIX:
        raise ConfigError(
            f"--out: {path} does not end in {MAP_SUFFIX}", hint="a map is named by that"
        )
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(placed.to_json() + b"\n")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise K3Error(f"{path} cannot be written: {error.strerror}") from error
