"""The four kinds of streams and what can be done with each (FLIP-409, FLIP-410; Flink ``datastream.api.stream``).

A stream is a view on one output of an operator plus the way its records are partitioned; calling ``process``,
``connect_and_process`` or ``to_sink`` adds an operator. What ``process`` returns is both the new stream and the
handle to configure the operator behind it (``with_uid`` and its kin).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar, overload

from dsv2.callables import takes
from dsv2.configurable import ConfiguredSink, ProcessConfigurable
from dsv2.context import Collector, PartitionedContext
from dsv2.errors import PlanError
from dsv2.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    OneInput,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.graph import Exchange, InputRef, KeySelector, OperatorKind, PlanBuilder
from dsv2.graph.builder import caller_location, kind_of
from dsv2.sinks import Sink
from dsv2.stream_arguments import (
    one_input,
    require,
    require_callable,
    require_new_key_selector,
    require_selectors,
    require_version,
)

__all__ = (
    "BroadcastStream",
    "GlobalStream",
    "KeyedPartitionStream",
    "NonKeyedPartitionStream",
    "ProcessConfigurableAndGlobalStream",
    "ProcessConfigurableAndKeyedPartitionStream",
    "ProcessConfigurableAndNonKeyedPartitionStream",
    "ProcessConfigurableAndTwoKeyedPartitionStreams",
    "ProcessConfigurableAndTwoNonKeyedPartitionStream",
    "TwoGlobalStreams",
)

K = TypeVar("K", bound=Hashable)
NK = TypeVar("NK", bound=Hashable)
T_co = TypeVar("T_co", covariant=True)
O1_co = TypeVar("O1_co", covariant=True)
O2_co = TypeVar("O2_co", covariant=True)
TO = TypeVar("TO")
OUT = TypeVar("OUT")
O1 = TypeVar("O1")
O2 = TypeVar("O2")


class _Stream(Generic[T_co]):
    """One output of one operator, seen through a partitioning."""

    def __init__(self, builder: PlanBuilder, ref: InputRef) -> None:
        self._builder = builder
        self._ref = ref

    def _add(
        self,
        kind: OperatorKind,
        function: ProcessFunction,
        name: str,
        *others: InputRef,
        output_keys: tuple[KeySelector | None, ...] = (None,),
        non_parallel: bool = False,
        version: int | None = None,
    ) -> InputRef:
        require_version(version, output_keys)
        node = self._builder.add(kind, function, name, (self._ref, *others), output_keys, non_parallel, version)
        return InputRef(node)

    def _through(
        self, exchange: Exchange, key_selector: KeySelector | None = None, version: int | None = None
    ) -> InputRef:
        return InputRef(self._ref.node, self._ref.output, exchange, key_selector, version)

    def _to_sink(self, sink: Sink[T_co], non_parallel: bool = False) -> ConfiguredSink:
        if not isinstance(sink, Sink):
            raise PlanError(f"to_sink at {caller_location()} takes a sink of dsv2.sinks, not {kind_of(sink)}.")
        node = self._builder.add(OperatorKind.SINK, sink, "Sink", (self._ref,), (), non_parallel)
        return ConfiguredSink(self._builder, InputRef(node))


class _Partitionable(_Stream[T_co], Generic[T_co]):
    """A stream that may be partitioned in another way: every one but a broadcast stream."""

    def key_by(
        self, key_selector: Callable[[T_co], NK], *, version: int | None = None
    ) -> KeyedPartitionStream[NK, T_co]:
        """Partition by key: records whose keys are equal meet in one partition, in order per channel.

        A key is a str, bytes, int, bool, float, date, datetime, UUID, Decimal, Enum, or a tuple, NamedTuple or frozen
        dataclass of these, and is the same whenever the record is the same.

        ``version``: from 1 on, for jobs that are started again from a checkpoint. Without one a restart is refused
        when the code of ``key_selector`` has changed. With one the code does not count, and the restart is refused
        when the version has changed: so raise it when the keys become others, and only then. A selector that had none
        counts as version 1. Raises ``PlanError`` below 1.
        """
        if not takes(key_selector, 1):
            raise PlanError(f"key_by at {caller_location()} takes a callable (record) -> key, not {key_selector!r}.")
        require_version(version, (key_selector,))
        return KeyedPartitionStream(self._builder, self._through(Exchange.HASH, key_selector, version))

    def shuffle(self) -> NonKeyedPartitionStream[T_co]:
        """Spread the records evenly over the subtasks of the next operator."""
        return NonKeyedPartitionStream(self._builder, self._through(Exchange.REBALANCE))

    def broadcast(self) -> BroadcastStream[T_co]:
        """Show every record to every subtask of the function this stream is connected to."""
        return BroadcastStream(self._builder, self._through(Exchange.BROADCAST))


class NonKeyedPartitionStream(_Partitionable[T_co], Generic[T_co]):
    """A stream whose partitions are the parallel subtasks; which record is where is not determined."""

    @overload
    def process(
        self, function: TwoOutputStreamProcessFunction[T_co, O1, O2]
    ) -> ProcessConfigurableAndTwoNonKeyedPartitionStream[O1, O2]: ...
    @overload
    def process(self, function: OneInput[T_co, OUT]) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]: ...
    @overload
    def process(
        self, function: Callable[[T_co, Collector[OUT], PartitionedContext[OUT]], None]
    ) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]: ...
    def process(self, function: Any) -> Any:
        """Run ``function`` on every subtask.

        A two-output function gives a pair of streams (``first``, ``second``); a one-input function, or a plain
        callable ``(record, output, ctx)``, gives one.
        """
        if isinstance(function, TwoOutputStreamProcessFunction):
            ref = self._add(OperatorKind.TWO_OUTPUT, function, "Two-Output-Process", output_keys=(None, None))
            return ProcessConfigurableAndTwoNonKeyedPartitionStream[Any, Any](self._builder, ref)
        ref = self._add(OperatorKind.ONE_INPUT, one_input(function), "Process")
        return ProcessConfigurableAndNonKeyedPartitionStream[Any](self._builder, ref)

    @overload
    def connect_and_process(
        self,
        other: NonKeyedPartitionStream[TO],
        function: TwoInputNonBroadcastStreamProcessFunction[T_co, TO, OUT],
    ) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]: ...
    @overload
    def connect_and_process(
        self, other: BroadcastStream[TO], function: TwoInputBroadcastStreamProcessFunction[T_co, TO, OUT]
    ) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]: ...
    def connect_and_process(self, other: Any, function: Any) -> Any:
        """Run ``function`` on this stream and ``other``: a non-keyed one, or a broadcast one as side input."""
        _refuse_foreign(self, other, NonKeyedPartitionStream, BroadcastStream)
        if isinstance(other, BroadcastStream):
            ref = _connect_broadcast(self, other, function)
        else:
            require(function, TwoInputNonBroadcastStreamProcessFunction)
            ref = self._add(OperatorKind.TWO_INPUT, function, "TwoInput-Process", other._ref)
        return ProcessConfigurableAndNonKeyedPartitionStream[Any](self._builder, ref)

    def map(self, function: Callable[[T_co], OUT]) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]:
        """``process`` with a function that turns each record into one."""
        require_callable("map", function)
        return self.process(MapFunction(function)).with_name("Map")

    def filter(self, predicate: Callable[[T_co], bool]) -> ProcessConfigurableAndNonKeyedPartitionStream[T_co]:
        """``process`` with a function that keeps the records for which ``predicate`` is true."""
        require_callable("filter", predicate)
        return self.process(FilterFunction(predicate)).with_name("Filter")

    def flat_map(self, function: Callable[[T_co], Iterable[OUT]]) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]:
        """``process`` with a function that turns each record into any number of records."""
        require_callable("flat_map", function)
        return self.process(FlatMapFunction(function)).with_name("FlatMap")

    def global_(self) -> GlobalStream[T_co]:
        """Bring all records together in one partition."""
        return GlobalStream(self._builder, self._through(Exchange.GLOBAL))

    def to_sink(self, sink: Sink[T_co]) -> ConfiguredSink:
        """Write the records to ``sink``."""
        return self._to_sink(sink)


class KeyedPartitionStream(_Partitionable[T_co], Generic[K, T_co]):
    """A stream whose partitions are the keys."""

    @overload
    def process(
        self, function: TwoOutputStreamProcessFunction[T_co, O1, O2]
    ) -> ProcessConfigurableAndTwoNonKeyedPartitionStream[O1, O2]: ...
    @overload
    def process(
        self,
        function: TwoOutputStreamProcessFunction[T_co, O1, O2],
        first_key_selector: Callable[[O1], K],
        second_key_selector: Callable[[O2], K],
        *,
        version: int | None = None,
    ) -> ProcessConfigurableAndTwoKeyedPartitionStreams[K, O1, O2]: ...
    @overload
    def process(self, function: OneInput[T_co, OUT]) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]: ...
    @overload
    def process(
        self, function: OneInput[T_co, OUT], new_key_selector: Callable[[OUT], K], *, version: int | None = None
    ) -> ProcessConfigurableAndKeyedPartitionStream[K, OUT]: ...
    @overload
    def process(
        self, function: Callable[[T_co, Collector[OUT], PartitionedContext[OUT]], None]
    ) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]: ...
    def process(self, function: Any, *key_selectors: Any, version: int | None = None, **named_selectors: Any) -> Any:
        """Run ``function`` once per record, with the record's key as partition.

        Without key selectors the result is not keyed. With them (one per output) it stays keyed, without moving:
        every emitted record must have the current key, which is checked as it is emitted. ``version``: of these
        selectors, as in ``NonKeyedPartitionStream.key_by``.
        """
        # Keywords come in the order of the call; sorted, first_key_selector is before second_key_selector.
        selectors = (*key_selectors, *(selector for _, selector in sorted(named_selectors.items())))
        if isinstance(function, TwoOutputStreamProcessFunction):
            return self._process_two_output(function, selectors, version)
        name = "KeyedProcess"
        if not selectors:
            ref = self._add(OperatorKind.ONE_INPUT, one_input(function), name, version=version)
            return ProcessConfigurableAndNonKeyedPartitionStream[Any](self._builder, ref)
        require_selectors(selectors, 1)
        ref = self._add(OperatorKind.ONE_INPUT, one_input(function), name, output_keys=selectors, version=version)
        return ProcessConfigurableAndKeyedPartitionStream[K, Any](self._builder, _preserving(ref))

    def _process_two_output(self, function: ProcessFunction, selectors: tuple[Any, ...], version: int | None) -> Any:
        kind, name = OperatorKind.TWO_OUTPUT, "Two-Output-Operator"
        if not selectors:
            ref = self._add(kind, function, name, output_keys=(None, None), version=version)
            return ProcessConfigurableAndTwoNonKeyedPartitionStream[Any, Any](self._builder, ref)
        require_selectors(selectors, 2)
        ref = self._add(kind, function, name, output_keys=selectors, version=version)
        return ProcessConfigurableAndTwoKeyedPartitionStreams[K, Any, Any](self._builder, ref)

    @overload
    def connect_and_process(
        self,
        other: KeyedPartitionStream[K, TO],
        function: TwoInputNonBroadcastStreamProcessFunction[T_co, TO, OUT],
    ) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]: ...
    @overload
    def connect_and_process(
        self,
        other: KeyedPartitionStream[K, TO],
        function: TwoInputNonBroadcastStreamProcessFunction[T_co, TO, OUT],
        new_key_selector: Callable[[OUT], K],
        *,
        version: int | None = None,
    ) -> ProcessConfigurableAndKeyedPartitionStream[K, OUT]: ...
    @overload
    def connect_and_process(
        self, other: BroadcastStream[TO], function: TwoInputBroadcastStreamProcessFunction[T_co, TO, OUT]
    ) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]: ...
    @overload
    def connect_and_process(
        self,
        other: BroadcastStream[TO],
        function: TwoInputBroadcastStreamProcessFunction[T_co, TO, OUT],
        new_key_selector: Callable[[OUT], K],
        *,
        version: int | None = None,
    ) -> ProcessConfigurableAndKeyedPartitionStream[K, OUT]: ...
    def connect_and_process(
        self, other: Any, function: Any, new_key_selector: Any = None, *, version: int | None = None
    ) -> Any:
        """Run ``function`` on this stream and ``other``: one keyed by the same type of key, or a broadcast one.

        With ``new_key_selector``, of version ``version``, the result stays keyed, as with ``process``.
        """
        _refuse_foreign(self, other, KeyedPartitionStream, BroadcastStream)
        if isinstance(other, BroadcastStream):
            return _keyed_broadcast(self, other, function, new_key_selector, version)
        require(function, TwoInputNonBroadcastStreamProcessFunction)
        require_new_key_selector(new_key_selector)
        ref = self._add(
            OperatorKind.TWO_INPUT,
            function,
            "Keyed-TwoInput-Process",
            other._ref,
            output_keys=(new_key_selector,),
            version=version,
        )
        return _keyed_result(self._builder, ref)

    def global_(self) -> GlobalStream[T_co]:
        """Bring all records together in one partition."""
        return GlobalStream(self._builder, self._through(Exchange.GLOBAL))

    def to_sink(self, sink: Sink[T_co]) -> ConfiguredSink:
        """Write the records to ``sink``."""
        return self._to_sink(sink)


class GlobalStream(_Partitionable[T_co], Generic[T_co]):
    """A stream with exactly one partition; what processes it has parallelism 1."""

    @overload
    def process(self, function: TwoOutputStreamProcessFunction[T_co, O1, O2]) -> TwoGlobalStreams[O1, O2]: ...
    @overload
    def process(self, function: OneInput[T_co, OUT]) -> ProcessConfigurableAndGlobalStream[OUT]: ...
    @overload
    def process(
        self, function: Callable[[T_co, Collector[OUT], PartitionedContext[OUT]], None]
    ) -> ProcessConfigurableAndGlobalStream[OUT]: ...
    def process(self, function: Any) -> Any:
        """Run ``function`` in one subtask that sees everything."""
        name = "Global Process"
        if isinstance(function, TwoOutputStreamProcessFunction):
            ref = self._add(OperatorKind.TWO_OUTPUT, function, name, output_keys=(None, None), non_parallel=True)
            return TwoGlobalStreams[Any, Any](self._builder, ref)
        ref = self._add(OperatorKind.ONE_INPUT, one_input(function), name, non_parallel=True)
        return ProcessConfigurableAndGlobalStream[Any](self._builder, ref)

    def connect_and_process(
        self,
        other: GlobalStream[TO],
        function: TwoInputNonBroadcastStreamProcessFunction[T_co, TO, OUT],
    ) -> ProcessConfigurableAndGlobalStream[OUT]:
        """Run ``function`` on this stream and another global one."""
        _refuse_foreign(self, other, GlobalStream)
        require(function, TwoInputNonBroadcastStreamProcessFunction)
        ref = self._add(
            OperatorKind.TWO_INPUT, function, "Global-Global-TwoInput-Process", other._ref, non_parallel=True
        )
        return ProcessConfigurableAndGlobalStream(self._builder, ref)

    def to_sink(self, sink: Sink[T_co]) -> ConfiguredSink:
        """Write the records to ``sink``, with parallelism 1."""
        return self._to_sink(sink, non_parallel=True)


class BroadcastStream(_Stream[T_co], Generic[T_co]):
    """A stream of which every partition sees every record; only a side input of ``connect_and_process``."""

    @overload
    def connect_and_process(
        self,
        other: KeyedPartitionStream[K, TO],
        function: TwoInputBroadcastStreamProcessFunction[TO, T_co, OUT],
    ) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]: ...
    @overload
    def connect_and_process(
        self,
        other: KeyedPartitionStream[K, TO],
        function: TwoInputBroadcastStreamProcessFunction[TO, T_co, OUT],
        new_key_selector: Callable[[OUT], K],
        *,
        version: int | None = None,
    ) -> ProcessConfigurableAndKeyedPartitionStream[K, OUT]: ...
    @overload
    def connect_and_process(
        self,
        other: NonKeyedPartitionStream[TO],
        function: TwoInputBroadcastStreamProcessFunction[TO, T_co, OUT],
    ) -> ProcessConfigurableAndNonKeyedPartitionStream[OUT]: ...
    def connect_and_process(
        self, other: Any, function: Any, new_key_selector: Any = None, *, version: int | None = None
    ) -> Any:
        """Run ``function`` on ``other`` (its first input) with this stream as side input (its second)."""
        _refuse_foreign(self, other, KeyedPartitionStream, NonKeyedPartitionStream)
        if isinstance(other, KeyedPartitionStream):
            return _keyed_broadcast(other, self, function, new_key_selector, version)
        if new_key_selector is not None or version is not None:
            raise PlanError(f"connect_and_process at {caller_location()}: only a keyed stream can stay keyed.")
        ref = _connect_broadcast(other, self, function)
        return ProcessConfigurableAndNonKeyedPartitionStream[Any](self._builder, ref)


class ProcessConfigurableAndNonKeyedPartitionStream(NonKeyedPartitionStream[T_co], ProcessConfigurable):
    """A non-keyed stream and the handle on the operator that makes it."""


class ProcessConfigurableAndKeyedPartitionStream(KeyedPartitionStream[K, T_co], ProcessConfigurable):
    """A keyed stream and the handle on the operator that makes it."""


class ProcessConfigurableAndGlobalStream(GlobalStream[T_co], ProcessConfigurable):
    """A global stream and the handle on the operator that makes it."""


class ProcessConfigurableAndTwoNonKeyedPartitionStream(ProcessConfigurable, Generic[O1_co, O2_co]):
    """Both outputs of a two-output function, and the handle on it."""

    def __init__(self, builder: PlanBuilder, ref: InputRef) -> None:
        self._builder = builder
        self._ref = ref

    @property
    def first(self) -> ProcessConfigurableAndNonKeyedPartitionStream[O1_co]:
        """The first output."""
        return ProcessConfigurableAndNonKeyedPartitionStream(self._builder, InputRef(self._node, 0))

    @property
    def second(self) -> ProcessConfigurableAndNonKeyedPartitionStream[O2_co]:
        """The second output."""
        return ProcessConfigurableAndNonKeyedPartitionStream(self._builder, InputRef(self._node, 1))


class ProcessConfigurableAndTwoKeyedPartitionStreams(ProcessConfigurable, Generic[K, O1_co, O2_co]):
    """Both outputs of a key-preserving two-output function, and the handle on it."""

    def __init__(self, builder: PlanBuilder, ref: InputRef) -> None:
        self._builder = builder
        self._ref = ref

    @property
    def first(self) -> ProcessConfigurableAndKeyedPartitionStream[K, O1_co]:
        """The first output."""
        return ProcessConfigurableAndKeyedPartitionStream(self._builder, _preserving(InputRef(self._node, 0)))

    @property
    def second(self) -> ProcessConfigurableAndKeyedPartitionStream[K, O2_co]:
        """The second output."""
        return ProcessConfigurableAndKeyedPartitionStream(self._builder, _preserving(InputRef(self._node, 1)))


class TwoGlobalStreams(Generic[O1_co, O2_co]):
    """Both outputs of a two-output function on a global stream."""

    def __init__(self, builder: PlanBuilder, ref: InputRef) -> None:
        self._builder = builder
        self._node = ref.node

    @property
    def first(self) -> ProcessConfigurableAndGlobalStream[O1_co]:
        """The first output."""
        return ProcessConfigurableAndGlobalStream(self._builder, InputRef(self._node, 0))

    @property
    def second(self) -> ProcessConfigurableAndGlobalStream[O2_co]:
        """The second output."""
        return ProcessConfigurableAndGlobalStream(self._builder, InputRef(self._node, 1))


def _refuse_foreign(stream: _Stream[Any], other: object, *kinds: type) -> None:
    where = f"connect_and_process at {caller_location()}"
    if not isinstance(other, kinds):
        raise PlanError(
            f"{where}: a {type(stream).__name__} connects to a {' or a '.join(kind.__name__ for kind in kinds)}, "
            f"not to a {type(other).__name__}."
        )
    assert isinstance(other, _Stream)
    if other._builder is not stream._builder:
        raise PlanError(f"{where}: the two streams belong to different environments.")


def _preserving(ref: InputRef) -> InputRef:
    node = ref.node
    return InputRef(node, ref.output, None, node.output_keys[ref.output], node.output_key_version)


def _connect_broadcast(stream: _Stream[Any], side: BroadcastStream[Any], function: Any, **options: Any) -> InputRef:
    require(function, TwoInputBroadcastStreamProcessFunction)
    name = "Broadcast-TwoInput-Process"
    if isinstance(stream, KeyedPartitionStream):
        name = "Keyed-TwoInput-Broadcast-Process"
    return stream._add(OperatorKind.TWO_INPUT_BROADCAST, function, name, side._ref, **options)


def _keyed_broadcast(
    keyed: KeyedPartitionStream[Any, Any],
    side: BroadcastStream[Any],
    function: Any,
    key_selector: Any,
    version: int | None,
) -> Any:
    require_new_key_selector(key_selector)
    ref = _connect_broadcast(keyed, side, function, output_keys=(key_selector,), version=version)
    return _keyed_result(keyed._builder, ref)


def _keyed_result(builder: PlanBuilder, ref: InputRef) -> Any:
    if ref.node.output_keys == (None,):
        return ProcessConfigurableAndNonKeyedPartitionStream[Any](builder, ref)
    return ProcessConfigurableAndKeyedPartitionStream[Any, Any](builder, _preserving(ref))
