"""The contexts that functions get, for every function kind (Flink ``datastream.impl.context``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dsv2.context import RuntimeExecutionMode
from dsv2.errors import ContractError, UndeclaredStateError, UndeclaredWatermarkError
from dsv2.functions import check_timestamp
from dsv2.runtime.handles import Handle
from dsv2.runtime.keyed_store import Entry, PagedKeyedStore
from dsv2.runtime.serde.references import Reference
from dsv2.runtime.timers import BatchTime, TimerService
from dsv2.state import RedistributionMode, StateDeclaration
from dsv2.watermark import BoolWatermark, BoolWatermarkDeclaration, LongWatermark, Watermark, WatermarkDeclaration
from dsv2.watermark.event_time import EventTimeOfInputs

__all__ = (
    "NO_KEY",
    "EventTimers",
    "JobFacts",
    "Metrics",
    "Moment",
    "NonPartitioned",
    "Partitioned",
    "PartitionState",
    "PartitionTimers",
    "SubtaskStates",
    "Tally",
    "TaskFacts",
    "WatermarkEmitter",
)

NO_KEY: Any = object()


@dataclass(frozen=True, slots=True)
class JobFacts:
    """``JobInfo``."""

    job_name: str
    execution_mode: RuntimeExecutionMode


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """``TaskInfo``."""

    task_name: str
    parallelism: int
    max_parallelism: int
    index_of_this_subtask: int
    attempt_number: int


class Tally(Reference):
    """``Counter``. A function that keeps one in a field finds the one of this name there after a restart."""

    __slots__ = ("count", "name")

    reference_kind = "counter"

    def __init__(self, name: str = "", count: int = 0) -> None:
        self.name = name
        self.count = count

    @property
    def reference_name(self) -> str:
        return self.name

    def inc(self, amount: int = 1) -> None:
        """Add ``amount``."""
        self.count += amount


class Metrics:
    """``MetricGroup``."""

    def __init__(self) -> None:
        self.counters: dict[str, Tally] = {}
        self.gauges: dict[str, Callable[[], int | float]] = {}

    def counter(self, name: str) -> Tally:
        """The counter called ``name``."""
        return self.counters.setdefault(name, Tally(name))

    def gauge(self, name: str, read: Callable[[], int | float]) -> None:
        """Show the value of ``read()``."""
        self.gauges[name] = read


class PartitionState:
    """``StateManager``. The runtime sets ``key`` before each callback of a keyed function."""

    __slots__ = ("_keyed", "_store", "handles", "key", "new_handle", "panes", "touched")

    def __init__(self, keyed: bool, store: PagedKeyedStore) -> None:
        self._keyed = keyed
        self._store = store
        self.panes = store.panes  # where extensions want them
        self.key = NO_KEY
        self.touched = store.touched
        self.handles: Mapping[str, Handle] = {}
        self.new_handle: Callable[[StateDeclaration, Callable[[], Entry]], Handle]  # where extensions want it

    @property
    def current_key(self) -> Any:
        """The key of the record in hand."""
        if self.key is NO_KEY:
            raise ContractError(
                "There is no current key here (open, watermarks, broadcast records and end of input concern all "
                "partitions): use ctx.apply_to_all_partitions."
                if self._keyed
                else "The key is only defined for functions on a keyed stream: call key_by before process."
            )
        return self.key

    def touch(self) -> None:
        """Have what is kept of the current key at hand."""
        self._store.touch(self.current_key)

    def entry(self) -> Entry:
        """The live entry of the current key, made if there is none; extensions keep their state in it."""
        return self._store.live.get(self.key) or self._store.entry(self.current_key)

    def find(self) -> Entry | None:
        """The entry of the current key to look at, or None; what is changed in it may be lost."""
        return self._store.find(self.key)

    def get_state(self, declaration: Any) -> Any:
        """The handle on a state."""
        handle = self.handles.get(getattr(declaration, "name", ""))
        if handle is not None and handle.declaration is declaration:
            return handle  # the short way: this may be asked for at each record
        handle = self.get_state_optional(declaration)
        if handle is None:
            known = ", ".join(map(str, (handle.declaration for handle in self.handles.values()))) or "none"
            raise UndeclaredStateError(
                f"{declaration} is not declared (declared: {known}). Return its declaration from uses_states()."
            )
        return handle

    def get_state_optional(self, declaration: Any) -> Any:
        """The handle on a state, or None."""
        if not isinstance(declaration, StateDeclaration):
            raise ContractError(f"A state is asked for by its declaration, not by {declaration!r}.")
        handle = self.handles.get(declaration.name)
        if handle is None or handle.declaration is declaration or handle.declaration.matches(declaration):
            return handle
        raise UndeclaredStateError(
            f"uses_states() returns another declaration of {declaration.name!r}:\n  asked for: {declaration!r}\n"
            f"  declared:  {handle.declaration!r}"
        )

    def require_keyed(self, what: str) -> None:
        """Raise ``ContractError`` if the function is not keyed."""
        if not self._keyed:
            raise ContractError(f"{what} is only there for functions on a keyed stream: call key_by before process.")


class SubtaskStates:
    """``SubtaskStateManager``."""

    __slots__ = ("_partition",)

    def __init__(self, partition: PartitionState) -> None:
        self._partition = partition

    def get_state(self, declaration: Any) -> Any:
        """The handle on a state."""
        return _without_key(self._partition.get_state(declaration))

    def get_state_optional(self, declaration: Any) -> Any:
        """The handle on a state, or None."""
        handle = self._partition.get_state_optional(declaration)
        return None if handle is None else _without_key(handle)


def _without_key(handle: Handle) -> Handle:
    if handle.declaration.redistribution_mode is RedistributionMode.NONE:
        raise ContractError(
            f"{handle.declaration} belongs to a key, and a NonPartitionedContext has states of the subtask only: reach "
            f"it through ctx.apply_to_all_partitions."
        )
    return handle


class Moment:
    """What is in hand just now: the timestamp of the record or timer, in ms, if it has one."""

    __slots__ = ("timestamp",)

    def __init__(self) -> None:
        self.timestamp: int | None = None


class PartitionTimers:
    """``ProcessingTimeManager``: timers of the current key."""

    __slots__ = ("_partition", "_time", "_timers")

    def __init__(self, partition: PartitionState, timers: TimerService, time: BatchTime) -> None:
        self._partition = partition
        self._timers = timers
        self._time = time

    def register_timer(self, timestamp: int) -> None:
        """Call ``on_processing_timer`` for the current key at ``timestamp`` ms."""
        check_timestamp(timestamp)
        self._timers.register(self._partition.current_key, timestamp)

    def delete_timer(self, timestamp: int) -> None:
        """Take it back."""
        self._timers.delete(self._partition.current_key, timestamp)

    def current_time(self) -> int:
        """Milliseconds since the epoch."""
        self._partition.require_keyed("Processing time")
        return self._time.now_ms


class EventTimers(Reference):
    """``EventTimeManager``: event timers of the current key. A function may keep it in a field."""

    __slots__ = ("_inputs", "_partition", "_timers")

    reference_kind = "event time manager"

    def __init__(self, partition: PartitionState, timers: TimerService, inputs: EventTimeOfInputs) -> None:
        self._partition = partition
        self._timers = timers
        self._inputs = inputs

    @property
    def reference_name(self) -> str:
        return ""

    def register_timer(self, timestamp: int) -> None:
        """Call ``on_event_timer`` for the current key when event time has reached ``timestamp`` ms."""
        check_timestamp(timestamp)
        self._timers.register(self._partition.current_key, timestamp)

    def delete_timer(self, timestamp: int) -> None:
        """Take it back."""
        self._timers.delete(self._partition.current_key, timestamp)

    def current_time(self) -> int:
        """Event time here, in ms."""
        return self._inputs.current

    def uses_processing_time(self) -> bool:
        """Whether it is the wall clock."""
        return self._inputs.uses_processing_time


class WatermarkEmitter:
    """``WatermarkManager``."""

    __slots__ = ("_declarations", "_send")

    def __init__(
        self, declarations: Mapping[str, WatermarkDeclaration], send: Callable[[str, int | bool], None]
    ) -> None:
        self._declarations = declarations
        self._send = send

    def emit_watermark(self, watermark: Watermark) -> None:
        """Send ``watermark`` behind the records collected so far."""
        declaration = self._declarations.get(getattr(watermark, "identifier", ""))
        if declaration is None:
            raise UndeclaredWatermarkError(self._explain(watermark))
        expected = BoolWatermark if isinstance(declaration, BoolWatermarkDeclaration) else LongWatermark
        if type(watermark) is not expected:
            raise ContractError(
                f"Watermark {declaration.identifier!r} is declared as {expected.__name__}: {watermark}."
            )
        self._send(watermark.identifier, watermark.value)

    def _explain(self, watermark: object) -> str:
        if not isinstance(watermark, LongWatermark | BoolWatermark):
            return f"emit_watermark takes a watermark made by declaration.new_watermark(value), not {watermark!r}."
        known = ", ".join(map(repr, sorted(self._declarations))) or "none"
        return (
            f"Watermark {watermark.identifier!r} is not declared by any function or source of the job (declared: "
            f"{known}). Return its declaration from declare_watermarks()."
        )


class NonPartitioned:
    """``NonPartitionedContext``, of one or two outputs."""

    __slots__ = ("_apply", "job_info", "metric_group", "state_manager", "task_info", "watermark_manager")

    def __init__(
        self,
        job_info: JobFacts,
        task_info: TaskFacts,
        metric_group: Metrics,
        watermark_manager: WatermarkEmitter,
        state_manager: SubtaskStates,
        apply: Callable[[Callable[..., None]], None],
    ) -> None:
        self.job_info = job_info
        self.task_info = task_info
        self.metric_group = metric_group
        self.watermark_manager = watermark_manager
        self.state_manager = state_manager
        self._apply = apply

    def apply_to_all_partitions(self, function: Callable[..., None]) -> None:
        """Call ``function`` once for every partition of this subtask."""
        self._apply(function)


class Partitioned:
    """``PartitionedContext``, of one or two outputs."""

    __slots__ = (
        "_moment",
        "job_info",
        "metric_group",
        "non_partitioned_context",
        "processing_time_manager",
        "state_manager",
        "task_info",
    )

    def __init__(
        self,
        non_partitioned_context: NonPartitioned,
        state_manager: PartitionState,
        processing_time_manager: PartitionTimers,
        moment: Moment,
    ) -> None:
        self.non_partitioned_context = non_partitioned_context
        self.state_manager = state_manager
        self.processing_time_manager = processing_time_manager
        self._moment = moment
        self.job_info = non_partitioned_context.job_info
        self.task_info = non_partitioned_context.task_info
        self.metric_group = non_partitioned_context.metric_group

    @property
    def timestamp(self) -> int | None:
        """The timestamp of the record or timer in hand, in ms."""
        return self._moment.timestamp
