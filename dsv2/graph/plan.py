"""The frozen plan of a job: operators, edges and declarations. ``build_plan`` creates it, a runtime runs it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, TypeAlias

from dsv2.base.record_position import Offset, SplitName
from dsv2.functions import ProcessFunction
from dsv2.graph.broadcast_wait import WaitForBroadcast
from dsv2.graph.reachability import reachable
from dsv2.graph.sections import Passage, passages_of, sections_of
from dsv2.model.context import RuntimeExecutionMode
from dsv2.model.error_policy import DeadLetter, ErrorPolicy
from dsv2.model.output_tag import OutputTag
from dsv2.sinks import Sink
from dsv2.sources import BaseSource, WatermarkStrategy
from dsv2.spi import BatchFunction, ColumnarFunction
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.event_time import USE_PROCESSING_TIME

DEAD_LETTERS: OutputTag[DeadLetter[Any]] = OutputTag("dsv2 dead letters", DeadLetter)
"""The side output that operators with dead letters have if they are read."""

KeySelector: TypeAlias = Callable[[Any], Hashable]


def one_partition(record: object) -> int:
    """The key selector of functions that treat each subtask of a stream without keys as one partition."""
    return 0


class OperatorKind(Enum):
    """The kind of an operator: source, sink, or the inputs and outputs of its function."""

    SOURCE = "source"
    ONE_INPUT = "one-input"
    TWO_OUTPUT = "two-output"
    TWO_INPUT = "two-input"
    TWO_INPUT_BROADCAST = "two-input-broadcast"
    UNION = "union"
    SINK = "sink"


class Exchange(Enum):
    """The distribution of records to the downstream subtasks."""

    FORWARD = "forward"
    REBALANCE = "rebalance"
    HASH = "hash"
    GLOBAL = "global"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from an output of operator ``source`` to input ``input`` of ``target``.

    The outputs of an operator are numbered: those that its kind has, then its side outputs. ``by_parallelism``: Whether
    there is an exchange only because the ends differ in parallelism or in the number of key groups. ``last_only``:
    Watermarks that are sent once at a position: of several values without a record between them, only the last one.
    ``without``: Watermarks that are not sent, because they are addressed to other operators than those behind it.
    """

    source: int
    output: int
    target: int
    input: int
    exchange: Exchange
    key_selector: KeySelector | None = None
    by_parallelism: bool = False
    last_only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()


class AtSource(IntEnum):
    """The functions that can be chained to a source.

    ``NOTHING``: none. ``RECORDS``: stateless functions. ``MICRO_BATCHES``: also functions without state across
    micro-batches, because one task reads all records of a source subtask in a micro-batch. For a function: what it
    requires of the source.
    """

    NOTHING = 0
    RECORDS = 1
    MICRO_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the plan.

    Attributes:
        id: The index in ``Plan.operators``. Upstream operators come first.
        uid: The name in checkpoints.
        name: The name in progress reports and errors.
        kind: Source, sink, or the inputs and outputs of the function.
        body: The function, source or sink.
        parallelism: Number of subtasks.
        max_parallelism: Number of key groups.
        location: The user's file and line that created the operator.
        input_keys: For each input the key selector, or None if the input is not keyed.
        output_keys: For each output that stays keyed the selector of the current key, otherwise None. Without side
            outputs.
        side_outputs: The side outputs, numbered after the other outputs.
        key_versions: For each input the version that the user gave for its key selector, or None.
        output_key_version: The version that the user gave for the selectors of the outputs, or None.
        automatic_uid: Whether the user gave no uid.
        twin: The location of another operator whose automatic uid differs only in a number, or None.
        at_source: Which functions can be chained to this source; for a function, what it requires.
        watermarks: How a source with splits generates event-time watermarks.
        broadcast_wait: Whether the first input waits for the broadcast input, and for how long.
        error_policy: What happens when a callback raises. None: the job fails.
        skips: For a source, the records to skip in this run: pairs of split and offset.
        groups: The groups to which watermarks can be addressed.
        passes_on: Watermarks that are addressed to other operators. The function does not receive them.
    """

    id: int
    uid: str
    name: str
    kind: OperatorKind
    body: ProcessFunction | BaseSource[Any] | Sink[Any]
    parallelism: int
    max_parallelism: int
    location: str
    input_keys: tuple[KeySelector | None, ...] = ()
    output_keys: tuple[KeySelector | None, ...] = ()
    side_outputs: tuple[OutputTag[Any], ...] = ()
    key_versions: tuple[int | None, ...] = ()
    output_key_version: int | None = None
    automatic_uid: bool = False
    twin: str | None = None
    at_source: AtSource = AtSource.NOTHING
    watermarks: WatermarkStrategy[Any] | None = None
    broadcast_wait: WaitForBroadcast | None = None
    error_policy: ErrorPolicy | None = None
    skips: frozenset[tuple[SplitName, Offset]] = frozenset()
    groups: frozenset[str] = frozenset()
    passes_on: frozenset[str] = frozenset()

    @property
    def dead_letter_output(self) -> int | None:
        """The number of the output for dead letters, or None if nothing in the job reads them."""
        if DEAD_LETTERS not in self.side_outputs:
            return None
        return len(self.output_keys) + self.side_outputs.index(DEAD_LETTERS)

    @property
    def stores_dead_letters(self) -> bool:
        """True if its dead letters are stored, because nothing reads them."""
        emits = self.error_policy is not None and self.error_policy.has_dead_letters
        return emits and self.dead_letter_output is None

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return len(self.output_keys) + len(self.side_outputs)

    def side_output(self, output: int) -> OutputTag[Any] | None:
        """The tag of the output with this number, or None if it is not a side output."""
        return self.side_outputs[output - len(self.output_keys)] if output >= len(self.output_keys) else None

    def output_name(self, output: int) -> int | str:
        """The output with this number in checkpoints: the name of a side output, otherwise the number."""
        tag = self.side_output(output)
        return output if tag is None else tag.name

    @property
    def keyed(self) -> bool:
        """True if the operator is partitioned by key."""
        return any(selector is not None for selector in self.input_keys)

    @property
    def keys_stay(self) -> bool:
        """True if state belongs to the subtask rather than the key, because each subtask is one partition."""
        return any(selector is one_partition for selector in self.input_keys)

    @property
    def function(self) -> ProcessFunction:
        """The process function. Not for sources and sinks."""
        assert isinstance(self.body, ProcessFunction)
        return self.body

    @property
    def declared_watermarks(self) -> Collection[WatermarkDeclaration]:
        """The declarations of the function or source itself, without the strategy of a source. Empty for sinks."""
        return () if isinstance(self.body, Sink) else self.body.declare_watermarks()

    def declares(self, identifier: str) -> bool:
        """Return whether the function or source declares a watermark itself."""
        return any(declaration.identifier == identifier for declaration in self.declared_watermarks)

    def warn(self, text: str, kind: type[Warning]) -> None:
        """Warn at the line that created the operator."""
        file, _, line = self.location.rpartition(":")
        warnings.warn_explicit(text, kind, file, int(line))

    def __str__(self) -> str:
        return f"{self.name} (uid {self.uid!r})" if self.name != self.uid else self.uid


@dataclass(frozen=True)
class RegisteredType:
    """A class that the program registered for records and state.

    Attributes:
        kind: The class.
        take_apart: Converts a value to plain values, or None.
        build: Creates a value from the result of ``take_apart``, or None.
        formerly: The names (module and qualified name, with dots) that the class had in earlier programs.
    """

    kind: type
    take_apart: Callable[[Any], object] | None = None
    build: Callable[[Any], Any] | None = None
    formerly: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A checked job.

    Attributes:
        job_name: The name of the job.
        mode: STREAMING or BATCH.
        operators: The operators, upstream first.
        edges: The edges between them.
        declarations: The watermark declarations by identifier.
        registered_types: The classes registered by the program.
        callback_timeout_ms: The limit for one callback of a function in ms. None: no limit.
        traces: Whether records carry the position in the source from which they come, for errors.
        columnar: The sources whose records are read as columns. None: their receivers determine them.
    """

    job_name: str
    mode: RuntimeExecutionMode
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    declarations: Mapping[str, WatermarkDeclaration]
    registered_types: tuple[RegisteredType, ...] = ()
    callback_timeout_ms: int | None = None
    traces: bool = False
    columnar: frozenset[int] | None = None

    def with_stand_ins(self, operators: Iterable[Operator]) -> Plan:
        """Return the plan for workers. ``operators``: Its operators, whose bodies other objects may replace."""
        sources = (operator for operator in self.operators if operator.kind is OperatorKind.SOURCE)
        columnar = frozenset(source.id for source in sources if self.processes_columns(source))
        return replace(self, operators=tuple(operators), columnar=columnar)

    @cached_property
    def per_key(self) -> frozenset[str]:
        """The identifiers of the watermarks about one key."""
        return frozenset(name for name, one in self.declarations.items() if one.scope.key_type is not None)

    @cached_property
    def edges_into(self) -> Mapping[int, tuple[Edge, ...]]:
        """The incoming edges of each operator, sorted by input."""
        return {
            operator.id: tuple(sorted((e for e in self.edges if e.target == operator.id), key=lambda edge: edge.input))
            for operator in self.operators
        }

    @cached_property
    def edges_out_of(self) -> Mapping[int, tuple[Edge, ...]]:
        """The outgoing edges of each operator, sorted by output, then in the order of creation."""
        return {
            operator.id: tuple(sorted((e for e in self.edges if e.source == operator.id), key=lambda edge: edge.output))
            for operator in self.operators
        }

    @cached_property
    def chain_heads(self) -> Mapping[int, int]:
        """For each source and process operator the head of its chain, which is the operator itself if not chained."""
        heads: dict[int, int] = {}
        for operator in self.operators:
            if operator.kind is OperatorKind.SINK:
                continue
            edges = self.edges_into[operator.id]
            chained = len(edges) == 1 and self._joins(operator, edges[0], heads[edges[0].source])
            heads[operator.id] = heads[edges[0].source] if chained else operator.id
        return heads

    def _joins(self, operator: Operator, edge: Edge, head: int) -> bool:
        # Forward edges are chained as in Flink. Source subtasks have no state, so only stateless functions join them.
        at_source = AtSource.NOTHING < operator.at_source <= self.operators[head].at_source
        return self._is_one_to_one(edge) and (at_source or not self._is_source(head))

    def _is_one_to_one(self, edge: Edge) -> bool:
        """Return whether each subtask of the target receives only from the subtask with the same index.

        Not if others receive the same records from a single subtask: an exchange gives each of them copies.
        """
        if edge.exchange is Exchange.FORWARD:
            return True
        both_single = self.operators[edge.source].parallelism == self.operators[edge.target].parallelism == 1
        return both_single and sum(other.output == edge.output for other in self.edges_out_of[edge.source]) == 1

    @cached_property
    def chains(self) -> Mapping[int, tuple[Operator, ...]]:
        """For each chain head the operators of the chain, upstream first. Chains of sources are not included."""
        members: dict[int, list[Operator]] = {}
        for operator_id, head in self.chain_heads.items():
            if not self._is_source(head):
                members.setdefault(head, []).append(self.operators[operator_id])
        return {head: tuple(operators) for head, operators in members.items()}

    @cached_property
    def chained_to_sources(self) -> tuple[Operator, ...]:
        """The operators that are chained to a source."""
        heads = self.chain_heads.items()
        return tuple(self.operators[op] for op, head in heads if op != head and self._is_source(head))

    @cached_property
    def edges_out_of_chains(self) -> Mapping[int, list[Edge]]:
        """The edges that leave each chain, by its head."""
        leaving: dict[int, list[Edge]] = {}
        for edge in self.edges:
            if not self.is_chained(edge):
                leaving.setdefault(self.chain_heads[edge.source], []).append(edge)
        return leaving

    @cached_property
    def read_by(self) -> Mapping[int, int]:
        """For each source that the subtasks of a single chain can read themselves, the head of that chain."""
        return {
            source: edges[0].target
            for source, edges in self.edges_out_of_chains.items()
            if self._is_source(source) and len(edges) == 1 and self._may_read(edges[0], self.operators[source])
        }

    @cached_property
    def read_by_sinks(self) -> tuple[Operator, ...]:
        """The sources whose records reach a sink without an exchange between functions."""
        sinks = {operator.id for operator in self.operators if operator.kind is OperatorKind.SINK}
        heads = {self.chain_heads[edge.source] for edge in self.edges if edge.target in sinks}
        return tuple(self.operators[head] for head in sorted(heads) if self._is_source(head))

    def _may_read(self, edge: Edge, source: Operator) -> bool:
        by_subtask = edge.target in self.chains and self._is_one_to_one(edge)
        return by_subtask and source.at_source is AtSource.MICRO_BATCHES

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """The places at which records pass through DataFrames, upstream first. Known before workers get the plan."""
        return passages_of(self)

    @cached_property
    def sections(self) -> Mapping[int, int]:
        """For each operator the number of passages before it. Raises ``PlanError`` if records pass by a DataFrame."""
        return sections_of(self, self.passages)

    @cached_property
    def depths(self) -> Mapping[int, int]:
        """For each chain head the number of exchanges from its farthest source: 1 directly after a source.

        A section continues after the greatest depth of the previous one.
        """
        depths: dict[int, int] = {}
        begins = dict.fromkeys(range(len(self.passages) + 1), 0)
        for head in sorted(self.chains, key=lambda head: (self.sections[head], head)):
            section = self.sections[head]
            upstream = [self.chain_heads[edge.source] for edge in self.edges_into[head]]
            begin = begins[section]
            depths[head] = 1 + max(begin if self._is_source(other) else depths[other] for other in upstream)
            for later in range(section + 1, len(begins)):
                begins[later] = max(begins[later], depths[head])
        return depths

    def is_chained(self, edge: Edge) -> bool:
        """Return whether both ends of ``edge`` run in one subtask."""
        heads = self.chain_heads
        return edge.target in heads and heads[edge.target] == heads[edge.source] != edge.target

    def channels_of(self, edge: Edge) -> int:
        """The number of channels of ``edge`` into each subtask of its target."""
        return 1 if edge.exchange is Exchange.FORWARD else self.operators[edge.source].parallelism

    def needs_clock(self, operator: Operator) -> bool:
        """Return whether ``operator`` may have work to do when no records arrive."""
        if not isinstance(operator.body, ProcessFunction):
            return False
        by_clock = operator.body.dsv2_has_event_time and USE_PROCESSING_TIME in self.declarations
        has_deadlines = operator.id in self._receivers_of_deadlines
        return has_deadlines or by_clock or operator.body.dsv2_uses_processing_timers()

    @cached_property
    def _receivers_of_deadlines(self) -> frozenset[int]:
        """The operators downstream of one that declares a watermark that expires, or a barrier with a timeout."""
        has_deadline = {one.id for one in self.operators if any(it.has_deadline for it in one.declared_watermarks)}
        return frozenset(self.downstream_of(edge.target for edge in self.edges if edge.source in has_deadline))

    def downstream_of(self, operators: Iterable[int]) -> set[int]:
        """The ids of ``operators``, and of all that are downstream of them."""
        return reachable(operators, lambda one: [edge.target for edge in self.edges_out_of[one]])

    def upstream_of(self, operator: Operator) -> Iterator[Operator]:
        """The operators upstream of ``operator``, in their order."""
        found = reachable([operator.id], lambda one: [edge.source for edge in self.edges_into[one]])
        return (self.operators[number] for number in sorted(found - {operator.id}))

    def readers_report(self, source: Operator) -> bool:
        """Return whether the readers of ``source``, which has splits, report event time or failures to the driver."""
        has_time = source.watermarks is not None or USE_PROCESSING_TIME in self.declarations
        return has_time or (source.error_policy is not None and source.error_policy.max_failures is not None)

    def processes_columns(self, source: Operator) -> bool:
        """Return whether a function or sink on tables receives the records of ``source`` as they were read."""
        if self.columnar is not None:
            return source.id in self.columnar

        def receivers(one: int) -> list[int]:
            body = self.operators[one].body
            passes = one == source.id or (isinstance(body, BatchFunction) and body.passes_records)
            return [edge.target for edge in self.edges_out_of[one]] if passes else []

        return any(_takes_tables(self.operators[one].body) for one in reachable([source.id], receivers))

    def sender(self, operator_id: int, channel: int) -> Operator:
        """The operator that sends to a channel of ``operator_id``."""
        edges = self.edges_into[operator_id]
        senders = [edge.source for edge in edges for _ in range(self.channels_of(edge))]
        return self.operators[senders[channel]]

    def _is_source(self, operator_id: int) -> bool:
        return self.operators[operator_id].kind is OperatorKind.SOURCE


def _takes_tables(body: object) -> bool:
    return isinstance(body, ColumnarFunction) or (isinstance(body, Sink) and body.dsv2_takes_columns)
