"""Decoding: requests in, events out, one pass a step.

A pass holds the rows of every lane that decodes (its anchor and its drafts) and one chunk of one
prompt, so lanes share a pass and a long prompt delays them by a small chunk at most. A pass is
committed only when it is complete; when a node is lost in the middle, nothing happened, and the
next pass starts from the same tokens once the node is back.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field, replace
from time import monotonic

import torch
from torch import Tensor

from k3d.engine.cost_curve import CostCurve, measure_costs
from k3d.engine.counts import EngineCounts, Totals
from k3d.engine.drafting import Drafting
from k3d.engine.lane_memory import LaneMemory
from k3d.engine.lanes import Lanes
from k3d.engine.pass_plan import Part, PassPlanner
from k3d.engine.request import (
    ErrorEvent,
    Event,
    FinishEvent,
    FinishReason,
    PromptEvent,
    Request,
    TokenEvent,
    TokenLogprob,
)
from k3d.engine.request_check import check_request
from k3d.engine.sampling import Rules, logprobs_of
from k3d.engine.sequence import Sequence
from k3d.engine.synthetic import SyntheticAcceptance
from k3d.engine.trust import Trust
from k3d.engine.verify import Verdict, judge
from k3d.errors import ConfigError, K3Error, NodeLost
from k3d.model.drafter.proposal import Drafter
from k3d.model.kimi_k3 import KimiK3, PassResult, RoutedExperts


@dataclass
class Limits:
    """lanes: sequences computed at once; queue: requests that may wait; recover_s: how long a
    pass waits for a lost node before its requests fail; shared_chunk: prompt tokens in a pass
    with lanes that decode; row_bytes: for latent and drafter rows; snapshot_bytes: for the states
    that let a prefix be reused, 0 for none."""

    lanes: int = 16
    queue: int = 64
    recover_s: float = 10.0
    max_positions: int = 4096
    shared_chunk: int = 32
    row_bytes: int = 96 * 2**20
    snapshot_bytes: int = 64 * 2**20


@dataclass
class _Outcome:
    """What a pass makes known, and the sequences that are over: (sequence, reason, stop id)."""

    events: list[Event] = field(default_factory=list)
    ends: list[tuple[Sequence, FinishReason, int | None]] = field(default_factory=list)


@dataclass
class Engine:
    """One model on one pod. Not thread-safe: one thread submits, cancels and steps."""

    model: KimiK3
    experts: RoutedExperts
    chunk: int
    limits: Limits = field(default_factory=Limits)
    drafter: Drafter | None = None
    synthetic: SyntheticAcceptance | None = None
    vocabulary: int | None = None
    """Ids below it are tokens; a head may be padded with rows that are none. None: all are."""
    clock: Callable[[], float] = monotonic
    watchers: list[Callable[[list[Part], list[int]], None]] = field(default_factory=list)
    """Told after every pass: its parts and how many rows of each were used. Changes between passes,
    or from within one that is told."""

    def __post_init__(self) -> None:
        if not 1 <= self.chunk <= self.model.max_rows:
            raise ConfigError(f"chunk {self.chunk} is not between 1 and {self.model.max_rows}")
        if self.synthetic is not None and (self.drafter is None or self.limits.snapshot_bytes):
            raise ConfigError("synthetic acceptance needs a drafter and no prefix reuse")
        width = self.model.config.vocab_size
        self.vocab = width if self.vocabulary is None else min(self.vocabulary, width)
        memory = LaneMemory(
            self.model.config,
            self.model.dtype,
            row_bytes=self.limits.row_bytes,
            snapshot_bytes=self.limits.snapshot_bytes,
            draft_width=self.drafter.row_width if self.drafter is not None else 0,
        )
        self.curve = CostCurve()
        self.lanes = Lanes(memory, self.limits.lanes, self.limits.queue, self.clock)
        self._drafting = Drafting(self.drafter, self.curve, self.clock, self.synthetic)
        self._planner = PassPlanner(
            self.lanes, self._drafting, self.model.max_rows, self.chunk, self.limits.shared_chunk
        )
        self._arrivals = 0
        self._totals = Totals()
        self._lost: NodeLost | None = None
        self._lost_at = 0.0

    @property
    def idle(self) -> bool:
        return self.lanes.empty

    @property
    def lost(self) -> NodeLost | None:
        """The node that the pass in hand waits for."""
        return self._lost

    @property
    def most_positions(self) -> int:
        """Prompt and answer together."""
        config = self.model.config
        most = min(self.limits.max_positions, config.max_positions or self.limits.max_positions)
        return min(most, self.lanes.memory.most_positions)

    @property
    def synthetic_acceptance(self) -> float | None:
        """Set: drafts are accepted unchecked, and no answer is the model's."""
        return self.synthetic.length if self.synthetic is not None else None

    def submit(self, request: Request) -> None:
        """Queue a request. Raises ConfigError for one that cannot run, Refused when full."""
        check_request(request, self.vocab, self.most_positions)
        rules = Rules(request, self.vocab)
        self._arrivals += 1
        trust = Trust(self._drafting.bias)
        self.lanes.enter(
            Sequence(request, self._arrivals, self.clock(), list(request.prompt), rules, trust)
        )

    def cancel(self, request_id: str) -> list[Event]:
        """End a request between passes; unknown ids are already gone."""
        sequence = self.lanes.find(request_id)
        if sequence is None:
            return []
        event = self._finish(sequence, "cancelled")
        if self.idle:
            self._lost = None  # nobody waits for the node any more
        return [event]

    def step(self) -> list[Event]:
        """One pass over all lanes; [] when idle or waiting for a node."""
        self.lanes.admit()
        done = [each for each in self.lanes.running if each.room == 0 and each.behind <= 1]
        ends: list[Event] = [self._finish(each, "length") for each in done]  # wrote nothing
        begun = self.clock()
        parts = self._planner.plan()
        if not parts:
            return ends
        events = ends
        try:
            self._pass(parts, events)
        except NodeLost as lost:
            return [*events, *self._wait_for(lost, begun)]
        self._lost = None
        return events

    def measure_costs(self, progressed: Callable[[], None] = lambda: None) -> None:
        """Learn what a pass costs by its rows, and a block of drafts, on a lane of its own; the
        engine must be idle. `progressed` is called between passes. Raises NodeLost like a pass."""
        try:
            measure_costs(
                self.model, self.experts, self.drafter, self.curve, self.clock, progressed
            )
        except K3Error:
            self.experts.abandon()
            raise

    def fail_all(self, error: K3Error) -> list[Event]:
        """End every request with `error`."""
        self._lost = None
        return [
            self._fail(sequence, error) for sequence in (*self.lanes.running, *self.lanes.waiting)
        ]

    def counts(self) -> EngineCounts:
        totals = dict(vars(self._totals))
        for name in ("verified", "accepted", "rows"):
            totals[name] = tuple(totals[name])
        totals["decode_s"] += self._drafting.spent_s
        memory = self.lanes.memory
        cache = memory.cache
        return EngineCounts(
            running=len(self.lanes.running),
            waiting=len(self.lanes.waiting),
            draft_s=self._drafting.spent_s,
            preempted=self.lanes.preempted,
            refused=self.lanes.refused,
            pages=memory.pages.total,
            free_pages=memory.pages.free,
            cache=cache.counts() if cache is not None else None,
            cost=self.curve.line,
            **totals,
        )

    def _pass(self, parts: list[Part], events: list[Event]) -> None:
        """One pass, and what it makes known into `events`. When it fails for another reason than a
        lost node every part runs alone: what one sequence's rows did must not end the others.
        Raises NodeLost."""
        begun = self.clock()
        spans = [part.span for part in parts]
        try:
            with torch.inference_mode():
                result = self.model.forward(
                    spans, self.experts, _wanted(parts), self._drafting.taps
                )
        except NodeLost:
            self.experts.abandon()
            raise
        except K3Error as error:
            self.experts.abandon()
            if len(parts) == 1:
                events.append(self._fail(parts[0].sequence, error))
                return
            for part in parts:
                self._pass([part], events)
            return
        events += self._read(parts, result, begun)

    def _read(self, parts: list[Part], result: PassResult, begun: float) -> list[Event]:
        """Every part's rows are read, and committed as far as they hold."""
        with torch.inference_mode():
            logits = result.logits[:, : self.vocab].split([len(part.wanted) for part in parts])
            taps: Ordered[Tensor | None] = [None] * len(parts)
            if result.taps is not None:
                taps = result.taps.split([part.rows for part in parts])
            out = _Outcome()
            fed: list[tuple[Sequence, int, Tensor]] = []
            used: list[int] = []
            for part, own, tapped in zip(parts, logits, taps, strict=True):
                start = part.sequence.position
                read = self._read_chunk if part.draft is None else self._read_round
                used.append(read(part, own, out))
                if tapped is not None and part.sequence.lane is not None:
                    fed.append((part.sequence, start, tapped[: used[-1]]))
            self._drafting.feed(fed)  # before anyone leaves: their pages may be kept
        for watcher in tuple(self.watchers):
            watcher(parts, used)
        self._count_pass(parts, used, self.clock() - begun)
        return [*out.events, *(self._finish(*end) for end in out.ends)]

    def _read_round(self, part: Part, logits: Tensor, out: _Outcome) -> int:
        """A lane's verification: its tokens become events, its accepted rows are committed.
        Returns the rows used."""
        sequence, draft = part.sequence, part.draft
        assert draft is not None
        good = _leading_numbers(logits)
        if good == 0:
            out.events.append(self._fail(sequence, _not_numbers(sequence)))
            return 0
        forced = self.synthetic.next() if self.synthetic is not None else None
        verdict = judge(sequence, logits[:good], draft.tokens[: good - 1], forced)
        accepted = verdict.rows - 1
        sequence.rounds += 1
        sequence.last_rows = part.rows
        sequence.drafted += len(draft.tokens)
        sequence.accepted += accepted
        self._totals.note_round(len(draft.tokens), accepted)
        self._drafting.learn(sequence, draft, accepted)
        self._write(part, verdict, out)
        return verdict.rows

    def _read_chunk(self, part: Part, logits: Tensor, out: _Outcome) -> int:
        """A chunk is committed; the last one of a prompt gives the first token."""
        sequence = part.sequence
        if _leading_numbers(logits) < logits.shape[0]:
            out.events.append(self._fail(sequence, _not_numbers(sequence)))
            return 0
        if sequence.request.prompt_logprobs and not sequence.written:
            self._report_prompt(sequence, logits, out.events)
        if part.rows < sequence.behind:
            self._commit(part, part.rows)
        elif sequence.room == 0:  # only the prompt's log probabilities were asked for
            self._commit(part, part.rows)
            out.ends.append((sequence, "length", None))
        else:
            verdict = judge(sequence, logits[-1:], ())
            self._write(part, replace(verdict, rows=part.rows), out)
        return part.rows

    def _write(self, part: Part, verdict: Verdict, out: _Outcome) -> None:
        """Tokens into the sequence, rows into its lane, and the end if this is it."""
        sequence = part.sequence
        if sequence.first_token is None:
            sequence.first_token = self.clock()
        logprobs: Ordered[TokenLogprob | None] = verdict.logprobs or [None] * len(verdict.tokens)
        for token, logprob in zip(verdict.tokens, logprobs, strict=True):
            position = len(sequence.tokens)
            out.events.append(TokenEvent(sequence.request.id, token, position, logprob))
            sequence.tokens.append(token)
        self._commit(part, verdict.rows)
        if verdict.stop_id is not None:
            out.ends.append((sequence, "stop", verdict.stop_id))
        elif sequence.room == 0:
            out.ends.append((sequence, "length", None))

    def _report_prompt(self, sequence: Sequence, logits: Tensor, events: list[Event]) -> None:
        """Row i of a chunk says how likely the prompt's next token was. A preempted lane reads
        rows again that it reported before."""
        prompt, top = sequence.request.prompt, sequence.request.logprobs or 0
        start = sequence.reported
        found = []
        for row in range(start - 1 - sequence.position, logits.shape[0]):
            place = sequence.position + row + 1
            if row >= 0 and place < len(prompt):
                found.append(logprobs_of(logits[row], prompt[place], top))
        if found:
            sequence.reported += len(found)
            events.append(PromptEvent(sequence.request.id, start, tuple(found)))

    def _commit(self, part: Part, rows: int) -> None:
        before = part.sequence.position
        snapshots = self.model.commit(part.span, rows)
        self.lanes.memory.keep(part.sequence, before, snapshots)

    def _count_pass(self, parts: list[Part], used: list[int], seconds: float) -> None:
        totals = self._totals
        totals.passes += 1
        rows = sum(part.rows for part in parts)
        for part, count in zip(parts, used, strict=True):
            share = seconds * part.rows / rows
            if part.draft is None:
                totals.prompt_tokens += count
                totals.prompt_s += share
            else:
                totals.decode_tokens += count
                totals.decode_s += share
        if all(part.draft is not None for part in parts):
            self.curve.note_pass(rows, seconds)

    def _wait_for(self, lost: NodeLost, begun: float) -> list[Event]:
        """Keep everything until the node is back or the time since the pass began is up."""
        if self._lost is None:
            self._lost_at = begun
        self._lost = lost
        if self.clock() - self._lost_at < self.limits.recover_s:
            return []
        return self.fail_all(lost)

    def _finish(
        self, sequence: Sequence, reason: FinishReason, stop_id: int | None = None
    ) -> FinishEvent:
        self.lanes.remove(sequence)
        self._totals.finished += 1
        self._totals.cancelled += reason == "cancelled"
        return FinishEvent(sequence.request.id, reason, sequence.timing(self.clock()), stop_id)

    def _fail(self, sequence: Sequence, error: K3Error) -> ErrorEvent:
        self.lanes.remove(sequence)
        self._totals.failed += 1
        return ErrorEvent(sequence.request.id, error, sequence.timing(self.clock()))


def _wanted(parts: list[Part]) -> Tensor:
    """Rows of a pass whose logits are needed, i64."""
    rows: list[int] = []
    start = 0
    for part in parts:
        rows += [start + row for row in part.wanted]
        start += part.rows
    return torch.tensor(rows, dtype=torch.int64)


def _leading_numbers(logits: Tensor) -> int:
    """Rows before the first that holds something that is not a number."""
    return int(torch.isfinite(logits).all(-1).int().cumprod(0).sum())


def _not_numbers(sequence: Sequence) -> K3Error:
    return K3Error(
        f"the pass at position {sequence.position} gave logits that are not numbers",
        hint="verify the checkpoint and the banks",
    )
