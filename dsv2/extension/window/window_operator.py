"""The base class of process functions that run window functions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from dsv2.errors import IllegalRedistributionModeError, PlanError, StateDeclarationError
from dsv2.extension.event_time import EventTimeManager, EventTimeProcessFunction
from dsv2.extension.window.assigned_windows import AssignedWindows
from dsv2.extension.window.callbacks import Callbacks, EvictingCallbacks, IncrementalCallbacks, Shape
from dsv2.extension.window.contents import Contents, record_lists, timed_lists
from dsv2.extension.window.count_windows import CountWindows, GlobalWindow
from dsv2.extension.window.current_window import CurrentWindow, EvictedCurrentWindow, OneInputCurrentWindow
from dsv2.extension.window.functions import IncrementalFunction, WindowProcessFunction
from dsv2.extension.window.record_windows import RecordWindows
from dsv2.extension.window.sessions import SessionWindows
from dsv2.extension.window.strategy import (
    AssignedWindowStrategy,
    CountWindowStrategy,
    CumulatingWindowStrategy,
    GlobalWindowStrategy,
    RecordWindowStrategy,
    SessionWindowStrategy,
    SlidingWindowStrategy,
    TimestampCombiner,
    TimeType,
    WindowStrategy,
)
from dsv2.extension.window.time_windows import CumulatingWindows, TimeWindows
from dsv2.extension.window.windows import WindowEnvironment, Windows
from dsv2.model.output_tag import OutputTag
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import (
    KeyedBatchFunction,
    PaneFunction,
    PartitionAccess,
    Position,
    ProcessOne,
    SkippableTimersFunction,
    WrappingFunction,
    partition_access,
)
from dsv2.state import RedistributionMode, StateDeclaration
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult


def check_window_states(function: WindowProcessFunction, strategy: WindowStrategy) -> None:
    """Check what ``function`` returns from ``use_window_states``.

    Raises:
        IllegalRedistributionModeError: A state has a mode other than NONE.
        StateDeclarationError: An element is not a declaration, two different declarations have the same name, a state
            has a time to live, or the windows are sessions.
    """
    declarations: object = function.use_window_states()
    if not isinstance(declarations, Collection):
        raise StateDeclarationError(
            f"use_window_states returned {declarations!r}, not a collection of declarations. Return a list or a tuple."
        )
    declared: dict[str, StateDeclaration] = {}
    for declaration in declarations:
        if not isinstance(declaration, StateDeclaration):
            raise StateDeclarationError(
                f"use_window_states returned {declaration!r}, which is not a state declaration. Create one "
                f"with StateDeclarations."
            )
        first = declared.setdefault(declaration.name, declaration)
        if first != declaration:
            raise StateDeclarationError(
                f"Window state {declaration.name!r} has two different declarations:\n  {first!r}\n"
                f"  {declaration!r}\nThe name of a state is unique in a window: rename one of them."
            )
        _check(declaration)
    if declared and isinstance(strategy, SessionWindowStrategy):
        raise StateDeclarationError(
            f"{', '.join(map(str, declared.values()))} cannot be a state of sessions, because sessions merge and their "
            f"states cannot be merged. Store records in the window, aggregate, or use keyed state (uses_states)."
        )


def _check(declaration: StateDeclaration) -> None:
    if declaration.redistribution_mode is not RedistributionMode.NONE:
        raise IllegalRedistributionModeError(
            f"{declaration} cannot be a window state: window states are keyed (mode NONE), but its mode is "
            f"{declaration.redistribution_mode.name}."
        )
    if declaration.time_to_live is not None:
        raise StateDeclarationError(
            f"{declaration} cannot be a window state: window states are removed with their window and have no ttl."
        )


F = TypeVar("F", bound=WindowProcessFunction)


class Windowed(WrappingFunction, EventTimeProcessFunction, PaneFunction, SkippableTimersFunction, Generic[F]):
    """Assigns records to the windows of ``strategy`` and calls the callbacks of ``function``.

    Its own fields are not checkpointed: the windows are in keyed state, and the program recreates the rest.
    """

    dsv2_remember_keys = False  # otherwise the state would grow with the number of keys
    dsv2_partition_by_constant = True
    shape: ClassVar[Shape]

    def __init__(self, strategy: WindowStrategy, function: F, late_tags: Sequence[OutputTag[Any]] = ()) -> None:
        """``late_tags``, one for each input, receive late records instead of ``function``."""
        self.strategy = strategy
        self.function = function
        self._callee: Any = function  # its callbacks depend on its kind
        self._late_tags = late_tags
        self._ctx: Any = None
        self._windows: Windows
        self._event_time: EventTimeManager

    @property
    def wrapped(self) -> object:
        return self.function

    @property
    def written_by_user(self) -> Collection[object]:
        function: object = self.function
        parts = function.written_by_user if isinstance(function, IncrementalFunction) else (function,)
        return (*parts, *self.strategy.written_by_user)

    @property
    def dsv2_emits_only_at_end(self) -> bool:
        return self.function.dsv2_emits_only_at_end

    @property
    def dsv2_waits_for_event_time(self) -> bool:
        early = self.strategy.early_firing
        if isinstance(self.strategy, GlobalWindowStrategy | CountWindowStrategy):
            return early is not None and early.time_type is TimeType.EVENT
        return self.strategy.time_type is TimeType.EVENT

    @property
    def dsv2_waits_for_end(self) -> bool:
        fires_before = self.strategy.early_firing is not None or self.strategy.trigger is not None
        is_global = isinstance(self.strategy, GlobalWindowStrategy)
        return self.dsv2_emits_only_at_end or (is_global and not fires_before)

    @property
    def state_layout(self) -> str:
        layout = f"{self.strategy.layout}, which hold {self._new_contents().layout}"
        if self.strategy.trigger is not None:
            layout = f"{layout} and are fired by {self.strategy.trigger}"
        stamps = self.strategy.timestamps
        return layout if stamps is TimestampCombiner.END else f"{layout}, with the {stamps.value} timestamp"

    @property
    def contents(self) -> str:
        return self._new_contents().layout

    def dsv2_check_position(self, position: Position) -> None:
        if position.parallel and not position.keyed and not isinstance(self.strategy, GlobalWindowStrategy):
            raise PlanError(
                f"{type(self.function).__name__} runs in {self.strategy.layout}, which require a keyed or a global "
                f"stream: call key_by or global_ first. A non-keyed stream supports only WindowStrategy.global_()."
            )
        if self.strategy.evictor is not None and (
            isinstance(self.function, IncrementalFunction) or not isinstance(self, OneInputRecordsWindowed)
        ):
            raise PlanError(
                f"{type(self.strategy.evictor).__name__} requires the records of one input. Call process with a "
                f"window function."
            )
        check_window_states(self.function, self.strategy)

    def dsv2_uses_processing_timers(self) -> bool:
        early = self.strategy.early_firing
        by_clock = TimeType.PROCESSING
        if self.strategy.trigger is not None and self.strategy.trigger.uses_processing_time:
            return True
        return self.strategy.time_type is by_clock or (early is not None and early.time_type is by_clock)

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return self.function.declare_watermarks()

    @property
    def dsv2_reading_declares(self) -> bool:
        return self.function.dsv2_reading_declares

    def declare_outputs(self) -> Collection[OutputTag[Any]]:
        return (*self.function.declare_outputs(), *self._late_tags)

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self._event_time = manager

    def uses_states(self) -> Collection[StateDeclaration]:
        return self.function.uses_states()

    def further_states(self) -> Collection[StateDeclaration]:
        return self.function.use_window_states()

    def open(self, ctx: Any) -> None:
        self._callee.open(ctx)

    def on_event_timer(self, timestamp: int, *outputs_and_context: Any) -> None:
        *outputs, ctx = outputs_and_context
        self._windows_of(ctx, *outputs).on_timer(timestamp, TimeType.EVENT)

    def on_processing_timer(self, timestamp: int, *outputs_and_context: Any) -> None:
        *outputs, ctx = outputs_and_context
        self._windows_of(ctx, *outputs).on_timer(timestamp, TimeType.PROCESSING)

    def on_pane_due(self, slot: int, *outputs_and_context: Any) -> None:
        *outputs, ctx = outputs_and_context
        self._windows_of(ctx, *outputs).on_pane_due(slot)

    def skip_timer(self, timestamp: int, *, by_event: bool) -> None:
        self._windows.skip_timer(timestamp, TimeType.EVENT if by_event else TimeType.PROCESSING)

    def close(self) -> None:
        self.function.close()

    @abstractmethod
    def _new_contents(self) -> Contents: ...

    @abstractmethod
    def _new_window(self, contents: Contents, key: PartitionAccess) -> CurrentWindow: ...

    def _new_callbacks(self, ctx: Any, outputs: Sequence[Any], window: CurrentWindow) -> Callbacks:
        if self.strategy.evictor is not None:
            return EvictingCallbacks(
                self.strategy.evictor, self.function, self.shape, outputs, ctx, window, self._late_tags
            )
        kind = IncrementalCallbacks if isinstance(self.function, IncrementalFunction) else Callbacks
        return kind(self.function, self.shape, outputs, ctx, window, self._late_tags)

    def _windows_of(self, ctx: Any, *outputs: Any) -> Windows:
        if ctx is not self._ctx:
            self._enter(ctx, *outputs)
        return self._windows

    def _enter(self, ctx: Any, *outputs: Any) -> None:
        """Create the windows with the context and outputs of the first record or timer."""
        contents = self._new_contents()
        window = self._new_window(contents, partition_access(ctx.state_manager))
        callbacks = self._new_callbacks(ctx, outputs, window)
        self._windows = _new_windows(
            self.strategy, WindowEnvironment(ctx, self._event_time, contents, window, callbacks)
        )
        self._ctx = ctx


class OneInputRecordsWindowed(Windowed[F], KeyedBatchFunction, Generic[F]):
    """Base class of those with one input."""

    def end_input(self, ctx: Any) -> None:
        self._callee.end_input(ctx)

    def on_watermark(self, watermark: Watermark, *outputs_and_context: Any) -> WatermarkHandlingResult:
        handled: WatermarkHandlingResult = self._callee.on_watermark(watermark, *outputs_and_context)
        return handled

    def process_keyed_batch(
        self, input_index: int, batch: RecordBatch[Any], select: Callable[[Any], Any], process_one: ProcessOne
    ) -> None:
        if self._ctx is None:  # the first record of the subtask creates the windows
            ((record, timestamp),) = batch.slice(0, 1).pairs()
            process_one(record, timestamp)
            batch = batch.slice(1)
        self._windows.add_batch(batch, select, process_one)

    def _new_records(self) -> Contents:
        """The contents of windows that keep records."""
        return record_lists() if self.strategy.evictor is None else timed_lists(lambda: self._ctx.timestamp)

    def _new_window(self, contents: Contents, key: PartitionAccess) -> OneInputCurrentWindow:
        if self.strategy.evictor is not None:
            return EvictedCurrentWindow(contents, self.function.use_window_states(), key)
        return OneInputCurrentWindow(contents, self.function.use_window_states(), key)


def _new_windows(strategy: WindowStrategy, environment: WindowEnvironment) -> Windows:
    match strategy:
        case CumulatingWindowStrategy():
            return CumulatingWindows(strategy, environment)
        case SlidingWindowStrategy():
            return TimeWindows(strategy, environment)
        case RecordWindowStrategy():
            return RecordWindows(strategy, environment)
        case AssignedWindowStrategy():
            return AssignedWindows(strategy, environment)
        case SessionWindowStrategy():
            return SessionWindows(strategy, environment)
        case CountWindowStrategy():
            return CountWindows(strategy, environment)
    assert isinstance(strategy, GlobalWindowStrategy)
    return GlobalWindow(strategy, environment)
