"""What the framework hands to process functions: collectors and contexts (Flink ``datastream.api.context``).

All of these are protocols: user code names them in signatures, the runtime implements them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, TypeAlias, TypeVar, overload

from dsv2.state import (
    AggregatingState,
    AggregatingStateDeclaration,
    BroadcastState,
    BroadcastStateDeclaration,
    ListState,
    ListStateDeclaration,
    MapState,
    MapStateDeclaration,
    ReducingState,
    ReducingStateDeclaration,
    ValueState,
    ValueStateDeclaration,
)
from dsv2.watermark import Watermark

__all__ = (
    "ApplyPartitionFunction",
    "Collector",
    "Counter",
    "JobInfo",
    "MetricGroup",
    "NonPartitionedContext",
    "PartitionedContext",
    "ProcessingTimeManager",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "StateManager",
    "SubtaskStateManager",
    "TaskInfo",
    "TwoOutputApplyPartitionFunction",
    "TwoOutputNonPartitionedContext",
    "TwoOutputPartitionedContext",
    "WatermarkManager",
)

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")
OUT_contra = TypeVar("OUT_contra", contravariant=True)
OUT1_contra = TypeVar("OUT1_contra", contravariant=True)
OUT2_contra = TypeVar("OUT2_contra", contravariant=True)


class RuntimeExecutionMode(Enum):
    """How a job runs. AUTOMATIC is BATCH when all sources are bounded, else STREAMING."""

    STREAMING = "streaming"
    BATCH = "batch"
    AUTOMATIC = "automatic"


class Collector(Protocol[OUT_contra]):
    """Takes the records that a function emits."""

    def collect(self, record: OUT_contra, /) -> None:
        """Emit ``record`` downstream. Do not change the record afterwards: it may not have been sent yet.

        It gets the timestamp of the record in hand, or of the event timer; elsewhere it has none.
        """

    def collect_and_overwrite_timestamp(self, record: OUT_contra, timestamp: int, /) -> None:
        """Emit ``record`` with ``timestamp`` (ms). Later records are not affected (in Flink they are)."""


class JobInfo(Protocol):
    """Facts about the job."""

    @property
    def job_name(self) -> str:
        """The name given to ``execute``."""

    @property
    def execution_mode(self) -> RuntimeExecutionMode:
        """STREAMING or BATCH; AUTOMATIC is resolved already."""


class TaskInfo(Protocol):
    """Facts about the subtask that runs the function."""

    @property
    def parallelism(self) -> int:
        """Number of subtasks of this operator."""

    @property
    def max_parallelism(self) -> int:
        """Number of key groups: the upper bound of the parallelism."""

    @property
    def task_name(self) -> str:
        """The operator's name."""

    @property
    def index_of_this_subtask(self) -> int:
        """0-based."""

    @property
    def attempt_number(self) -> int:
        """0 for the first attempt."""


class Counter(Protocol):
    """A number that only the job's progress reads. Part of the checkpoint, so a restart does not count twice."""

    def inc(self, amount: int = 1) -> None:
        """Add ``amount``."""

    @property
    def count(self) -> int:
        """The sum so far, of this subtask."""


class MetricGroup(Protocol):
    """Metrics of one operator; shown, summed over its subtasks, in the job's progress."""

    def counter(self, name: str) -> Counter:
        """The counter called ``name``; made at its first mention."""

    def gauge(self, name: str, read: Callable[[], int | float]) -> None:
        """Show the value of ``read()`` as of the end of each micro-batch. Register it in ``open`` or later."""


class RuntimeContext(Protocol):
    """What every context offers."""

    @property
    def job_info(self) -> JobInfo:
        """Facts about the job."""

    @property
    def task_info(self) -> TaskInfo:
        """Facts about this subtask."""

    @property
    def metric_group(self) -> MetricGroup:
        """Counters and gauges of this operator."""


class WatermarkManager(Protocol):
    """Emits generalized watermarks."""

    def emit_watermark(self, watermark: Watermark, /) -> None:
        """Send ``watermark`` behind the records collected so far, to every downstream subtask of every output.

        Raises ``UndeclaredWatermarkError`` if no function or source of the job declares its identifier.
        """


class ProcessingTimeManager(Protocol):
    """Timers of the current key, by the wall clock. Every method raises ``ContractError`` in a function that is not
    keyed.

    The clock stands still within a micro-batch, so that a repeated one repeats itself exactly.
    """

    def register_timer(self, timestamp: int, /) -> None:
        """Have ``on_processing_timer`` called for the current key once the clock reads ``timestamp`` (ms).

        There is one timer for each key and time. Timers survive a restart; those that are left when bounded input ends
        fire then (Flink drops them).
        """

    def delete_timer(self, timestamp: int, /) -> None:
        """Take a timer of the current key back; nothing happens if there is none."""

    def current_time(self) -> int:
        """The clock: milliseconds since the epoch."""


class StateManager(Protocol):
    """State of the current partition."""

    @property
    def current_key(self) -> object:
        """The key of the record in hand. Raises ``ContractError`` in a function that is not keyed."""

    @overload
    def get_state(self, declaration: ValueStateDeclaration[T, R], /) -> ValueState[T, R]: ...
    @overload
    def get_state(self, declaration: ListStateDeclaration[T], /) -> ListState[T]: ...
    @overload
    def get_state(self, declaration: MapStateDeclaration[K, V], /) -> MapState[K, V]: ...
    @overload
    def get_state(self, declaration: BroadcastStateDeclaration[K, V], /) -> BroadcastState[K, V]: ...
    @overload
    def get_state(self, declaration: ReducingStateDeclaration[T], /) -> ReducingState[T]: ...
    @overload
    def get_state(self, declaration: AggregatingStateDeclaration[IN, ACC, OUT], /) -> AggregatingState[IN, OUT]: ...
    def get_state(self, declaration: Any, /) -> Any:
        """The handle on a state; it follows the current key, and may be kept in a field of the function.

        Raises ``UndeclaredStateError`` if the function does not return ``declaration`` from ``uses_states``. Using the
        handle of a keyed state where there is no current key raises ``ContractError``.
        """

    @overload
    def get_state_optional(self, declaration: ValueStateDeclaration[T, R], /) -> ValueState[T, R] | None: ...
    @overload
    def get_state_optional(self, declaration: ListStateDeclaration[T], /) -> ListState[T] | None: ...
    @overload
    def get_state_optional(self, declaration: MapStateDeclaration[K, V], /) -> MapState[K, V] | None: ...
    @overload
    def get_state_optional(self, declaration: BroadcastStateDeclaration[K, V], /) -> BroadcastState[K, V] | None: ...
    @overload
    def get_state_optional(self, declaration: ReducingStateDeclaration[T], /) -> ReducingState[T] | None: ...
    @overload
    def get_state_optional(
        self, declaration: AggregatingStateDeclaration[IN, ACC, OUT], /
    ) -> AggregatingState[IN, OUT] | None: ...
    def get_state_optional(self, declaration: Any, /) -> Any:
        """``get_state``, but None for a state that is not declared."""


class SubtaskStateManager(Protocol):
    """States that belong to the subtask: broadcast state, and lists of mode REDISTRIBUTABLE or IDENTICAL.

    They take no key, and are there before the first one came. (In Flink only partitions lead to them.)
    """

    @overload
    def get_state(self, declaration: ListStateDeclaration[T], /) -> ListState[T]: ...
    @overload
    def get_state(self, declaration: BroadcastStateDeclaration[K, V], /) -> BroadcastState[K, V]: ...
    def get_state(self, declaration: Any, /) -> Any:
        """The handle on a state, the same as partitions have; it may be kept in a field of the function.

        Raises ``ContractError`` for state of keys (mode NONE), which ``apply_to_all_partitions`` leads to, and
        ``UndeclaredStateError`` if the function does not return ``declaration`` from ``uses_states``.
        """

    @overload
    def get_state_optional(self, declaration: ListStateDeclaration[T], /) -> ListState[T] | None: ...
    @overload
    def get_state_optional(self, declaration: BroadcastStateDeclaration[K, V], /) -> BroadcastState[K, V] | None: ...
    def get_state_optional(self, declaration: Any, /) -> Any:
        """``get_state``, but None for a state that is not declared."""


class PartitionedContext(RuntimeContext, Protocol[OUT_contra]):
    """Given with a record: bound to one partition (one key, on a keyed stream)."""

    @property
    def state_manager(self) -> StateManager:
        """State of the current partition."""

    @property
    def processing_time_manager(self) -> ProcessingTimeManager:
        """Timers of the current key, by the wall clock."""

    @property
    def timestamp(self) -> int | None:
        """The timestamp (ms) of the record or the event timer in hand; None if it has none."""

    @property
    def non_partitioned_context(self) -> NonPartitionedContext[OUT_contra]:
        """The way to watermarks and to all partitions."""


class NonPartitionedContext(RuntimeContext, Protocol[OUT_contra]):
    """Given where there is no current partition: open, watermarks, end of input, broadcast records."""

    @property
    def state_manager(self) -> SubtaskStateManager:
        """States that belong to the subtask."""

    @property
    def watermark_manager(self) -> WatermarkManager:
        """Emits watermarks."""

    def apply_to_all_partitions(self, function: ApplyPartitionFunction[OUT_contra], /) -> None:
        """Call ``function(output, ctx)`` once for every partition of this subtask.

        On a keyed stream that is every key seen so far, before a restart included; else one call.
        """


class TwoOutputPartitionedContext(RuntimeContext, Protocol[OUT1_contra, OUT2_contra]):
    """``PartitionedContext`` of a two-output function."""

    @property
    def state_manager(self) -> StateManager:
        """State of the current partition."""

    @property
    def processing_time_manager(self) -> ProcessingTimeManager:
        """Timers of the current key, by the wall clock."""

    @property
    def timestamp(self) -> int | None:
        """The timestamp (ms) of the record or the event timer in hand; None if it has none."""

    @property
    def non_partitioned_context(self) -> TwoOutputNonPartitionedContext[OUT1_contra, OUT2_contra]:
        """The way to watermarks and to all partitions."""


class TwoOutputNonPartitionedContext(RuntimeContext, Protocol[OUT1_contra, OUT2_contra]):
    """``NonPartitionedContext`` of a two-output function."""

    @property
    def state_manager(self) -> SubtaskStateManager:
        """States that belong to the subtask."""

    @property
    def watermark_manager(self) -> WatermarkManager:
        """Emits watermarks, to both outputs."""

    def apply_to_all_partitions(self, function: TwoOutputApplyPartitionFunction[OUT1_contra, OUT2_contra], /) -> None:
        """Call ``function(first_output, second_output, ctx)`` once for every partition of this subtask."""


OUT1 = TypeVar("OUT1")
OUT2 = TypeVar("OUT2")

ApplyPartitionFunction: TypeAlias = Callable[[Collector[OUT], PartitionedContext[OUT]], None]
TwoOutputApplyPartitionFunction: TypeAlias = Callable[
    [Collector[OUT1], Collector[OUT2], TwoOutputPartitionedContext[OUT1, OUT2]], None
]
