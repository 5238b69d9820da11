"""Streams whose records are in windows: ``keyed.window(strategy)``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, overload

from dsv2.aggregates import Part
from dsv2.aggregates.rows import EmitWindow, FoldedRecords
from dsv2.base.type_variables import ACC, OUT, T
from dsv2.checks.missing_methods import missing_method
from dsv2.errors import PlanError
from dsv2.extension.window.functions import (
    OneInputWindowStreamProcessFunction,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    TwoOutputWindowStreamProcessFunction,
)
from dsv2.extension.window.strategy import SessionWindowStrategy, TimeType, WindowStrategy, why_rows
from dsv2.functions import ProcessFunction
from dsv2.graph import Exchange, InputRef, OperatorKind
from dsv2.graph.builder import caller_location
from dsv2.model.output_tag import OutputTag
from dsv2.state import AggregateFunction
from dsv2.streams.aggregates import choose_columns, declare
from dsv2.streams.base import Stream
from dsv2.streams.outputs import configured, configured_global
from dsv2.streams.ranking import WindowRanking

if TYPE_CHECKING:
    from dsv2.extension.window.functions import EmitResult
    from dsv2.streams.kinds import (
        ConfiguredGlobalStream,
        ConfiguredKeyedStream,
        ConfiguredStream,
        GlobalStream,
        KeyedPartitionStream,
        NonKeyedPartitionStream,
        TwoGlobalStreams,
        TwoKeyedStreams,
        TwoStreams,
    )

K = TypeVar("K", bound=Hashable)
TO = TypeVar("TO")
RESULT = TypeVar("RESULT")
O1 = TypeVar("O1")
O2 = TypeVar("O2")

_OneInput: TypeAlias = OneInputWindowStreamProcessFunction[T, OUT]
_TwoInput: TypeAlias = TwoInputNonBroadcastWindowStreamProcessFunction[T, TO, OUT]
_TwoOutput: TypeAlias = TwoOutputWindowStreamProcessFunction[T, O1, O2]

_WITH_AGGREGATE = "Call aggregate(result, ...) with the parts of dsv2.aggregates."
_OF_STRATEGY = (
    "It is a property of the windows: window(strategy.with_trigger(...)), with_early_firing, with_allowed_lateness."
)
_INSTEAD = {
    **dict.fromkeys(("sum", "count", "min", "max", "agg"), _WITH_AGGREGATE),
    **dict.fromkeys(
        (
            "allowed_lateness",
            "early_firing",
            "evictor",
            "trigger",
            "with_allowed_lateness",
            "with_early_firing",
            "with_trigger",
        ),
        _OF_STRATEGY,
    ),
    "apply": "Call process(function).",
    "join": "Call connect_and_process of the keyed stream with join of dsv2.extension.join.",
    "map": "Call process(function), or map on the result.",
    "side_output_late_data": "Call with_late_output(tag).",
}


class WindowedStream(Generic[T]):
    """A stream whose records are in windows. Every method but ``with_late_output`` adds an operator."""

    def __init__(self, stream: Stream[T], strategy: WindowStrategy, late_tags: tuple[OutputTag[Any], ...] = ()) -> None:
        if not isinstance(strategy, WindowStrategy):
            raise PlanError(
                f"window at {caller_location()} takes a WindowStrategy, such as WindowStrategy.tumbling(size), not "
                f"{strategy!r}."
            )
        self._stream: Any = stream
        self._strategy = strategy
        self._late_tags = late_tags

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            raise missing_method(self, type(self).__name__, name, _INSTEAD)

    def with_late_output(self, tag: OutputTag[T], second_tag: OutputTag[Any] | None = None) -> Self:
        """Emit late records to a side output, ``result.side_output(tag)`` (Flink ``sideOutputLateData``).

        Args:
            tag: The tag.
            second_tag: The tag for late records of the other stream, for ``connect_and_process``.

        The method that adds the operator raises ``PlanError`` if there is not one tag for each input, or if the window
        function defines ``on_late_record``.
        """
        tags = (tag,) if second_tag is None else (tag, second_tag)
        return type(self)(self._stream, self._strategy, tags)

    def _windowed(self, function: object) -> Any:
        return _functions().windowed(self._strategy, function, self._late_tags)

    def _reduced(self, function: Callable[[Any, Any], Any], emit: EmitResult[Any, Any] | None) -> Any:
        return _functions().reduced(self._strategy, function, emit, self._late_tags)

    def _aggregated(self, function: AggregateFunction[Any, Any, Any], emit: EmitResult[Any, Any] | None) -> Any:
        return _functions().aggregated(self._strategy, function, emit, self._late_tags)

    def _aggregate(self, described: object, given: Any, parts: Mapping[str, Any]) -> Any:
        if isinstance(described, AggregateFunction):
            return self._stream.process(self._aggregated(described, given), **parts)
        if not isinstance(described, type) or issubclass(described, AggregateFunction):
            raise PlanError(
                f"aggregate at {caller_location()} takes an AggregateFunction (an instance, or aggregate_of(...)) or "
                f"the class of the results, not {described!r}."
            )
        ref = self._declared(described, given, parts)
        return (configured_global if self._stream._non_parallel else configured)(self._stream._builder, ref)

    def _declared(self, result: type[Any], records: type[Any] | None, parts: Mapping[str, Part]) -> InputRef:
        stream = self._stream
        declared = declare(stream._ref, result, records, parts, windowed=True)
        is_session = isinstance(self._strategy, SessionWindowStrategy)
        chosen = self._why_rows(aggregated=True) or choose_columns(stream._ref, declared, records)
        if is_session and not isinstance(chosen, str):
            chosen = import_module("dsv2.arrow.sessions").why_rows(declared, chosen[0], self._strategy) or chosen
        function: ProcessFunction
        if isinstance(chosen, str):
            return _added(stream, self._aggregated(FoldedRecords[Any](declared), EmitWindow[Any](declared, chosen)))
        if is_session:
            function = import_module("dsv2.arrow.sessions").SessionColumns(declared, *chosen, self._strategy)
            return _added(stream, function)
        made = import_module("dsv2.arrow.window_combiner").combined(declared, *chosen, self._strategy)
        if made is None or stream._ref.exchange is not Exchange.HASH:
            columns = import_module("dsv2.arrow.aggregates")
            kind = columns.WindowColumns if self._strategy.time_type is TimeType.EVENT else columns.ClockColumns
            return _added(stream, kind(declared, *chosen, self._strategy))
        before, select, after = made
        ref = stream._ref
        node = stream._builder.add(OperatorKind.ONE_INPUT, before, "Combine", (InputRef(ref.node, ref.output),))
        sent = InputRef(node, 0, Exchange.HASH, select, ref.key_version)
        return _added(Stream[Any](stream._builder, sent), after)

    def _why_rows(self, *, aggregated: bool = False) -> str | None:
        """The reason why the windows are not kept in columns; None if they are. ``aggregated``: as for ``why_rows``."""
        if (reason := why_rows(self._strategy, aggregated=aggregated)) is not None:
            return reason
        return "late records go to a side output" if self._late_tags else None


class KeyedWindowedStream(WindowedStream[T], WindowRanking[T], Generic[K, T]):
    """A keyed stream in windows: each key has its own."""

    @overload
    def process(self, function: _OneInput[T, OUT]) -> ConfiguredStream[OUT]: ...
    @overload
    def process(
        self, function: _OneInput[T, OUT], new_key_selector: Callable[[OUT], K], *, version: int | None = None
    ) -> ConfiguredKeyedStream[K, OUT]: ...
    @overload
    def process(self, function: _TwoOutput[T, O1, O2]) -> TwoStreams[O1, O2]: ...
    @overload
    def process(
        self,
        function: _TwoOutput[T, O1, O2],
        *,
        first_key_selector: Callable[[O1], K],
        second_key_selector: Callable[[O2], K],
        version: int | None = None,
    ) -> TwoKeyedStreams[K, O1, O2]: ...
    def process(
        self,
        function: _OneInput[T, Any] | _TwoOutput[T, Any, Any],
        new_key_selector: Callable[[Any], K] | None = None,
        *,
        first_key_selector: Callable[[Any], K] | None = None,
        second_key_selector: Callable[[Any], K] | None = None,
        version: int | None = None,
    ) -> ConfiguredStream[Any] | ConfiguredKeyedStream[K, Any] | TwoStreams[Any, Any] | TwoKeyedStreams[K, Any, Any]:
        """Run a window function. Key selectors keep the result keyed, as for ``KeyedPartitionStream.process``.

        Raises:
            PlanError: ``function`` is not a window function, or an argument does not apply to it.
        """
        result: ConfiguredStream[Any] = self._stream.process(
            self._windowed(function),
            new_key_selector,
            first_key_selector=first_key_selector,
            second_key_selector=second_key_selector,
            version=version,
        )
        return result

    @overload
    def reduce(self, function: Callable[[T, T], T]) -> ConfiguredStream[T]: ...
    @overload
    def reduce(
        self, function: Callable[[T, T], T], *, new_key_selector: Callable[[T], K], version: int | None = None
    ) -> ConfiguredKeyedStream[K, T]: ...
    @overload
    def reduce(self, function: Callable[[T, T], T], emit: EmitResult[T, OUT]) -> ConfiguredStream[OUT]: ...
    @overload
    def reduce(
        self,
        function: Callable[[T, T], T],
        emit: EmitResult[T, OUT],
        *,
        new_key_selector: Callable[[OUT], K],
        version: int | None = None,
    ) -> ConfiguredKeyedStream[K, OUT]: ...
    def reduce(
        self,
        function: Callable[[T, T], T],
        emit: EmitResult[T, Any] | None = None,
        *,
        new_key_selector: Callable[[Any], K] | None = None,
        version: int | None = None,
    ) -> ConfiguredStream[Any] | ConfiguredKeyedStream[K, Any]:
        """Reduce the records of each window incrementally: ``function(function(first, second), third)`` and so on.

        Only one record is stored for each window.

        Args:
            function: Reduces two records to one. It must not modify its arguments.
            emit: Called with (result, window, ctx). Returns the record to emit, for example with the key and the time
                of the window. None (default): the result is emitted.
            new_key_selector: Keeps the result keyed, as for ``KeyedPartitionStream.process``.
            version: The version of ``new_key_selector``.

        Raises:
            PlanError: An argument is invalid.
        """
        function_in_windows = self._reduced(function, emit)
        result: ConfiguredStream[Any] = self._stream.process(function_in_windows, new_key_selector, version=version)
        return result

    @overload
    def aggregate(self, function: AggregateFunction[T, ACC, OUT], /) -> ConfiguredStream[OUT]: ...
    @overload
    def aggregate(
        self,
        function: AggregateFunction[T, ACC, OUT],
        /,
        *,
        new_key_selector: Callable[[OUT], K],
        version: int | None = None,
    ) -> ConfiguredKeyedStream[K, OUT]: ...
    @overload
    def aggregate(
        self, function: AggregateFunction[T, ACC, RESULT], emit: EmitResult[RESULT, OUT], /
    ) -> ConfiguredStream[OUT]: ...
    @overload
    def aggregate(
        self,
        function: AggregateFunction[T, ACC, RESULT],
        emit: EmitResult[RESULT, OUT],
        /,
        *,
        new_key_selector: Callable[[OUT], K],
        version: int | None = None,
    ) -> ConfiguredKeyedStream[K, OUT]: ...
    @overload
    def aggregate(
        self, result: type[OUT], records: type[Any] | None = None, /, **parts: Part
    ) -> ConfiguredStream[OUT]: ...
    def aggregate(
        self, described: object, given: Any = None, /, **parts: Any
    ) -> ConfiguredStream[Any] | ConfiguredKeyedStream[K, Any]:
        """Aggregate the records of each window incrementally, and emit the result when it fires.

        The aggregate is an ``AggregateFunction``, or a class of results with what each of its fields holds: the
        arguments and errors of the latter are those of ``KeyedPartitionStream.aggregate``. Tumbling, sliding and
        session windows in event time without allowed lateness, early firing, triggers and late output are then
        aggregated in columns, sessions only if the order in which they merge does not matter.
        Counts, and sums, means, minima and maxima of whole numbers are also combined before the exchange, if the result
        has the key.

        Args:
            described: The function, or the class of the results. Sessions require a function with ``merge``.
            given: For a function: ``emit``, as for ``reduce``. For a class: the class of the records, if the stream
                does not declare it.
            parts: For a function: ``new_key_selector`` and ``version``, as for ``reduce``. For a class: what each field
                holds.

        Raises:
            PlanError: An argument is invalid, or the function has no ``merge`` for sessions.
        """
        result: ConfiguredStream[Any] = self._aggregate(described, given, parts)
        return result

    @overload
    def connect_and_process(
        self, other: KeyedPartitionStream[K, TO], function: _TwoInput[T, TO, OUT]
    ) -> ConfiguredStream[OUT]: ...
    @overload
    def connect_and_process(
        self,
        other: KeyedPartitionStream[K, TO],
        function: _TwoInput[T, TO, OUT],
        new_key_selector: Callable[[OUT], K],
        *,
        version: int | None = None,
    ) -> ConfiguredKeyedStream[K, OUT]: ...
    def connect_and_process(
        self,
        other: KeyedPartitionStream[K, TO],
        function: _TwoInput[T, TO, Any],
        new_key_selector: Callable[[Any], K] | None = None,
        *,
        version: int | None = None,
    ) -> ConfiguredStream[Any] | ConfiguredKeyedStream[K, Any]:
        """Run a window function on this stream and ``other``, whose records are in the same windows.

        Raises:
            PlanError: ``function`` is not a window function with two inputs, or ``other`` is of another kind.
        """
        result: ConfiguredStream[Any] = self._stream.connect_and_process(
            other, self._windowed(function), new_key_selector, version=version
        )
        return result


class GlobalWindowedStream(WindowedStream[T], Generic[T]):
    """A global stream in windows."""

    @overload
    def process(self, function: _OneInput[T, OUT]) -> ConfiguredGlobalStream[OUT]: ...
    @overload
    def process(self, function: _TwoOutput[T, O1, O2]) -> TwoGlobalStreams[O1, O2]: ...
    def process(
        self, function: _OneInput[T, Any] | _TwoOutput[T, Any, Any]
    ) -> ConfiguredGlobalStream[Any] | TwoGlobalStreams[Any, Any]:
        """As ``KeyedWindowedStream.process``."""
        result: ConfiguredGlobalStream[Any] = self._stream.process(self._windowed(function))
        return result

    @overload
    def reduce(self, function: Callable[[T, T], T]) -> ConfiguredGlobalStream[T]: ...
    @overload
    def reduce(self, function: Callable[[T, T], T], emit: EmitResult[T, OUT]) -> ConfiguredGlobalStream[OUT]: ...
    def reduce(
        self, function: Callable[[T, T], T], emit: EmitResult[T, Any] | None = None
    ) -> ConfiguredGlobalStream[Any]:
        """As ``KeyedWindowedStream.reduce``."""
        result: ConfiguredGlobalStream[Any] = self._stream.process(self._reduced(function, emit))
        return result

    @overload
    def aggregate(self, function: AggregateFunction[T, ACC, OUT], /) -> ConfiguredGlobalStream[OUT]: ...
    @overload
    def aggregate(
        self, function: AggregateFunction[T, ACC, RESULT], emit: EmitResult[RESULT, OUT], /
    ) -> ConfiguredGlobalStream[OUT]: ...
    @overload
    def aggregate(
        self, result: type[OUT], records: type[Any] | None = None, /, **parts: Part
    ) -> ConfiguredGlobalStream[OUT]: ...
    def aggregate(self, described: object, given: Any = None, /, **parts: Any) -> ConfiguredGlobalStream[Any]:
        """As ``KeyedWindowedStream.aggregate``, without ``Key``."""
        result: ConfiguredGlobalStream[Any] = self._aggregate(described, given, parts)
        return result

    def connect_and_process(
        self, other: GlobalStream[TO], function: _TwoInput[T, TO, OUT]
    ) -> ConfiguredGlobalStream[OUT]:
        """As ``KeyedWindowedStream.connect_and_process``, with another global stream."""
        result: ConfiguredGlobalStream[OUT] = self._stream.connect_and_process(other, self._windowed(function))
        return result


class NonKeyedWindowedStream(WindowedStream[T], Generic[T]):
    """A stream with one window in each subtask, which fires at the end of the input or by a trigger."""

    @overload
    def process(self, function: _OneInput[T, OUT]) -> ConfiguredStream[OUT]: ...
    @overload
    def process(self, function: _TwoOutput[T, O1, O2]) -> TwoStreams[O1, O2]: ...
    def process(
        self, function: _OneInput[T, Any] | _TwoOutput[T, Any, Any]
    ) -> ConfiguredStream[Any] | TwoStreams[Any, Any]:
        """As ``KeyedWindowedStream.process``."""
        result: ConfiguredStream[Any] = self._stream.process(self._windowed(function))
        return result

    @overload
    def reduce(self, function: Callable[[T, T], T]) -> ConfiguredStream[T]: ...
    @overload
    def reduce(self, function: Callable[[T, T], T], emit: EmitResult[T, OUT]) -> ConfiguredStream[OUT]: ...
    def reduce(self, function: Callable[[T, T], T], emit: EmitResult[T, Any] | None = None) -> ConfiguredStream[Any]:
        """As ``KeyedWindowedStream.reduce``."""
        result: ConfiguredStream[Any] = self._stream.process(self._reduced(function, emit))
        return result

    @overload
    def aggregate(self, function: AggregateFunction[T, ACC, OUT], /) -> ConfiguredStream[OUT]: ...
    @overload
    def aggregate(
        self, function: AggregateFunction[T, ACC, RESULT], emit: EmitResult[RESULT, OUT], /
    ) -> ConfiguredStream[OUT]: ...
    @overload
    def aggregate(
        self, result: type[OUT], records: type[Any] | None = None, /, **parts: Part
    ) -> ConfiguredStream[OUT]: ...
    def aggregate(self, described: object, given: Any = None, /, **parts: Any) -> ConfiguredStream[Any]:
        """As ``KeyedWindowedStream.aggregate``, without ``Key``."""
        result: ConfiguredStream[Any] = self._aggregate(described, given, parts)
        return result

    def connect_and_process(
        self, other: NonKeyedPartitionStream[TO], function: _TwoInput[T, TO, OUT]
    ) -> ConfiguredStream[OUT]:
        """As ``KeyedWindowedStream.connect_and_process``, with another stream without keys."""
        result: ConfiguredStream[OUT] = self._stream.connect_and_process(other, self._windowed(function))
        return result


def _added(stream: Stream[Any], function: ProcessFunction) -> InputRef:
    return stream._add(OperatorKind.ONE_INPUT, function, "Aggregate")


def _functions() -> Any:
    """The module that makes the process functions. Only programs with windows import it, which takes time."""
    return import_module("dsv2.extension.window.process_functions")
