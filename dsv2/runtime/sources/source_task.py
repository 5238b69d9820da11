"""One subtask of a source: hands the records that were read to stateless functions, and routes them to the channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from dsv2.columnar import Columnar
from dsv2.functions import CollectAll, ProcessFunction, RunFunction
from dsv2.graph import Edge, Operator, Plan
from dsv2.runtime.exchange.frames import END, MAX_FRAME_RECORDS, START, WATERMARK, EmitFrame, Timestamps
from dsv2.runtime.exchange.outputs import EdgeOutput
from dsv2.runtime.operator.contexts import WatermarkEmitter
from dsv2.runtime.operator.record_loops import run_loop
from dsv2.runtime.operator.time_sender import TimeSender
from dsv2.runtime.report.failure import NO_KEY, raise_user_failure
from dsv2.runtime.report.metrics import DefaultCounter

__all__ = ("SourceTask",)

_PIECE = 1024

Watch = Callable[[Operator, Any], None]


class SourceTask:
    """Subtask ``index`` of ``source``. Keeps no state but the round of its edges: sources repeat themselves."""

    def __init__(
        self,
        plan: Plan,
        source: Operator,
        index: int,
        emit: EmitFrame,
        functions: Mapping[int, ProcessFunction],
        watch: Watch | None = None,
    ) -> None:
        """``functions``: by operator id, those of the operators that are chained to the source."""
        self._plan = plan
        self._index = index
        self._emit = emit
        self._functions = functions
        self._watch = watch
        self._edges: list[EdgeOutput] = []
        self._in_portions: list[tuple[Operator, RunFunction, WatermarkEmitter]] = []
        self._tallies: list[tuple[Operator, DefaultCounter, DefaultCounter]] = []
        self._source = source
        self._counters = Counter[str]()
        self._sent = 0
        self._ended = False
        self.sender = TimeSender(self.control)
        self._collect = self._output(source)

    def start(self) -> None:
        """Tell downstream that there is something here; at the very beginning of the job."""
        self.control(START)

    def seek(self, position: int) -> None:
        """Let the next record be number ``position`` of this subtask: round-robin edges go on from there."""
        for edge in self._edges:
            edge.seek(position)

    def send(self, records: Sequence[Any], timestamps: Timestamps = None) -> None:
        """Route ``records``."""
        if self._watch is not None and not isinstance(records, Columnar):  # columns cannot change
            for record in records:
                self._watch(self._source, record)
        self._sent += len(records)
        # Columns stay together as the reader has read them: those who add them up want as many as there are.
        piece = len(records) if isinstance(records, Columnar) else _PIECE
        for start in range(0, len(records), piece or 1):
            stop = start + piece
            self._collect(records[start:stop], None if timestamps is None else timestamps[start:stop])
            for edge in self._edges:
                edge.flush(self._emit, MAX_FRAME_RECORDS - _PIECE)

    def count(self, name: str, amount: int) -> None:
        """Add to a counter of the source."""
        self._counters[name] += amount

    def control(self, kind: int, identifier: str = "", value: int | bool = 0) -> None:
        """Send a control element downstream, behind the records so far."""
        for edge in self._edges:
            edge.control(kind, identifier, value)

    def end_portion(self) -> None:
        """All that was to be read in this micro-batch has been sent."""
        for operator, function, watermarks in self._in_portions:
            try:
                function.end_portion(watermarks)
            except BaseException as error:
                raise_user_failure(operator, self._index, "end_portion", error)

    def end(self) -> None:
        """Tell downstream that nothing more will come."""
        self.end_portion()
        self._ended = True
        self.control(END)

    def flush(self) -> None:
        """Send what is still held back."""
        for edge in self._edges:
            edge.flush(self._emit)

    def progress(self) -> list[dict[str, Any]]:
        """What each chained operator has done since this task was made; the source, if it counts or has ended."""
        chained = [self._entry(operator, taken.count, given.count) for operator, taken, given in self._tallies]
        if not self._ended and not self._counters:
            return chained
        return [*chained, {**self._entry(self._source, 0, self._sent), "counters": dict(self._counters)}]

    def _entry(self, operator: Operator, records_in: int, records_out: int) -> dict[str, Any]:
        return {
            "uid": operator.uid,
            "subtask": self._index,
            "records_in": records_in,
            "records_out": records_out,
            "watermarks": {},
            "counters": {},
            "gauges": {},
            "records_held": 0,
            "ended": self._ended,
        }

    def _output(self, operator: Operator) -> CollectAll:
        collects = [self._consumer(edge) for edge in self._plan.edges_out_of[operator.id]]

        def collect_all(records: Sequence[Any], timestamps: Timestamps) -> None:
            for collect in collects:
                collect(records, timestamps)

        return collects[0] if len(collects) == 1 else collect_all

    def _consumer(self, edge: Edge) -> CollectAll:
        if self._plan.is_chained(edge):
            return self._chained(self._plan.operators[edge.target])
        output = EdgeOutput(self._plan, edge, self._index)
        self._edges.append(output)
        return output.collect_all

    def _watermarks_to(self, edges: list[EdgeOutput]) -> WatermarkEmitter:
        def send(identifier: str, value: int | bool) -> None:
            self.sender.check(value, now_ms=0)  # by the flag of the source, which has gone through here
            for edge in edges:
                edge.control(WATERMARK, identifier, value)

        return WatermarkEmitter(self._plan.declarations, send)

    def _chained(self, operator: Operator) -> CollectAll:
        function = copy(self._functions[operator.id])
        assert isinstance(function, RunFunction)
        taken, given, watch = DefaultCounter(), DefaultCounter(), self._watch
        self._tallies.append((operator, taken, given))
        upstream = len(self._edges)
        collect = self._output(operator)
        if function.keeps_within_portions:
            self._in_portions.append((operator, function, self._watermarks_to(self._edges[upstream:])))

        def emit(records: Sequence[Any], timestamps: Timestamps) -> None:
            given.count += len(records)
            if watch is not None and not isinstance(records, Columnar):
                for record in records:
                    watch(operator, record)
            collect(records, timestamps)

        def fail(error: BaseException, record: Any, key: Any) -> Any:
            raise_user_failure(operator, self._index, "process_record", error, record=record, key=NO_KEY)

        run = run_loop(function.process_run, emit, fail)

        def process(records: Sequence[Any], timestamps: Timestamps) -> None:
            taken.count += len(records)
            run(records, timestamps)

        return process
