"""The base class of harnesses: a real subtask that runs one function, with inputs, outputs and a manual clock."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Generic, TypedDict

from typing_extensions import TypeVar

from dsv2.base.type_variables import IN, OUT, R
from dsv2.checks.tracebacks import short_traceback
from dsv2.errors import ConfigurationError, ContractError, UndeclaredWatermarkError
from dsv2.extension.event_time import EventTimeExtension, EventTimeProcessFunction
from dsv2.functions import ProcessFunction
from dsv2.graph import OperatorKind, Plan
from dsv2.graph.plan import DEAD_LETTERS
from dsv2.graph.side_outputs import list_tags
from dsv2.jobs.progress import OperatorProgress
from dsv2.local.mutation import MutationCheck
from dsv2.local.readers import own_copy
from dsv2.model.context import SubtaskStateManager
from dsv2.model.error_policy import DeadLetter, ErrorPolicy
from dsv2.model.output_tag import OutputTag
from dsv2.model.resource import resources_in_use
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.exchange.wire import Wire
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.operator_task import OperatorTask
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.rescale import rescale
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.keyed_store import Domain
from dsv2.runtime.state.timers import BatchTime
from dsv2.state import TtlTimeCharacteristic
from dsv2.testing.clock import ManualClock
from dsv2.testing.elements import Element, EndOfInput, IdleStatus, StampedRecord, from_frame, to_frame
from dsv2.watermark import Watermark, WatermarkDeclaration

CTX = TypeVar("CTX", default=Any)  # the context of a partition

NO_PARTITION: Any = object()
"""Used instead of a key for the single partition of a function that is not keyed."""

_EVENT_TIME = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
_IDLE_STATUS = EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION
_USE_PROCESSING_TIME = EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION


class HarnessOptions(TypedDict, total=False):
    """The options of all harnesses.

    Attributes:
        channels: The number of channels (upstream subtasks) of each input (default: 1).
        parallelism: The parallelism of the operator (default: 1).
        subtask: The index of the subtask under test (default: 0).
        max_parallelism: The maximum parallelism of the operator.
        declarations: The watermarks that other functions of the job declare.
        error_policy: The error policy of the function.
        side_outputs: The tags that callables emit to. (Those that the function declares are known.)
        clock: The clock (default: one that starts at 0).
        snapshot: The snapshot of an earlier harness. The function is restored from it instead of opened.
        rescaled: The snapshots of all subtasks of another parallelism, in order, instead of ``snapshot``.
        checks: Whether to make the checks described in ``Harness`` (default: True).
    """

    channels: int
    parallelism: int
    subtask: int
    max_parallelism: int
    declarations: Collection[WatermarkDeclaration]
    error_policy: ErrorPolicy
    side_outputs: Collection[OutputTag[Any]]
    clock: ManualClock
    snapshot: bytes
    rescaled: Sequence[bytes]
    checks: bool


def check_options(options: HarnessOptions) -> None:
    """Raise ``ConfigurationError`` for an unknown option."""
    known = HarnessOptions.__annotations__
    for name in options:
        if name not in known:
            raise ConfigurationError(f"A harness has no option {name!r}. The options are {', '.join(known)}.")


def declared_with(function: ProcessFunction, options: HarnessOptions) -> list[WatermarkDeclaration]:
    """Return the watermarks that the rest of the job declares: those of the options, and event time if it is used."""
    declarations = list(options.get("declarations", ()))
    if isinstance(function, EventTimeProcessFunction) or _expires_in_event_time(function):
        of_event_time = (_EVENT_TIME, _IDLE_STATUS, _USE_PROCESSING_TIME)
        declarations += [one for one in of_event_time if one not in declarations]
    return declarations


def _expires_in_event_time(function: ProcessFunction) -> bool:
    lifetimes = [state.time_to_live for state in function.uses_states()]
    return any(ttl is not None and ttl.time_characteristic is TtlTimeCharacteristic.EVENT_TIME for ttl in lifetimes)


class HarnessInput(Generic[IN]):
    """An input of a harness. All pushed elements are processed before the call returns.

    Every method accepts the number of the ``channel``, and raises ``UserFunctionError`` if a callback raises.
    """

    def __init__(self, harness: Harness, index: int, channels: int) -> None:
        self._harness = harness
        self._index = index
        self._channels = channels
        self._ended: set[int] = set()

    @short_traceback
    def push(self, *records: IN, timestamp: int | None = None, channel: int = 0) -> None:
        """Push records.

        Args:
            records: The records.
            timestamp: The timestamp of all of them, in ms. None: they have none.
            channel: The number of the channel.

        Raises:
            ContractError: The timestamp is invalid, or the channel does not exist or has ended.
            UserFunctionError: A callback raised.
        """
        self.push_all([StampedRecord(record, timestamp) for record in records], channel=channel)

    @short_traceback
    def push_watermark(self, watermark: Watermark, *, channel: int = 0) -> None:
        """Push a watermark. Raises ``UndeclaredWatermarkError`` if it is not declared, see ``declarations``."""
        self.push_all([watermark], channel=channel)

    @short_traceback
    def push_event_time(self, timestamp: int, *, channel: int = 0) -> None:
        """Push an event-time watermark with ``timestamp`` (ms)."""
        self.push_watermark(_EVENT_TIME.new_watermark(timestamp), channel=channel)

    @short_traceback
    def push_use_processing_time(self, *, channel: int = 0) -> None:
        """Push the flag after which event time is the wall clock."""
        self.push_watermark(_USE_PROCESSING_TIME.new_watermark(True), channel=channel)

    @short_traceback
    def push_idle(self, idle: bool = True, *, channel: int = 0) -> None:
        """Mark the channel as idle, or as active again."""
        self.push_all([IdleStatus(idle)], channel=channel)

    @short_traceback
    def end(self, *, channel: int | None = None) -> None:
        """End the channel. None ends all remaining channels, one after the other."""
        remaining = [number for number in range(self._channels) if number not in self._ended]
        for number in remaining if channel is None else [channel]:
            self.push_all([EndOfInput()], channel=number)

    @short_traceback
    def push_all(self, elements: Iterable[Element[IN]], *, channel: int = 0) -> None:
        """Push records and signals, such as the ``elements`` of another harness's output."""
        elements = list(elements)
        if not 0 <= channel < self._channels:
            raise ContractError(
                f"The input has no channel {channel}. It has {self._channels} channels (see channels=...)."
            )
        if channel in self._ended:
            raise ContractError(f"Channel {channel} has ended.")
        if any(isinstance(element, EndOfInput) for element in elements):
            self._ended.add(channel)
        self._harness._receive(self._index, self._index * self._channels + channel, elements)


class HarnessOutput(Generic[OUT]):
    """An output of a harness: the elements emitted since the beginning, or since ``clear``."""

    def __init__(self) -> None:
        self.elements: list[Element[OUT]] = []
        """The records and signals in order."""

    @property
    def stamped_records(self) -> list[StampedRecord[OUT]]:
        """The records with their timestamps."""
        return [element for element in self.elements if isinstance(element, StampedRecord)]

    @property
    def records(self) -> list[OUT]:
        """The records."""
        return [stamped.record for stamped in self.stamped_records]

    @property
    def timestamps(self) -> list[int | None]:
        """The timestamps of the records, in ms."""
        return [stamped.timestamp for stamped in self.stamped_records]

    @property
    def watermarks(self) -> list[Watermark]:
        """The watermarks, including those of event time."""
        return [one for one in self.elements if not isinstance(one, StampedRecord | IdleStatus | EndOfInput)]

    @property
    def event_times(self) -> list[int]:
        """The event-time watermarks, in ms."""
        return [one.value for one in self.watermarks if EventTimeExtension.is_event_time_watermark(one)]

    @property
    def idle_statuses(self) -> list[bool]:
        """The changes of the idle status: True for idle, False for active."""
        return [element.idle for element in self.elements if isinstance(element, IdleStatus)]

    @property
    def ended(self) -> bool:
        """True if the output has ended."""
        return any(isinstance(element, EndOfInput) for element in self.elements)

    def clear(self) -> None:
        """Discard the elements emitted so far."""
        self.elements.clear()


class Harness(Generic[CTX]):
    """The base class of the four kinds of harnesses.

    The function is copied, as for every subtask. A micro-batch ends when the clock is advanced and when a snapshot is
    taken.

    A harness is as strict as ``LocalRuntime``. Records are serialized and deserialized on input and output. State is
    serialized and restored after ``open`` and between micro-batches, so state handles are valid within a micro-batch
    only. A record that is modified after it was emitted raises ``RecordMutatedError``. ``checks=False`` disables these
    checks.

    A ``Resource`` stays open until the inputs of all harnesses that exist have ended, or ``close`` was called.
    """

    def __init__(self, plan: Plan, options: HarnessOptions) -> None:
        self.clock = options.get("clock") or ManualClock()
        self._plan = plan
        self._index = options.get("subtask", 0)
        (head,) = plan.chains
        self._operator = plan.operators[head]
        self._time = BatchTime(self.clock.now_ms())
        self._job = JobContext.in_process(plan, self._time, self.clock)
        codec = self._job.codec
        checks = options.get("checks", True)
        self._mutation = MutationCheck(codec) if checks else None
        self._wire = Wire(plan, codec) if checks else None
        sinks = [operator.id for operator in plan.operators if operator.kind is OperatorKind.SINK]
        self._outputs = [HarnessOutput[Any]() for _ in sinks]
        self._outputs_by_sink = dict(zip(sinks, self._outputs, strict=True))
        self._inputs = [
            HarnessInput[Any](self, index, plan.channels_of(edge))
            for index, edge in enumerate(plan.edges_into[self._operator.id])
        ]
        resources = ExitStack()
        resources.enter_context(resources_in_use())
        self._release_resources = weakref.finalize(self, resources.close)
        self._subtask = self._new_subtask()
        snapshot = self._snapshot_in(options)
        if snapshot is None:
            self._subtask.open()
            self._subtask.flush()
            if checks:
                self._rebuild()
        else:
            self._subtask.restore(snapshot)

    def side_output(self, tag: OutputTag[R]) -> HarnessOutput[R]:
        """The side output ``tag``. Raises ``ContractError`` if the function does not have it."""
        tags = self._operator.side_outputs
        if tag not in tags:
            raise ContractError(f"The function has no side output {tag!r}. It has: {list_tags(tags)}.")
        return self._outputs[len(self._operator.output_keys) + tags.index(tag)]

    @property
    def dead_letters(self) -> HarnessOutput[DeadLetter[Any]]:
        """The dead letters of the function. Raises ``ContractError`` if its error policy emits none."""
        return self.side_output(DEAD_LETTERS)

    @short_traceback
    def advance_clock(self, duration: timedelta) -> None:
        """End the micro-batch and advance the clock by ``duration`` without input.

        Due timers fire, state expires, and watermark generators emit.
        """
        self._end_batch()
        self.clock.advance(duration)
        self._time.now_ms = self.clock.now_ms()
        self._subtask.begin_batch()
        self._end_batch()

    @short_traceback
    def end(self) -> None:
        """End all remaining channels, beginning with those of the first input."""
        for one in self._inputs:
            one.end()

    def close(self) -> None:
        """Close the function if it is open, as after a failure of another operator, and its resources."""
        self._subtask.close()
        self._release_resources()

    @property
    def ended(self) -> bool:
        """True if all inputs have ended and the function is closed."""
        return self._subtask.ended

    @short_traceback
    def snapshot(self) -> bytes:
        """End the micro-batch and return a snapshot of all state, for the option ``snapshot`` of another harness."""
        self._end_batch()
        return self._subtask.snapshot()

    @short_traceback
    def restart(self) -> None:
        """Restore a new subtask from a snapshot, as between micro-batches on Spark or after a failure."""
        self._end_batch()
        if self._mutation is None:  # otherwise the end of the micro-batch has done it
            self._rebuild()

    @property
    def keys(self) -> list[Any]:
        """The keys that ``apply_to_all_partitions`` visits: those that have received records, state or timers."""
        return self._task.keys()

    def event_timers(self, key: Hashable) -> list[int]:
        """Return the registered event-time timers of ``key``, in ms."""
        return self._task.timers(Domain.EVENT_TIME, key)

    def processing_timers(self, key: Hashable) -> list[int]:
        """Return the registered processing-time timers of ``key``, in ms."""
        return self._task.timers(Domain.PROCESSING_TIME, key)

    def owns(self, key: Hashable) -> bool:
        """Return whether records with ``key`` belong to this subtask."""
        operator = self._operator
        return subtask_of(key, operator.max_parallelism, operator.parallelism) == self._index

    @property
    def state_manager(self) -> SubtaskStateManager:
        """The states of the subtask, to read or to set. Use ``visit`` for the states of keys."""
        manager: SubtaskStateManager = self._task.visit(None, lambda ctx: ctx.non_partitioned_context.state_manager)
        return manager

    @property
    def progress(self) -> OperatorProgress:
        """The counters, gauges and watermarks, as in the job's progress."""
        reports = JobReports(self._plan, in_portions=False)
        reports.add(0, self._subtask.progress(), self._time.now_ms)
        return reports.progress().operators[self._operator.uid]

    @short_traceback
    def visit(self, visitor: Callable[[CTX], R], key: Hashable = NO_PARTITION, *, create: bool = False) -> R:
        """Call ``visitor(ctx)`` in a partition, to read or to set its state.

        Args:
            visitor: Called with the context of the partition.
            key: The key of the partition. Omit it if the function is not keyed.
            create: Whether to create the partition if there is none, to set the state or the timers of a key before its
                first record.

        Returns:
            The result of ``visitor``.

        Raises:
            ContractError: There is no partition with this key, a keyed function is visited without a key, or the key
                to create belongs to another subtask.
        """
        if self._operator.keyed and key is NO_PARTITION:
            raise ContractError(f"The function is keyed: pass the key to visit. The keys so far are {self.keys}.")
        if self._operator.keyed and key not in self.keys:
            if not create:
                raise ContractError(
                    f"There is no partition {key!r}. The keys so far are {self.keys}. To create it, pass create=True."
                )
            if not self.owns(key):
                raise ContractError(f"The key {key!r} belongs to another subtask than {self._index}.")
        result = self._task.visit(key, visitor)
        self._subtask.flush()
        return result

    @property
    def _task(self) -> OperatorTask:
        return self._subtask.head

    def _new_subtask(self) -> Subtask:
        functions = {self._operator.id: own_copy(self._operator)}
        watch = None if self._mutation is None else self._mutation.remember
        return Subtask(self._plan, self._operator.id, self._index, functions, self._job, self._emit, watch)

    def _rebuild(self) -> None:
        blob = self._subtask.snapshot()
        self._subtask = self._new_subtask()
        self._subtask.restore(blob)

    def _snapshot_in(self, options: HarnessOptions) -> bytes | None:
        if "rescaled" not in options:
            return options.get("snapshot")
        operator, job = self._operator, self._job
        return rescale(options["rescaled"], [operator], operator.parallelism, job.codec, job.declarations)[self._index]

    def _emit(self, frame: Frame) -> None:
        if self._wire is not None:
            frame = self._wire.send(frame)
        self._outputs_by_sink[frame.operator].elements += from_frame(frame, self._plan.declarations)

    def _end_batch(self) -> None:
        self._subtask.end_batch()
        self._subtask.flush()
        if self._mutation is not None:
            self._mutation.verify()
            self._rebuild()

    def _receive(self, input_index: int, channel: int, elements: list[Element[Any]]) -> None:
        batch, controls = to_frame(elements)
        for _, _, identifier, _ in controls:
            if identifier and identifier not in self._plan.declarations:
                raise UndeclaredWatermarkError(
                    f"Watermark {identifier!r} is not declared. Create the harness with declarations=[<declaration>]."
                )
        self._check_keys(input_index, batch.records)
        frame = Frame(self._operator.id, self._index, channel, batch, controls)
        if self._wire is not None:
            frame = self._wire.send(frame)
        self._subtask.receive(channel, frame.batch, frame.controls)
        self._subtask.complete()
        self._subtask.flush()
        if self._mutation is not None:
            self._mutation.verify_latest()
        if self._subtask.ended:
            self._release_resources()

    def _check_keys(self, input_index: int, records: Sequence[Any]) -> None:
        select, operator = self._operator.input_keys[input_index], self._operator
        if select is None or operator.parallelism == 1:
            return
        for record in records:
            owner = subtask_of(key := select(record), operator.max_parallelism, operator.parallelism)
            if owner != self._index:
                raise ContractError(f"Key {key!r} belongs to subtask {owner}, but this is subtask {self._index}.")
