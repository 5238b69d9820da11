"""Builds the emitters of a chain: to operators in the same subtask, and to edges that leave the chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dsv2.graph import Edge, Exchange, Operator, Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.edges import EdgeEmitter, checks_keys, new_edge
from dsv2.runtime.exchange.emitter import Emitter, Observer, Tap, Withholding, fan_out
from dsv2.runtime.exchange.frames import MAX_FRAME_RECORDS, EmitFrame
from dsv2.runtime.exchange.key_check import KeyCheck
from dsv2.runtime.exchange.position_tracing import CurrentPosition
from dsv2.runtime.operator.processors import Processor
from dsv2.runtime.report.metrics import DefaultCounter

PIECE_RECORDS = 1024
"""Records that are processed between checks for full channels. It bounds what a flat_map buffers."""
FULL_FRAME_RECORDS = MAX_FRAME_RECORDS - PIECE_RECORDS
"""Records with which a channel is nearly full, so that they are sent."""


class ChainedOperator(Protocol):
    """A chained operator as its upstream operator sees it."""

    def control_from_chain(self, kind: int, identifier: str, value: Any) -> None:
        """Process a control element."""

    def records_received(self) -> int:
        """Number of records received so far from all inputs."""


class ChainedEmitter(Emitter):
    """Emits to the operator that is chained downstream."""

    __slots__ = ("_operator", "_processor", "_tally")

    def __init__(self, operator: ChainedOperator, processor: Processor, tally: DefaultCounter) -> None:
        """``tally`` counts the emitted records."""
        emit = processor.new_emit(tally)
        super().__init__(emit, processor.new_emit_stamped(emit))
        self._operator = operator
        self._processor = processor
        self._tally = tally

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        self._tally.count += len(batch)
        self._processor.process_chained(batch)

    def control(self, kind: int, identifier: str, value: Any) -> None:
        self._operator.control_from_chain(kind, identifier, value)

    @property
    def records_sent(self) -> int:
        return self._operator.records_received()


class ChainBuilder:
    """Walks the plan downstream from an operator and creates the emitters of one subtask."""

    def __init__(
        self,
        plan: Plan,
        subtask: int,
        new_chained: Callable[[Operator], Emitter],
        observer: Observer | None,
        origin: CurrentPosition | None,
    ) -> None:
        """Create a builder.

        Args:
            plan: The plan of the job.
            subtask: The index of the subtask.
            new_chained: Creates a chained operator, which calls ``outputs`` for its own outputs, and returns an
                emitter to it.
            observer: Called with every emitted record.
            origin: The position of the current record. None: records are not traced.
        """
        self._plan = plan
        self._subtask = subtask
        self._new_chained = new_chained
        self._observer = observer
        self._origin = origin
        self.edges: list[EdgeEmitter] = []
        """The edges that leave the chain."""

    def outputs(self, operator: Operator) -> list[Emitter]:
        """Create an emitter for each output of ``operator``."""
        return [self._output(operator, number) for number in range(operator.outputs)]

    def flush(self, emit: EmitFrame) -> None:
        """Flush all channels."""
        for edge in self.edges:
            edge.flush(emit)

    def flush_full(self, emit: EmitFrame) -> None:
        """Flush the channels that are nearly full."""
        for edge in self.edges:
            edge.flush(emit, FULL_FRAME_RECORDS)

    def _output(self, operator: Operator, number: int) -> Emitter:
        edges = [edge for edge in self._plan.edges_out_of[operator.id] if edge.output == number]
        emitter = fan_out([self._consumer(edge) for edge in edges])
        return emitter if self._observer is None or not edges else Tap(emitter, operator, self._observer)

    def _consumer(self, edge: Edge) -> Emitter:
        emitter = self._emitter(edge)
        return Withholding(emitter, edge.without) if edge.without else emitter

    def _emitter(self, edge: Edge) -> Emitter:
        if self._plan.is_chained(edge):
            return self._chained(edge, self._plan.operators[edge.target])
        emitter = new_edge(self._plan, edge, self._subtask, self._origin)
        self.edges.append(emitter)
        return emitter

    def _chained(self, edge: Edge, target: Operator) -> Emitter:
        emitter = self._new_chained(target)
        # An error policy covers the selector, too.
        if edge.exchange is not Exchange.HASH or target.error_policy is not None or checks_keys(target):
            return emitter
        return KeyCheck(emitter, edge, target, self._subtask, self._origin)
