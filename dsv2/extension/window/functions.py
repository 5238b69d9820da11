"""The base classes of window functions (Flink ``*WindowStreamProcessFunction``).

``keyed.window(strategy).process(function)`` runs one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeAlias, TypeVar

from dsv2.base.type_variables import ACC, IN, OUT, IN1_contra, IN2_contra, IN_contra, OUT1_co, OUT2_co, OUT_co, T
from dsv2.errors import InternalError
from dsv2.extension.window.contents import Contents, accumulators, reduced_records
from dsv2.extension.window.contexts import OneInputWindowContext, TwoInputWindowContext, WindowContext
from dsv2.functions import ProcessFunction
from dsv2.model.context import (
    Collector,
    NonPartitionedContext,
    PartitionedContext,
    TwoOutputNonPartitionedContext,
    TwoOutputPartitionedContext,
)
from dsv2.state import AggregateFunction, StateDeclaration
from dsv2.watermark import Watermark, WatermarkHandlingResult


class WindowProcessFunction(ProcessFunction):
    """Base class of window functions.

    Instance fields are part of the checkpoint, as for any process function. Window functions cannot register timers.
    """

    def use_window_states(self) -> Collection[StateDeclaration]:
        """The declarations of the states that each window has. Called while the plan is built, and in each subtask.

        They must be keyed (mode NONE) and have no time to live, because they are removed with the window. Sessions
        cannot have states, because they merge. Declare state that the windows of a key share in ``uses_states``.
        """
        return ()


class OneInputWindowStreamProcessFunction(WindowProcessFunction, ABC, Generic[IN_contra, OUT_co]):
    """A window function with one input and one output."""

    def open(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once per subtask before the first record. May emit watermarks."""

    def on_record(
        self,
        record: IN_contra,
        output: Collector[OUT_co],
        ctx: PartitionedContext[OUT_co],
        window: OneInputWindowContext[IN_contra],
    ) -> None:
        """Called for every record, once for each of its windows. By default the record is stored in the window.

        Collected records have the timestamp of the record.
        """
        window.put_record(record)

    @abstractmethod
    def on_trigger(
        self, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co], window: OneInputWindowContext[IN_contra]
    ) -> None:
        """Called when time has reached the end of the window, and again for each allowed late record.

        Collected records have the last ms of the window as timestamp. For a window without end they have the timestamp
        of the current record or timer, and none at the end of the input.
        """

    def on_clear(
        self, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co], window: OneInputWindowContext[IN_contra]
    ) -> None:
        """Called when the window is removed, after its records and before its states."""

    def on_late_record(self, record: IN_contra, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called for a record whose windows have all been removed. By default it is dropped."""

    def end_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once when every channel of the input has ended and all windows have fired. May emit."""

    def on_watermark(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark except those of event time, as in other process functions."""
        return WatermarkHandlingResult.PEEK


class TwoInputNonBroadcastWindowStreamProcessFunction(
    WindowProcessFunction, ABC, Generic[IN1_contra, IN2_contra, OUT_co]
):
    """A window function with two inputs of the same partitioning. Event time is the minimum of both."""

    def open(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once per subtask before the first record. May emit watermarks."""

    def on_record1(
        self,
        record: IN1_contra,
        output: Collector[OUT_co],
        ctx: PartitionedContext[OUT_co],
        window: TwoInputWindowContext[IN1_contra, IN2_contra],
    ) -> None:
        """Called for every record of the first input, once for each of its windows. By default it is stored there."""
        window.put_record1(record)

    def on_record2(
        self,
        record: IN2_contra,
        output: Collector[OUT_co],
        ctx: PartitionedContext[OUT_co],
        window: TwoInputWindowContext[IN1_contra, IN2_contra],
    ) -> None:
        """Called for every record of the second input, once for each of its windows. By default it is stored there."""
        window.put_record2(record)

    @abstractmethod
    def on_trigger(
        self,
        output: Collector[OUT_co],
        ctx: PartitionedContext[OUT_co],
        window: TwoInputWindowContext[IN1_contra, IN2_contra],
    ) -> None:
        """As in the one-input function."""

    def on_clear(
        self,
        output: Collector[OUT_co],
        ctx: PartitionedContext[OUT_co],
        window: TwoInputWindowContext[IN1_contra, IN2_contra],
    ) -> None:
        """As in the one-input function."""

    def on_late_record1(self, record: IN1_contra, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called for a record of the first input whose windows have all been removed. By default it is dropped."""

    def on_late_record2(self, record: IN2_contra, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called for a record of the second input whose windows have all been removed. By default it is dropped."""

    def end_first_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once when the first input has ended. May emit."""

    def end_second_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once when the second input has ended. May emit."""

    def on_watermark_from_first_input(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark of the first input except those of event time."""
        return WatermarkHandlingResult.PEEK

    def on_watermark_from_second_input(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark of the second input except those of event time."""
        return WatermarkHandlingResult.PEEK


class TwoOutputWindowStreamProcessFunction(WindowProcessFunction, ABC, Generic[IN_contra, OUT1_co, OUT2_co]):
    """A window function with one input and two outputs."""

    def open(self, ctx: TwoOutputNonPartitionedContext[OUT1_co, OUT2_co]) -> None:
        """Called once per subtask before the first record. May emit watermarks."""

    def on_record(
        self,
        record: IN_contra,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputPartitionedContext[OUT1_co, OUT2_co],
        window: OneInputWindowContext[IN_contra],
    ) -> None:
        """As in the one-input function."""
        window.put_record(record)

    @abstractmethod
    def on_trigger(
        self,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputPartitionedContext[OUT1_co, OUT2_co],
        window: OneInputWindowContext[IN_contra],
    ) -> None:
        """As in the one-input function."""

    def on_clear(
        self,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputPartitionedContext[OUT1_co, OUT2_co],
        window: OneInputWindowContext[IN_contra],
    ) -> None:
        """As in the one-input function."""

    def on_late_record(
        self,
        record: IN_contra,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputPartitionedContext[OUT1_co, OUT2_co],
    ) -> None:
        """As in the one-input function."""

    def end_input(self, ctx: TwoOutputNonPartitionedContext[OUT1_co, OUT2_co]) -> None:
        """As in the one-input function."""

    def on_watermark(
        self,
        watermark: Watermark,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputNonPartitionedContext[OUT1_co, OUT2_co],
    ) -> WatermarkHandlingResult:
        """As in the one-input function."""
        return WatermarkHandlingResult.PEEK


RESULT = TypeVar("RESULT")

EmitResult: TypeAlias = Callable[[RESULT, WindowContext, PartitionedContext[OUT]], OUT]
"""Creates a record from the result of a window, the window, and the context (``ctx.state_manager.current_key``)."""


class IncrementalFunction(OneInputWindowStreamProcessFunction[IN, OUT], Generic[IN, OUT]):
    """Base class of the window functions of ``aggregate`` and ``reduce``."""

    def __init__(self, function: object, emit: EmitResult[Any, OUT] | None) -> None:
        self._function = function
        self.emit = emit
        """Creates the emitted record from the result. None: the result is emitted."""

    @property
    def dsv2_reading_declares(self) -> bool:
        return self.emit is not None

    @property
    @abstractmethod
    def result_of(self) -> Callable[[Any], Any] | None:
        """Computes the result of a window from its content. None: the content is the result."""

    @property
    def written_by_user(self) -> Collection[object]:
        """See ``WrappingFunction``."""
        return (self._function,) if self.emit is None else (self._function, self.emit)

    @abstractmethod
    def new_contents(self) -> Contents:
        """The kind of content of its windows."""

    def on_trigger(
        self, output: Collector[OUT], ctx: PartitionedContext[OUT], window: OneInputWindowContext[IN]
    ) -> None:
        raise InternalError("on_trigger of an IncrementalFunction is replaced by IncrementalCallbacks.")


class AggregatingFunction(IncrementalFunction[IN, OUT], Generic[IN, ACC, RESULT, OUT]):
    """The window function of ``aggregate``."""

    _function: AggregateFunction[IN, ACC, RESULT]

    def __init__(self, function: AggregateFunction[IN, ACC, RESULT], emit: EmitResult[RESULT, OUT] | None) -> None:
        super().__init__(function, emit)

    @property
    def result_of(self) -> Callable[[Any], Any]:
        return self._function.get_result

    def new_contents(self) -> Contents:
        return accumulators(self._function)


class ReducingFunction(IncrementalFunction[T, OUT], Generic[T, OUT]):
    """The window function of ``reduce``."""

    result_of = None
    _function: Callable[[T, T], T]

    def __init__(self, function: Callable[[T, T], T], emit: EmitResult[T, OUT] | None) -> None:
        super().__init__(function, emit)

    def new_contents(self) -> Contents:
        return reduced_records(self._function)
