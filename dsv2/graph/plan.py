"""The frozen plan of a job: operators, edges, declarations. Made by ``build_plan``, run by a runtime."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, TypeAlias

from dsv2.context import RuntimeExecutionMode
from dsv2.errors import InternalError
from dsv2.functions import ProcessFunction
from dsv2.sinks import Sink
from dsv2.sources import BaseSource, WatermarkStrategy
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.event_time import USE_PROCESSING_TIME

__all__ = ("AtSource", "Edge", "Exchange", "KeySelector", "Operator", "OperatorKind", "Plan", "RegisteredType")

KeySelector: TypeAlias = Callable[[Any], Hashable]


class OperatorKind(Enum):
    """What an operator calls, and how."""

    SOURCE = "source"
    ONE_INPUT = "one-input"
    TWO_OUTPUT = "two-output"
    TWO_INPUT = "two-input"
    TWO_INPUT_BROADCAST = "two-input-broadcast"
    SINK = "sink"


class Exchange(Enum):
    """Which downstream subtasks get a record."""

    FORWARD = "forward"
    REBALANCE = "rebalance"
    HASH = "hash"
    GLOBAL = "global"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class Edge:
    """From output ``output`` (0 or 1) of operator ``source`` to input ``input`` (0 or 1) of operator ``target``."""

    source: int
    output: int
    target: int
    input: int
    exchange: Exchange
    key_selector: KeySelector | None = None


class AtSource(IntEnum):
    """What is together where a source reads: nothing that a function could use, single records, or portions.

    A portion is all that a source subtask reads in a micro-batch. A function needs that much to run there: it keeps
    nothing from one record to the next, or from one portion to the next.
    """

    NOTHING = 0
    RECORDS = 1
    MICRO_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Operator:
    """One node. ``id`` is its index in ``Plan.operators``; sources come before what they feed.

    ``input_keys``: per input the key selector, or None where the input is not keyed.
    ``output_keys``: per output the selector that must give the current key (key-preserving variants), or None.
    ``key_versions``: per input the version that the user gives for its key selector, or None.
    ``output_key_version``: the same for all selectors of the outputs.
    ``automatic_uid``: the user has given none. ``twin``: the place of another operator with the same automatic uid but
    for a number.
    ``at_source``: which functions may run where this source reads; for a function, how much of it.
    ``watermarks``: how a source with splits tells event time. ``location``: the user's file and line that made the
    operator.
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
    key_versions: tuple[int | None, ...] = ()
    output_key_version: int | None = None
    automatic_uid: bool = False
    twin: str | None = None
    at_source: AtSource = AtSource.NOTHING
    watermarks: WatermarkStrategy[Any] | None = None

    @property
    def keyed(self) -> bool:
        """Whether the operator's partitions are keys."""
        return any(selector is not None for selector in self.input_keys)

    @property
    def function(self) -> ProcessFunction:
        """The process function; not for sources and sinks."""
        assert isinstance(self.body, ProcessFunction)
        return self.body

    def __str__(self) -> str:
        return f"{self.name} (uid {self.uid!r})" if self.name != self.uid else self.uid


@dataclass(frozen=True)
class RegisteredType:
    """A class of records or state that the program has named, and what its values are made from, if that was said."""

    kind: type
    take_apart: Callable[[Any], object] | None = None
    build: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Plan:
    """A whole job, checked. ``callback_timeout_ms``: how long a callback of a function may take; None: any time."""

    job_name: str
    mode: RuntimeExecutionMode
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    declarations: Mapping[str, WatermarkDeclaration]
    registered_types: tuple[RegisteredType, ...] = ()
    callback_timeout_ms: int | None = None

    @cached_property
    def edges_into(self) -> Mapping[int, tuple[Edge, ...]]:
        """Per operator its incoming edges, by input."""
        return {
            operator.id: tuple(sorted((e for e in self.edges if e.target == operator.id), key=lambda edge: edge.input))
            for operator in self.operators
        }

    @cached_property
    def edges_out_of(self) -> Mapping[int, tuple[Edge, ...]]:
        """Per operator its outgoing edges, by output, then in the order they were made."""
        return {
            operator.id: tuple(sorted((e for e in self.edges if e.source == operator.id), key=lambda edge: edge.output))
            for operator in self.operators
        }

    @cached_property
    def chain_heads(self) -> Mapping[int, int]:
        """Per source and process operator the operator whose subtask it runs in: itself, unless it is chained."""
        heads: dict[int, int] = {}
        for operator in self.operators:
            if operator.kind is OperatorKind.SINK:
                continue
            edges = self.edges_into[operator.id]
            chained = len(edges) == 1 and self._joins(operator, edges[0], heads[edges[0].source])
            heads[operator.id] = heads[edges[0].source] if chained else operator.id
        return heads

    def _joins(self, operator: Operator, edge: Edge, head: int) -> bool:
        # As Flink chains forward edges. Source subtasks have no state here, so what joins them needs none.
        at_source = AtSource.NOTHING < operator.at_source <= self.operators[head].at_source
        return edge.exchange is Exchange.FORWARD and (at_source or not self._is_source(head))

    @cached_property
    def chains(self) -> Mapping[int, tuple[Operator, ...]]:
        """Per chain head all operators that share its subtasks, upstream first; without the chains of sources."""
        members: dict[int, list[Operator]] = {}
        for operator_id, head in self.chain_heads.items():
            if not self._is_source(head):
                members.setdefault(head, []).append(self.operators[operator_id])
        return {head: tuple(operators) for head, operators in members.items()}

    @cached_property
    def chained_to_sources(self) -> tuple[Operator, ...]:
        """The operators that run where a source reads."""
        heads = self.chain_heads.items()
        return tuple(self.operators[op] for op, head in heads if op != head and self._is_source(head))

    @cached_property
    def read_by(self) -> Mapping[int, int]:
        """Per source whose records go to one chain only, subtask by subtask, the head of that chain, which may read."""
        leaving: dict[int, list[Edge]] = {}
        for edge in self.edges:
            if not self.is_chained(edge):
                leaving.setdefault(self.chain_heads[edge.source], []).append(edge)
        return {
            source: edges[0].target
            for source, edges in leaving.items()
            if self._is_source(source) and len(edges) == 1 and self._may_read(edges[0], self.operators[source])
        }

    def _may_read(self, edge: Edge, source: Operator) -> bool:
        by_subtask = edge.target in self.chains and edge.exchange is Exchange.FORWARD
        return by_subtask and source.at_source is AtSource.MICRO_BATCHES

    @cached_property
    def depths(self) -> Mapping[int, int]:
        """Per chain head the number of exchanges between it and its farthest source: 1 for what reads sources."""
        depths: dict[int, int] = {}
        for head in self.chains:
            upstream = [self.chain_heads[edge.source] for edge in self.edges_into[head]]
            depths[head] = 1 + max(0 if self._is_source(other) else depths[other] for other in upstream)
        return depths

    def is_chained(self, edge: Edge) -> bool:
        """Whether both ends of ``edge`` run in one subtask."""
        heads = self.chain_heads
        return edge.target in heads and heads[edge.target] == heads[edge.source] != edge.target

    def channels_of(self, edge: Edge) -> int:
        """How many channels ``edge`` brings to each subtask of its target."""
        return 1 if edge.exchange is Exchange.FORWARD else self.operators[edge.source].parallelism

    def needs_clock(self, operator: Operator) -> bool:
        """Whether ``operator`` may have something to do at times when no records come."""
        if not isinstance(operator.body, ProcessFunction):
            return False
        by_clock = operator.body.dsv2_has_event_time and USE_PROCESSING_TIME in self.declarations
        return by_clock or operator.body.dsv2_uses_processing_timers()

    def readers_report(self, source: Operator) -> bool:
        """Whether the driver has to know what the readers of ``source``, one with splits, have sent of event time."""
        return source.watermarks is not None or USE_PROCESSING_TIME in self.declarations

    def sender(self, operator_id: int, channel: int) -> Operator:
        """The operator at the other end of a channel of ``operator_id``."""
        for edge in self.edges_into[operator_id]:
            channel -= self.channels_of(edge)
            if channel < 0:
                return self.operators[edge.source]
        raise InternalError(f"{self.operators[operator_id]} has no such channel.")

    def _is_source(self, operator_id: int) -> bool:
        return self.operators[operator_id].kind is OperatorKind.SOURCE
