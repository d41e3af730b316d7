"""Putting a Station together: checkpoint, bank, tiers, sparks, engine, as the description says."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
from blake3 import blake3

from k3d import __version__
from k3d.engine.engine import Engine
from k3d.engine.pass_plan import Part
from k3d.errors import CheckpointError, ConfigError, FabricError
from k3d.experts.bank import Bank, bank_path, open_or_build, station_source
from k3d.experts.dispatch import DTYPES, DispatchLayout
from k3d.experts.expert_use import ExpertUse
from k3d.experts.frame_worker import shape_facts, worker_with_banks
from k3d.experts.hop_log import HopLog
from k3d.experts.shape import ExpertShape
from k3d.experts.tiers import ExpertTiers, LocalTier, SparkTier, Tier
from k3d.experts.worker import SliceWorker
from k3d.fabric.facts import Facts
from k3d.fabric.frame_buffers import DEFAULT_CAPACITY_BYTES
from k3d.fabric.link import Link
from k3d.fabric.transports import connect
from k3d.model.chat_format import ChatFormat
from k3d.model.checkpoint import Checkpoint
from k3d.model.kimi_k3 import KimiK3
from k3d.model.tokenizer import Tokenizer
from k3d.model.weights import load_weights
from k3d.node.daemon import spark_facts
from k3d.node.spark import SparkServer
from k3d.placement.placement_map import PlacementMap
from k3d.placement.pod import SPARK_TIER, PodDescription, model_directory
from k3d.placement.policy import load_policy, plan
from k3d.placement.slicing import Slicing, slicing_of
from k3d.station.decoding import find_drafter, limits_of, synthetic_acceptance
from k3d.station.link_state import Cut
from k3d.station.map_in_force import MapInForce, tier_table
from k3d.station.membership import Membership, SparkLink
from k3d.station.options import StationOptions
from k3d.station.pod_slices import CutSlices
from k3d.store.home import banks_directory, read_run_file

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Station:
    """Everything a Station runs with."""

    pod: PodDescription
    options: StationOptions
    model_name: str
    model_digest: str
    shape: ExpertShape
    in_force: MapInForce
    bank: Bank
    tokenizer: Tokenizer
    chat: ChatFormat
    membership: Membership
    engine: Engine
    hops: HopLog
    use: ExpertUse
    slots: dict[str, int]
    """By tier; those on the sparks are fewer where some of them are missing."""

    @property
    def placement(self) -> PlacementMap:
        """The map in force now."""
        return self.in_force.placement

    @property
    def swapped(self) -> bool:
        """Whether a swap put another map in force than the pod's policy plans."""
        return self.placement.digest != self.in_force.planned_digest

    def cut_of(self, spark: str) -> Cut:
        """What a spark is to hold by the slicing in force."""
        return cut_of(self.pod, self.shape, self.in_force.slicing, spark)

    def cut_anew(self, slicing: Slicing) -> None:
        """Let other sparks hold the slices; between two passes, once the map has turned."""
        self.slots[SPARK_TIER] = slicing.slots
        self.membership.serve_by(slicing.sparks)
        experts = self.engine.experts
        assert isinstance(experts, ExpertTiers)
        for tier in experts.tiers:
            if isinstance(tier, SparkTier):
                tier.turn_to(self.membership.serving)


def assemble(
    pod: PodDescription,
    home: Path,
    secret: bytes,
    options: StationOptions,
    choose_map: Callable[[PlacementMap], PlacementMap],
    sparks_of: Callable[[int], tuple[str, ...] | None] = lambda _epoch: None,
    name_of: Callable[[int], str | None] = lambda _epoch: None,
) -> Station:
    """Load the model, stage its bank, place its experts and start calling the sparks.

    `choose_map` is given the map that the policy plans and says which map is in force, and
    `sparks_of` an epoch, of which it says which sparks hold its slices, if not all; `name_of` says
    by which name it was asked for, if not by the policy's. Raises K3Error; nothing keeps running
    then.
    """
    torch.set_num_threads(1)  # reductions keep one order, and the pod's other processes need cores
    folder = model_directory(pod, home)
    if folder is None or not folder.is_dir():
        raise ConfigError(
            f"pod {pod.name} has no checkpoint here: {folder or 'it names no model'}",
            hint="put the model in place, or check the description with: k3ctl pod up --dry-run",
        )
    checkpoint = Checkpoint(folder)
    config = checkpoint.config
    tokenizer = Tokenizer.load(folder)
    chat = ChatFormat.load(folder, tokenizer)
    if chat.stop_id != config.eos_id:
        raise CheckpointError(
            f"config.json of {folder} ends an answer with token {config.eos_id}, its tokenizer "
            f"with {chat.stop_id}",
            hint="the tokenizer files are another model's",
        )
    planned = plan(
        config.moe_layers, config.experts, pod.slots, load_policy(options.placement, home)
    )
    placement = choose_map(planned)
    weights = load_weights(checkpoint, fine=DTYPES[options.dtype] is torch.float64)
    banks = banks_directory(home)
    source = station_source(checkpoint, banks)
    shape = source.shape
    if pod.slice_count:
        shape.check_slices(pod.slice_count)
    began = time.monotonic()
    recast = source.recast_from is not None
    bank = open_or_build(source, bank_path(banks, folder.name, checkpoint.digest, recast=recast))
    log.info("bank %s is ready after %.1f s", bank.path.name, time.monotonic() - began)
    leftover = checkpoint.finish()
    if leftover.vision_tensors:
        log.info("skipped %d vision tensors", leftover.vision_tensors)
    dtype = DTYPES[options.dtype]
    slicing = slicing_of(pod, sparks_of(placement.epoch))
    name = name_of(placement.epoch) or options.placement
    in_force = MapInForce(placement, planned.digest, bank.content_digest, slicing, name)
    membership = Membership(
        [
            _spark_link(pod, home, secret, options, index, shape, in_force, bank)
            for index in range(pod.slice_count)
        ]
    )
    membership.serve_by(slicing.sparks)
    slots = {**pod.slots, **({SPARK_TIER: slicing.slots} if pod.sparks else {})}
    tiers = _tiers(pod, shape, placement, bank, membership, dtype, options.chunk)
    hops = HopLog(tuple(tier.name for tier in tiers))
    experts = ExpertTiers(shape, tiers, tier_table(config.layers, placement), hops)
    model = KimiK3(config, weights, dtype, max_rows=options.chunk)
    engine = Engine(
        model,
        experts,
        options.chunk,
        limits_of(pod, options),
        drafter=find_drafter(options.drafter, folder, home, config, weights),
        synthetic=synthetic_acceptance(options, pod),
        vocabulary=tokenizer.vocab_size,
    )
    use = _counted(experts, shape, engine)
    membership.start()
    return Station(
        pod, options, folder.name, checkpoint.digest, shape, in_force, bank, tokenizer,
        chat, membership, engine, hops, use, slots,
    )  # fmt: skip


def _counted(experts: ExpertTiers, shape: ExpertShape, engine: Engine) -> ExpertUse:
    """Count what the router chooses in every pass from now on."""
    use = ExpertUse(shape, engine.model.max_rows)
    experts.routing = use.routing

    def count(parts: list[Part], used: list[int]) -> None:
        firsts = accumulate((part.rows for part in parts), initial=0)
        use.note(zip(firsts, used, strict=False), sum(part.rows for part in parts))

    engine.watchers.append(count)
    return use


def _tiers(
    pod: PodDescription,
    shape: ExpertShape,
    placement: PlacementMap,
    bank: Bank,
    membership: Membership,
    dtype: torch.dtype,
    max_rows: int,
) -> list[Tier]:
    """One tier a name in the map, local ones filled from the bank, every record verified."""
    tiers: list[Tier] = []
    for name in placement.tiers:
        if name == SPARK_TIER:
            tiers.append(SparkTier(membership.serving, shape, dtype, max_rows))
            continue
        worker = SliceWorker(shape, pod.slots[name], name=name)
        for slot, layer, expert in placement.experts_in(name):
            record = bank.record(layer, expert)
            worker.load(slot, layer, expert, record, blake3(record).digest())
        worker.commit(placement.epoch)
        tiers.append(LocalTier(name, worker))
    return tiers


def cut_of(pod: PodDescription, shape: ExpertShape, slicing: Slicing, spark: str) -> Cut:
    """What a spark is to hold; one that holds nothing keeps the slice of its description."""
    described, index = slicing_of(pod), slicing.index(spark)
    own = described.index(spark) or 0
    if index is None:
        index, slicing = own, described
    count = len(slicing.sparks)
    recut = (index, count) != (own, len(described.sparks))
    return Cut(index, count, slicing.slots, shape.slice_bytes(count), recut)


def _spark_link(
    pod: PodDescription,
    home: Path,
    secret: bytes,
    options: StationOptions,
    index: int,
    shape: ExpertShape,
    in_force: MapInForce,
    bank: Bank,
) -> SparkLink:
    node = pod.sparks[index]
    cut = cut_of(pod, shape, in_force.slicing, node.name)
    layout = DispatchLayout(shape, DTYPES[options.dtype])
    largest = max(layout.dispatch_bytes(options.chunk), layout.partial_bytes(options.chunk))
    if largest > DEFAULT_CAPACITY_BYTES:
        raise ConfigError(
            f"a chunk of {options.chunk} tokens needs frames of {largest} bytes; a link holds "
            f"{DEFAULT_CAPACITY_BYTES}",
            hint="use a smaller chunk",
        )
    facts = Facts(
        role="station",
        node=pod.station.name,
        calling=node.name,
        incarnation=time.time_ns(),
        version=__version__,
        capacity_bytes=DEFAULT_CAPACITY_BYTES,
        model_digest=bank.header.model_digest,
        **cut._asdict(),
        shape=shape_facts(shape),
        dtype=options.dtype,
        epoch=in_force.placement.epoch,
        placement_digest=in_force.held_digest(in_force.placement),
    )

    slices = CutSlices(in_force, bank, banks_directory(home), node.name)
    connector = _connector(pod, home, secret, options, index)
    return SparkLink(facts, connector, secret, slices.everything, source=slices)


def _connector(
    pod: PodDescription, home: Path, secret: bytes, options: StationOptions, index: int
) -> Callable[[float], Link]:
    """How a spark is reached: in this process, by the address it published, or as described."""
    node = pod.sparks[index]
    if options.transport == "inproc":
        worker = worker_with_banks(banks_directory(home) / node.name)
        server = SparkServer(worker, None, secret, spark_facts(pod, node, None))
        return lambda _timeout_s: server.inproc_link()

    def by_address(timeout_s: float) -> Link:
        address = f"{node.host}:{node.fabric_port}"
        if node.loopback or options.transport == "shm":
            run = read_run_file(home, node.name)
            if run is None or run.fabric_address is None:
                raise FabricError(f"{node.name} is not running here", hint="start it: k3ctl pod up")
            if not run.alive():
                raise FabricError(
                    f"{node.name} has ended (it was process {run.pid})",
                    hint="start it again: k3ctl pod up",
                )
            address = run.fabric_address
        return connect(options.transport, address, timeout_s)

    return by_address
