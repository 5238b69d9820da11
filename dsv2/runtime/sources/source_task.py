"""One subtask of a source: passes records to the functions chained to it and emits them downstream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, NoReturn

from dsv2.base.clock import elapsed_ns
from dsv2.base.log_scope import LogScope
from dsv2.base.record_position import Offset, SplitName
from dsv2.errors import UserFunctionError
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, Plan
from dsv2.model.error_policy import DeadLetter
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import END, START, WATERMARK
from dsv2.runtime.exchange.emitter import Emitter, NowhereEmitter, Observer
from dsv2.runtime.exchange.frames import EmitFrame
from dsv2.runtime.exchange.position_tracing import CurrentPosition
from dsv2.runtime.operator.chain import PIECE_RECORDS, ChainBuilder
from dsv2.runtime.operator.contexts import OutputWatermarkEmitter
from dsv2.runtime.operator.function_instance import FunctionInstance
from dsv2.runtime.operator.function_outputs import WatermarkOutputs
from dsv2.runtime.operator.time_sender import TimeSender
from dsv2.runtime.report.failure import NO_RECORD
from dsv2.runtime.report.letter_buffer import LetterBox, Received
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.sources.offsets import Positions
from dsv2.spi import BatchFunction, FailedRecordError


class SourceTask:
    """Subtask ``index`` of ``source``. Its only state is the position of round-robin edges, because reads repeat."""

    def __init__(
        self,
        plan: Plan,
        source: Operator,
        index: int,
        emit: EmitFrame,
        functions: Mapping[int, ProcessFunction],
        observer: Observer | None = None,
    ) -> None:
        """Create the operators chained to the source.

        Args:
            plan: The plan of the job.
            source: The operator of the source.
            index: The index of the subtask.
            emit: Called with each frame that the subtask emits.
            functions: The functions chained to the source, by operator id.
            observer: Called with every record that an operator emits.
        """
        self._plan = plan
        self._index = index
        self._emit = emit
        self._functions = functions
        self._origin = CurrentPosition() if plan.traces else None
        self._chain = ChainBuilder(plan, index, self._new_chained, observer, self._origin)
        self._chained: list[_StatelessOperator] = []
        self._in_portions: list[tuple[_StatelessOperator, BatchFunction, OutputWatermarkEmitter]] = []
        self._source = source
        self._counters = Counter[str]()
        self.user_ns = 0
        """The time in the reader in ns, with the functions chained to the source. Those who read add to it."""
        self._ended = False
        self.sender = TimeSender(self.control)
        self.skipped: list[tuple[SplitName, Offset]] = []
        """The records that ``skip_records`` has skipped."""
        self.scope = LogScope(plan.job_name, source.uid, index, self._owners)
        """For what is logged while the source is read."""
        self._output, *letters = self._outputs = self._chain.outputs(source)
        self._letters: Emitter = letters[0] if letters else NowhereEmitter()
        self._stored: list[tuple[DeadLetter[Any], int | None]] = []

    @property
    def uid(self) -> str:
        """The uid of the source."""
        return self._source.uid

    def start(self) -> None:
        """Emit START downstream. Called once, when the job starts."""
        self.control(START)

    def seek(self, position: int) -> None:
        """Set the number of the next record of this subtask, from which round-robin edges continue."""
        for edge in self._chain.edges:
            edge.seek(position)

    def send(self, batch: RecordBatch[Any], positions: Positions | None = None) -> None:
        """Emit the records of ``batch``.

        Args:
            batch: The records.
            positions: Where they are in the source. None: unknown.

        Raises:
            UserFunctionError: A function that is chained to the source, or a key selector, failed.
        """
        if positions is not None and self._origin is not None:
            self._send_one_by_one(batch, positions)
            return
        try:
            # Columnar batches are not split: aggregations are more effective on large batches.
            for piece in batch.pieces(len(batch) or 1 if batch.is_columnar else PIECE_RECORDS):
                self._output.emit_batch(piece)
                self._chain.flush_full(self._emit)
        except UserFunctionError:
            if positions is not None:
                # The functions keep no state, so they fail again for the same record. What they emit is lost anyway.
                self._send_one_by_one(batch, positions)
            raise

    def _send_one_by_one(self, batch: RecordBatch[Any], positions: Positions) -> None:
        """Emit record by record, so that an error names the position of its record, and traced records have one."""
        origin = CurrentPosition() if self._origin is None else self._origin
        index = 0
        try:
            for index in range(len(batch)):
                origin.current = positions.packed(index)
                self._output.emit_batch(batch.slice(index, index + 1))
                if index % PIECE_RECORDS == 0:
                    self._chain.flush_full(self._emit)
        except UserFunctionError as failure:
            raise failure.at(positions.at(index)) from failure.cause
        origin.current = None

    def send_letter(self, letter: DeadLetter[Any], timestamp: int | None) -> None:
        """Emit a dead letter of the source, or keep it for ``take_letters`` if nothing reads it.

        ``timestamp``: That of its value in ms, or None.
        """
        if self._source.stores_dead_letters:
            self._stored.append((letter, timestamp))
        else:
            self._letters.emit(letter)

    def take_letters(self, new_codec: Callable[[], Codec]) -> list[dict[str, Any]]:
        """Return and remove the dead letters that nothing reads, as they are stored.

        ``new_codec``: Creates the codec that seals the values.
        """
        if not self._stored:
            return []
        box = LetterBox(new_codec(), self._source.parallelism)
        for letter, timestamp in self._stored:
            box.add(letter, Received(None, letter.record, timestamp))
        self._stored.clear()
        return box.take()

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of the source."""
        self._counters[name] += amount

    def control(self, kind: int, identifier: str = "", value: Any = 0) -> None:
        """Emit a control element downstream, after the records emitted so far."""
        for output in self._outputs:
            output.control(kind, identifier, value)

    def end_portion(self) -> None:
        """Called when all records of the micro-batch have been emitted."""
        for chained, function, watermarks in self._in_portions:
            try:
                function.end_portion(watermarks)
            except BaseException as error:
                chained.fail("end_portion", error)

    def end(self) -> None:
        """Emit END downstream."""
        self.end_portion()
        self._ended = True
        self.control(END)

    def flush(self) -> None:
        """Flush all channels."""
        self._chain.flush(self._emit)

    def progress(self) -> list[SubtaskReport]:
        """Return the reports of the chained operators and of the source, which is the last one."""
        chained = [
            SubtaskReport(
                task.operator.uid,
                self._index,
                records_in=task.records_in,
                outputs=[task.records_out],
                user_ns=task.user_ns,
                ended=self._ended,
            )
            for task in self._chained
        ]
        outputs = [output.records_sent for output in self._outputs]
        of_source = SubtaskReport(
            self.uid,
            self._index,
            outputs=outputs,
            counters=dict(self._counters),
            user_ns=self.user_ns,
            ended=self._ended,
            skipped=list(self.skipped),
        )
        return [*chained, of_source]

    def reset_times(self) -> None:
        """Begin to measure times again. Called between two micro-batches."""
        self.user_ns = 0
        for task in self._chained:
            task.user_ns = 0

    def _owners(self) -> dict[int, str]:
        return {id(one): chained.operator.uid for chained in self._chained for one in (chained, chained.function)}

    def _new_chained(self, operator: Operator) -> Emitter:
        function = copy(self._functions[operator.id])
        assert isinstance(function, BatchFunction)
        (output,) = self._chain.outputs(operator)
        chained = _StatelessOperator(FunctionInstance(operator, self._index, function), function, output)
        self._chained.append(chained)
        if function.keeps_within_portions:
            self._in_portions.append((chained, function, self._watermarks_to(operator, output)))
        return chained

    def _watermarks_to(self, operator: Operator, output: Emitter) -> OutputWatermarkEmitter:
        def send(identifier: str, value: Any, along: int | None) -> None:  # along the only output
            self.sender.check(value, now_ms=0)  # against the event time that the source has sent through this task
            output.control(WATERMARK, identifier, value)

        return OutputWatermarkEmitter(self._plan.declarations, send, WatermarkOutputs(operator))


class _StatelessOperator(Emitter):
    """An operator chained to a source. It only processes batches."""

    __slots__ = ("_instance", "_output", "_process", "records_in", "user_ns")

    def __init__(self, instance: FunctionInstance, function: BatchFunction, output: Emitter) -> None:
        super().__init__(
            lambda record: self.emit_batch(RecordBatch([record])),
            lambda record, timestamp: self.emit_batch(RecordBatch([record], [timestamp])),
        )
        self._instance = instance
        self._process = function.process_record_batch
        self._output = output
        self.records_in = 0
        self.user_ns = 0

    @property
    def operator(self) -> Operator:
        """The operator that it runs."""
        return self._instance.operator

    @property
    def function(self) -> ProcessFunction:
        """Its function."""
        return self._instance.function

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        self.records_in += len(batch)
        began = elapsed_ns()
        try:
            self._process(batch, self._output.emit_batch)
        except FailedRecordError as failed:
            self.fail("process_record", failed.__cause__ or failed, failed.record)
        self.user_ns += elapsed_ns() - began

    def control(self, kind: int, identifier: str, value: Any) -> None:
        self._output.control(kind, identifier, value)

    @property
    def records_out(self) -> int:
        """Number of records emitted so far."""
        return self._output.records_sent

    @property
    def records_sent(self) -> int:
        return self.records_in

    def fail(self, callback: str, error: BaseException, record: Any = NO_RECORD) -> NoReturn:
        """Raise the error that the user sees."""
        self._instance.fail(callback, error, record)
