"""Pod descriptions: which nodes, which tiers, how many slots (policies/pods/*.toml).

The embedded pod on a laptop and the Station with its Sparks differ in nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from k3d.errors import ConfigError, NotFound
from k3d.placement.budget import Budget, Cost
from k3d.placement.policy_files import convert_toml, find_policy
from k3d.store.paths import checkout

SCHEMA = "k3-pod/1"
MANUAL = "every key of a pod description is in: man k3-pod.toml"
STATION_TIERS = ("hbm", "rtx", "grace")
SPARK_TIER = "spark"
TIERS = (*STATION_TIERS, SPARK_TIER)
SLICE_COUNTS = (1, 2, 4, 8)
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=1)]
# Far beyond any model and machine, and small enough to plan with.
Slots = Annotated[int, msgspec.Meta(ge=1, le=2**24)]
Layers = Annotated[int, msgspec.Meta(ge=1, le=2**12)]
Experts = Annotated[int, msgspec.Meta(ge=1, le=2**16)]
ExpertBytes = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
MOST_WAIT_S = 365 * 86_400.0
MOST_EXPERTS = 2**22
"""Of all layers together; Kimi-K3 has 82,432."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?")
MOST_NAME = 64
"""Characters of a pod's or a node's name; files are named after nodes."""


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place on a node where experts live. A slot of the spark tier holds one slice."""

    name: Literal["hbm", "rtx", "grace", "spark"]
    slots: Slots


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A machine, or on an embedded pod a process, that runs one k3d. api_host and api_port, of
    the station, are where the OpenAI-compatible API listens, apart from the admin routes."""

    name: str
    role: Literal["station", "spark"]
    host: str = "127.0.0.1"
    http_port: Port = 0
    fabric_port: Port = 0
    api_host: str = "127.0.0.1"
    api_port: Port = 0
    profile: str | None = None
    simulated: bool = False
    tiers: tuple[Tier, ...] = msgspec.field(name="tier")

    @property
    def loopback(self) -> bool:
        return self.host in LOOPBACK


class ModelFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What planning needs of a model whose checkpoint is not on this machine."""

    layers: Layers
    moe_layers: Layers
    experts: Experts
    expert_bytes: ExpertBytes

    @property
    def moe_layer_numbers(self) -> range:
        """The last `moe_layers` layers; the dense ones come first."""
        return range(self.layers - self.moe_layers, self.layers)


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What happens without being asked when a spark is lost, and every expert on the sparks with
    it. Left out, the pod waits for it: `k3ctl placement replace` does it when asked.

    after_s: seconds without it until its experts are placed in spare slots of other tiers, or in
    larger slices on sparks that are left.
    return_after_s: seconds that all sparks are back until their experts return to them.
    """

    after_s: Annotated[float, msgspec.Meta(ge=0.0, le=MOST_WAIT_S)] | None = None
    return_after_s: Annotated[float, msgspec.Meta(ge=0.0, le=MOST_WAIT_S)] | None = None


class PodDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A pod. `nodes` keeps the file's order, which numbers the slices of the sparks.

    drafter: auto (the folder `drafter` beside the model, if it is there), none, or a folder.
    lanes: requests computed at once. row_mib: memory for their latent and drafter rows and those
    kept for reuse; prefix_mib: for the states that let a prefix be reused, 0 reuses none.
    alerts: the policy, of policies/alerts or a file, that says what an operator is told of.
    replacement: what happens when a spark is lost.
    """

    schema: Literal["k3-pod/1"]
    name: str
    model: str | None = None
    placement: str = "layer-balanced"
    transport: Literal["inproc", "shm", "tcp"] = "shm"
    dtype: Literal["bf16", "fp32"] = "bf16"
    chunk: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 256
    drafter: str = "auto"
    lanes: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 16
    row_mib: Annotated[int, msgspec.Meta(ge=1, le=2**20)] = 96
    prefix_mib: Annotated[int, msgspec.Meta(ge=0, le=2**20)] = 64
    alerts: str = "default"
    replacement: Replacement = Replacement()
    model_facts: ModelFacts | None = None
    budgets: tuple[Budget, ...] = msgspec.field(name="budget", default=())
    costs: tuple[Cost, ...] = msgspec.field(name="cost", default=())
    nodes: tuple[Node, ...] = msgspec.field(name="node")

    @property
    def station(self) -> Node:
        return next(node for node in self.nodes if node.role == "station")

    @property
    def sparks(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.role == "spark")

    @property
    def slice_count(self) -> int:
        """Into how many slices an expert of the spark tier is cut; 0 without sparks."""
        return len(self.sparks)

    def slice_index(self, node_name: str) -> int:
        """Which slice a spark holds. Raises NotFound for a name that is not a spark's."""
        for index, spark in enumerate(self.sparks):
            if spark.name == node_name:
                return index
        raise NotFound(
            f"pod {self.name} has no spark named {node_name!r}",
            hint=f"its sparks: {', '.join(spark.name for spark in self.sparks) or 'none'}",
        )

    def node(self, node_name: str) -> Node:
        """Raises NotFound for a name that is not in the pod."""
        for node in self.nodes:
            if node.name == node_name:
                return node
        raise NotFound(
            f"pod {self.name} has no node named {node_name!r}",
            hint=f"its nodes: {', '.join(node.name for node in self.nodes)}",
        )

    @property
    def slots(self) -> dict[str, int]:
        """Slots by tier, fastest first. The sparks' slices make one tier with one number."""
        found = {tier.name: tier.slots for node in self.nodes for tier in node.tiers}
        return {tier: found[tier] for tier in TIERS if tier in found}

    @property
    def digest(self) -> str:
        """Hex digest of what is served, whatever the file's layout, comments and figures."""
        served = msgspec.structs.replace(self, budgets=(), costs=())
        return hashlib.sha256(msgspec.json.encode(served, order="deterministic")).hexdigest()

    def budget(self, tier: str, node: str) -> Budget | None:
        """The memory of a tier on a node: the node's own entry, else the tier's, else None."""
        own = [budget for budget in self.budgets if budget.tier == tier]
        named = next((budget for budget in own if budget.node == node), None)
        return named or next((budget for budget in own if budget.node is None), None)

    def cost(self, tier: str) -> Cost | None:
        return next((cost for cost in self.costs if cost.tier == tier), None)


def load_pod(name_or_path: str, home: Path | None = None) -> PodDescription:
    """Read a description by name (policies/pods/NAME.toml) or by path.

    Raises NotFound when there is none, ConfigError with the key path of what is wrong.
    """
    path = find_policy("pods", name_or_path, home)
    try:
        return parse_pod(path.read_bytes())
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="check who may read it"
        ) from error


def parse_pod(text: bytes) -> PodDescription:
    """A description from TOML. Raises ConfigError."""
    description = convert_toml(text, PodDescription, MANUAL)
    check_pod(description)
    return description


def check_pod(description: PodDescription) -> None:
    """What a description's keys must be to each other. Raises ConfigError naming the key."""
    _check_nodes(description)
    _check_tiers(description)
    _check_places(description)
    _check_facts(description)
    _check_figures(description)


def model_directory(description: PodDescription, home: Path) -> Path | None:
    """Where the description's model is: absolute, or in the home, or in the checkout.

    None when the description names no model. The directory may not exist.
    """
    if description.model is None:
        return None
    named = Path(os.path.expanduser(description.model))  # noqa: PTH111 Path's raises for ~nobody
    source = checkout()
    places = [root / named for root in (home, source) if root is not None]
    return next((place for place in places if place.is_dir()), places[-1])


def _check_nodes(pod: PodDescription) -> None:
    if not pod.name.strip() or len(pod.name) > MOST_NAME or not pod.name.isprintable():
        raise ConfigError(
            f"name: {pod.name[:MOST_NAME]!r} cannot name a pod",
            hint=f"use 1 to {MOST_NAME} printable characters",
        )
    names = [node.name for node in pod.nodes]
    for index, name in enumerate(names):
        if not _NAME.fullmatch(name) or name == "pod":
            raise ConfigError(
                f"node[{index}].name: {name[:MOST_NAME]!r} cannot name a node",
                hint=f"use up to {MOST_NAME} lower-case letters, digits, dots and dashes, and not "
                "the word pod",
            )
        if name in names[:index]:
            raise ConfigError(
                f"node[{index}].name: there are two nodes named {name!r}", hint="rename one"
            )
    stations = [node.name for node in pod.nodes if node.role == "station"]
    if len(stations) != 1:
        raise ConfigError(
            f"node: a pod has exactly one station and this one has {len(stations)}"
            + (f" ({', '.join(stations)})" if stations else ""),
            hint='give one node role = "station" and the others role = "spark"',
        )
    if pod.sparks and len(pod.sparks) not in SLICE_COUNTS:
        raise ConfigError(
            f"node: {len(pod.sparks)} sparks cannot share an expert evenly",
            hint="use 1, 2, 4 or 8 sparks: an expert has 8 parts that cannot be cut further",
        )


def _check_tiers(pod: PodDescription) -> None:
    for index, node in enumerate(pod.nodes):
        allowed = STATION_TIERS if node.role == "station" else (SPARK_TIER,)
        seen: set[str] = set()
        for position, tier in enumerate(node.tiers):
            where = f"node[{index}].tier[{position}].name"
            if tier.name not in allowed:
                raise ConfigError(
                    f"{where}: {node.name} is a {node.role} and cannot hold a tier {tier.name!r}",
                    hint=f"tiers of a {node.role}: {', '.join(allowed)}",
                )
            if tier.name in seen:
                raise ConfigError(
                    f"{where}: {node.name} has two tiers {tier.name!r}", hint="make them one"
                )
            seen.add(tier.name)
        if node.role == "spark" and not node.tiers:
            raise ConfigError(
                f"node[{index}].tier: spark {node.name} has no tier",
                hint='give it one: [[node.tier]] name = "spark"',
            )
    if not pod.slots:
        raise ConfigError(
            "node: no node of the pod has a tier, so no expert can live in it",
            hint="give the station or the sparks tiers with slots",
        )
    slots = {spark.name: spark.tiers[0].slots for spark in pod.sparks}
    if len(set(slots.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in slots.items())
        raise ConfigError(
            f"node: the sparks differ in slots ({listed})",
            hint="every spark holds a slice of the same experts: give all the same number",
        )


def _check_places(pod: PodDescription) -> None:
    taken: dict[tuple[str, int], str] = {}
    for index, node in enumerate(pod.nodes):
        if not node.host:
            raise ConfigError(
                f"node[{index}].host: {node.name} has an empty host",
                hint="name a host or an address, or leave host out for loopback",
            )
        if not node.api_host:
            raise ConfigError(
                f"node[{index}].api_host: {node.name} has an empty api_host",
                hint="name an address of this machine, or leave api_host out for loopback",
            )
        if node.role == "spark" and (node.api_port or node.api_host not in LOOPBACK):
            raise ConfigError(
                f"node[{index}].api_port: {node.name} is a spark, and the API is the station's",
                hint="set api_host and api_port of the station",
            )
        for key in ("http_port", "fabric_port", "api_port"):
            port = getattr(node, key)
            if port == 0:
                continue
            place = node.api_host if key == "api_port" else node.host
            host = "127.0.0.1" if place in LOOPBACK else place
            other = taken.setdefault((host, port), f"{node.name}.{key}")
            if other != f"{node.name}.{key}":
                raise ConfigError(
                    f"node[{index}].{key}: port {port} of {place} is also {other}",
                    hint="use another port, or 0 to let the node choose one",
                )
    apart = [node.name for node in pod.nodes if node.host != pod.station.host]
    if pod.transport in ("shm", "inproc") and apart:
        raise ConfigError(
            f"transport: {pod.transport} needs one machine, and {', '.join(apart)} is on another",
            hint='use transport = "tcp"',
        )


def _check_facts(pod: PodDescription) -> None:
    facts = pod.model_facts
    if facts is not None and facts.moe_layers > facts.layers:
        raise ConfigError(
            f"model_facts.moe_layers: {facts.moe_layers} of {facts.layers} layers is impossible",
            hint="layers counts all layers, moe_layers those with experts",
        )
    if facts is not None and facts.moe_layers * facts.experts > MOST_EXPERTS:
        raise ConfigError(
            f"model_facts.experts: {facts.experts} in each of {facts.moe_layers} layers are more "
            f"than {MOST_EXPERTS:,}",
            hint="experts counts those of one layer",
        )
    if pod.model is None and facts is None:
        raise ConfigError(
            "model: neither a model nor [model_facts] is given",
            hint="name the checkpoint's directory, or the facts that planning needs",
        )


def _check_figures(pod: PodDescription) -> None:
    seen: set[tuple[str, str | None]] = set()
    for index, budget in enumerate(pod.budgets):
        where = f"budget[{index}]"
        holders = [n.name for n in pod.nodes if any(t.name == budget.tier for t in n.tiers)]
        if not holders:
            raise ConfigError(
                f"{where}.tier: no node has a tier {budget.tier}", hint="leave that budget out"
            )
        if budget.node is not None and budget.node not in holders:
            raise ConfigError(
                f"{where}.node: {budget.node} is no node with a tier {budget.tier}",
                hint=f"nodes with it: {', '.join(holders)}",
            )
        if (budget.tier, budget.node) in seen:
            raise ConfigError(
                f"{where}: a second budget of tier {budget.tier}", hint="make them one"
            )
        seen.add((budget.tier, budget.node))
        reserved = sum(reservation.size_bytes for reservation in budget.reservations)
        if reserved > budget.size_bytes:
            raise ConfigError(
                f"{where}.reserve: {reserved} bytes are reserved of {budget.size_bytes}",
                hint="correct the reservation that is too large",
            )
    tiers = [cost.tier for cost in pod.costs]
    for index, tier in enumerate(tiers):
        if tier in tiers[:index]:
            raise ConfigError(
                f"cost[{index}].tier: a second cost of tier {tier}", hint="make them one"
            )
        if tier not in pod.slots:
            raise ConfigError(
                f"cost[{index}].tier: no node has a tier {tier}", hint="leave that cost out"
            )
