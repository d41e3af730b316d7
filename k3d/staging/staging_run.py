"""`k3d bank stage`: which bank goes to which spark, and where that receives."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from k3d.errors import BankError, ConfigError
from k3d.staging.pace import Pace
from k3d.staging.plan_token import banks_token, require_token
from k3d.staging.pod_banks import PodBanks, pod_banks
from k3d.staging.progress import Emit
from k3d.staging.stage import (
    StagedNode,
    chosen_sparks,
    local_receivers,
    receiver_address,
    stage,
)
from k3d.store.home import read_secret


@dataclass(frozen=True)
class StagePlan:
    """The pod's banks, which of them go where, and where those of this machine are told later."""

    found: PodBanks
    banks: dict[str, Path]
    addresses: dict[str, str | None]


def plan_stage(home: Path, options: Namespace) -> StagePlan:
    """Raises K3Error for what cannot be sent, PlanStale for a token of another state."""
    found = pod_banks(home, options)
    require_token(options.if_token, banks_token(found))
    named = _addresses(options.to)
    nodes = chosen_sparks(found.pod, options.node)
    for name in named:
        found.pod.slice_index(name)
    banks = {bank.node: bank.path for bank in found.wanted if bank.is_slice and bank.node in nodes}
    for bank in found.wanted:
        if bank.node in banks and bank.is_slice and bank.state() != "ready":
            raise BankError(
                f"the slice for {bank.node} is {bank.state()}: {bank.path.name}",
                hint="build it: k3ctl bank build",
            )
    addresses = {node: named.get(node) or receiver_address(found.pod.node(node)) for node in banks}
    return StagePlan(found, banks, addresses)


def send_staged(home: Path, options: Namespace, plan: StagePlan, emit: Emit) -> list[StagedNode]:
    """Send what was built. Raises K3Error before anything is sent; later each node has its own."""
    secret = read_secret(home)
    local = [node for node, address in plan.addresses.items() if address is None]
    with local_receivers(home, options.pod, local) as here:
        where = {node: address or here[node] for node, address in plan.addresses.items()}
        pace = Pace(options.rate)
        return stage(plan.banks, where, secret, pace, emit, look_only=options.dry_run)


def _addresses(named: list[str]) -> dict[str, str]:
    found = {}
    for text in named:
        node, _, address = text.partition("=")
        host, _, port = address.rpartition(":")
        if not node or not host or not port.isdecimal() or not 0 < int(port[:6]) < 65536:
            raise ConfigError(
                f"--to {text[:80]!r} names no node and address", hint="write NODE=HOST:PORT"
            )
        found[node] = address
    return found
