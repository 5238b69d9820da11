"""Collectors and contexts, which the framework passes to process functions (Flink ``datastream.api.context``).

All are protocols: user code uses them in signatures, the runtime implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Literal, Protocol, TypeAlias, overload

from dsv2.base.type_variables import OUT, OUT1, OUT2, K, OUT1_contra, OUT2_contra, OUT_contra, T, V
from dsv2.model.output_tag import MainOutput, OutputTag
from dsv2.state import BroadcastState, BroadcastStateDeclaration, ListState, ListStateDeclaration
from dsv2.state.declaration import Declares
from dsv2.watermark import Watermark

DEFAULT_BUCKETS = (*(float(f"{digits}e{power}") for power in range(-3, 4) for digits in (1, 2.5, 5)), 1e4)
"""The buckets of a histogram that names none: 0.001, 0.0025, 0.005, 0.01 and so on up to 10,000."""


class RuntimeExecutionMode(Enum):
    """The mode of execution. AUTOMATIC is BATCH if all sources are bounded, and STREAMING otherwise."""

    STREAMING = "streaming"
    BATCH = "batch"
    AUTOMATIC = "automatic"


class Collector(Protocol[OUT_contra]):
    """Receives the records that a function emits."""

    def collect(self, record: OUT_contra, /) -> None:
        """Emit ``record`` downstream.

        The emitted record has the timestamp of the current record or event timer; in other callbacks it has none. Do
        not modify the record afterwards, because it may still be buffered.
        """

    def collect_and_overwrite_timestamp(self, record: OUT_contra, timestamp: int, /) -> None:
        """Emit ``record`` with ``timestamp`` (ms). Unlike in Flink, later records are not affected."""


class JobInfo(Protocol):
    """Information about the job."""

    @property
    def job_name(self) -> str:
        """The name given to ``execute``."""

    @property
    def execution_mode(self) -> RuntimeExecutionMode:
        """STREAMING or BATCH. AUTOMATIC has been resolved."""


class TaskInfo(Protocol):
    """Information about the subtask that runs the function."""

    @property
    def parallelism(self) -> int:
        """Number of subtasks of this operator."""

    @property
    def max_parallelism(self) -> int:
        """Number of key groups, which is the upper bound of the parallelism."""

    @property
    def task_name(self) -> str:
        """The name of the operator."""

    @property
    def index_of_this_subtask(self) -> int:
        """The index of this subtask, from 0."""

    @property
    def attempt_number(self) -> int:
        """The number of this attempt. 0 is the first."""


class Counter(Protocol):
    """A counter shown in the job's progress. It is part of the checkpoint, so a restart does not count twice."""

    def inc(self, amount: int = 1) -> None:
        """Increment the counter by ``amount``. Monitoring systems expect that a counter never decreases."""

    @property
    def count(self) -> int:
        """The current count of this subtask."""


class Histogram(Protocol):
    """The distribution of values, shown in the job's progress. Like a counter, it is part of the checkpoint.

    Source: Flink ``Histogram``.
    """

    def update(self, value: float) -> None:
        """Add ``value`` to its bucket.

        Raises:
            ContractError: ``value`` is infinite or not a number.
        """

    @property
    def count(self) -> int:
        """The number of values of this subtask."""


class MetricGroup(Protocol):
    """Metrics of one operator. The job's progress shows them summed over the subtasks.

    A name belongs to one counter, gauge or histogram; ``ContractError`` is raised otherwise.
    """

    def counter(self, name: str) -> Counter:
        """The counter with this name. The first call creates it."""

    def gauge(self, name: str, read: Callable[[], int | float]) -> None:
        """Register a gauge in ``open`` or later.

        Args:
            name: Its name.
            read: Returns its value. Called at the end of each micro-batch. A method of the function, such as
                ``self.size``, remains registered after a restart. Register any other callable in each micro-batch:
                on Spark a subtask is restored for each of them.
        """

    def histogram(self, name: str, buckets: Sequence[float] | None = None) -> Histogram:
        """The histogram with this name. The first call creates it.

        Args:
            name: Its name.
            buckets: The inclusive upper bounds of its buckets, ascending. A last bucket for all higher values is
                added. None (default): ``DEFAULT_BUCKETS``, or those that it has. If they differ from those before
                a restart, the histogram begins again.

        Raises:
            ContractError: ``buckets`` are not ascending finite numbers, or the histogram has others.
        """


class RuntimeContext(Protocol):
    """The base of all contexts."""

    @property
    def job_info(self) -> JobInfo:
        """Information about the job."""

    @property
    def task_info(self) -> TaskInfo:
        """Information about this subtask."""

    @property
    def metric_group(self) -> MetricGroup:
        """Counters, gauges and histograms of this operator."""

    def output(self, tag: OutputTag[T], record: T, /) -> None:
        """Emit ``record`` to the side output ``tag``, with the timestamp that ``Collector.collect`` would assign.

        It is dropped if nothing reads ``result.side_output(tag)``.

        Raises:
            UndeclaredOutputError: The function does not return ``tag`` from ``declare_outputs``.
        """


class WatermarkManager(Protocol):
    """Emits generalized watermarks."""

    def emit_watermark(
        self,
        watermark: Watermark,
        /,
        *,
        output: OutputTag[Any] | MainOutput | Literal["first", "second"] | None = None,
    ) -> None:
        """Send ``watermark`` to every downstream subtask, after the records collected so far.

        Args:
            watermark: The watermark, from ``declaration.new_watermark(value)``.
            output: The output along which it is sent: ``"first"`` or ``"second"``, or the tag of a side output.
                None (default): along all of them.

        Raises:
            UndeclaredWatermarkError: No function or source of the job declares the identifier.
            UndeclaredOutputError: The function does not have this output.
            ContractError: It is a watermark of event time, which concerns all outputs.
        """


class ProcessingTimeManager(Protocol):
    """Processing-time timers of the current key.

    In a function that is not keyed, ``register_timer``, ``delete_timer`` and ``timers`` raise ``ContractError``. The
    clock does not advance within a micro-batch, so that a retry repeats it exactly.
    """

    def register_timer(self, timestamp: int, /) -> None:
        """Call ``on_processing_timer`` for the current key once the clock has reached ``timestamp`` (ms).

        There is at most one timer per key and timestamp. Timers survive a restart. Unlike in Flink, the remaining
        timers fire when bounded input ends.
        """

    def delete_timer(self, timestamp: int, /) -> None:
        """Delete a timer of the current key. Does nothing if there is none."""

    def timers(self) -> list[int]:
        """The times of the registered timers of the current key in ms, ascending."""

    def current_time(self) -> int:
        """The current processing time in ms since the epoch. (In Flink, keyed functions only.)"""


class StateManager(Protocol):
    """State of the current partition."""

    @property
    def current_key(self) -> object:
        """The current key. Raises ``ContractError`` in a function that is not keyed."""

    def key_as(self, kind: type[T], /) -> T:
        """The current key, with the type that type checkers do not know: ``key_as(str)``.

        Raises:
            ContractError: The key is not of the class ``kind``, or the function is not keyed.
        """

    def get_state(self, declaration: Declares[T], /) -> T:
        """The handle on a state. It follows the current key and may be stored in a field of the function.

        Using the handle of a keyed state without a current key raises ``ContractError``.

        Raises:
            UndeclaredStateError: The function does not return ``declaration`` from ``uses_states``.
        """

    def get_state_optional(self, declaration: Declares[T], /) -> T | None:
        """As ``get_state``, but returns None for a state that is not declared."""


class SubtaskStateManager(Protocol):
    """The operator state of the subtask: broadcast state, and lists of mode REDISTRIBUTABLE or IDENTICAL.

    It does not depend on a key and is available before the first record. (Flink offers it in partitions only.)
    """

    @overload
    def get_state(self, declaration: ListStateDeclaration[T], /) -> ListState[T]: ...
    @overload
    def get_state(self, declaration: BroadcastStateDeclaration[K, V], /) -> BroadcastState[K, V]: ...
    def get_state(self, declaration: Any, /) -> Any:
        """The handle on a state, as in a partition. It may be stored in a field of the function.

        Raises:
            ContractError: The state is keyed (mode NONE). Use ``apply_to_all_partitions``.
            UndeclaredStateError: The function does not return ``declaration`` from ``uses_states``.
        """

    @overload
    def get_state_optional(self, declaration: ListStateDeclaration[T], /) -> ListState[T] | None: ...
    @overload
    def get_state_optional(self, declaration: BroadcastStateDeclaration[K, V], /) -> BroadcastState[K, V] | None: ...
    def get_state_optional(self, declaration: Any, /) -> Any:
        """As ``get_state``, but returns None for a state that is not declared."""


class PartitionedContext(RuntimeContext, Protocol[OUT_contra]):
    """The context of a record, bound to one partition. On a keyed stream a partition is a key."""

    @property
    def state_manager(self) -> StateManager:
        """State of the current partition."""

    @property
    def processing_time_manager(self) -> ProcessingTimeManager:
        """Processing-time timers of the current key."""

    @property
    def timestamp(self) -> int | None:
        """The timestamp (ms) of the current record or event timer, or None if it has none."""

    @property
    def non_partitioned_context(self) -> NonPartitionedContext[OUT_contra]:
        """The context for emitting watermarks and for visiting all partitions."""


class NonPartitionedContext(RuntimeContext, Protocol[OUT_contra]):
    """The context of callbacks without a partition: open, watermarks, end of input, broadcast records."""

    @property
    def state_manager(self) -> SubtaskStateManager:
        """Operator state of the subtask."""

    @property
    def watermark_manager(self) -> WatermarkManager:
        """Emits watermarks."""

    def apply_to_all_partitions(self, function: ApplyPartitionFunction[OUT_contra], /) -> None:
        """Call ``function(output, ctx)`` once for every partition of this subtask.

        On a keyed stream these are all keys seen so far, including those before a restart. On other streams there is
        one partition.
        """


class BatchContext(RuntimeContext, Protocol[OUT_contra]):
    """The context of a batch of records."""

    @property
    def timestamps(self) -> Sequence[int | None]:
        """The timestamps of the records in ms, in their order."""

    @property
    def non_partitioned_context(self) -> NonPartitionedContext[OUT_contra]:
        """The context for emitting watermarks."""


class TwoOutputPartitionedContext(RuntimeContext, Protocol[OUT1_contra, OUT2_contra]):
    """``PartitionedContext`` of a two-output function."""

    @property
    def state_manager(self) -> StateManager:
        """State of the current partition."""

    @property
    def processing_time_manager(self) -> ProcessingTimeManager:
        """Processing-time timers of the current key."""

    @property
    def timestamp(self) -> int | None:
        """The timestamp (ms) of the current record or event timer, or None if it has none."""

    @property
    def non_partitioned_context(self) -> TwoOutputNonPartitionedContext[OUT1_contra, OUT2_contra]:
        """The context for emitting watermarks and for visiting all partitions."""


class TwoOutputNonPartitionedContext(RuntimeContext, Protocol[OUT1_contra, OUT2_contra]):
    """``NonPartitionedContext`` of a two-output function."""

    @property
    def state_manager(self) -> SubtaskStateManager:
        """Operator state of the subtask."""

    @property
    def watermark_manager(self) -> WatermarkManager:
        """Emits watermarks, to both outputs."""

    def apply_to_all_partitions(self, function: TwoOutputApplyPartitionFunction[OUT1_contra, OUT2_contra], /) -> None:
        """Call ``function(first_output, second_output, ctx)`` once for every partition of this subtask."""


ApplyPartitionFunction: TypeAlias = Callable[[Collector[OUT], PartitionedContext[OUT]], None]
TwoOutputApplyPartitionFunction: TypeAlias = Callable[
    [Collector[OUT1], Collector[OUT2], TwoOutputPartitionedContext[OUT1, OUT2]], None
]
