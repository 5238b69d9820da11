"""The four kinds of streams (FLIP-409, FLIP-410; Flink ``datastream.api.stream``).

A stream is one output of an operator with a partitioning. ``process``, ``connect_and_process`` and ``to_sink`` add an
operator. ``process`` returns the new stream, which is also the handle for configuring the operator (``with_uid``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from dsv2.base.callables import takes
from dsv2.base.type_variables import OUT, T_co
from dsv2.checks.missing_methods import missing_method
from dsv2.errors import PlanError
from dsv2.extension.window.strategy import GlobalWindowStrategy, WindowStrategy
from dsv2.functions import (
    OneInput,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.functions.one_input import PassingFunction
from dsv2.graph import Exchange, InputRef, OperatorKind, PlanBuilder, WaitForBroadcast
from dsv2.graph.builder import caller_location
from dsv2.graph.record_types import declared_type_of
from dsv2.model.output_tag import OutputTag
from dsv2.sinks import Sink
from dsv2.spi import TwoInputColumnarFunction, TwoInputDeclaration
from dsv2.streams.aggregates import GlobalAggregates, KeyedAggregates
from dsv2.streams.arguments import (
    AnyTwoInput,
    OneInputOrCallable,
    one_input,
    refuse_selectors,
    refuse_wait,
    require,
    require_both_or_neither,
    require_selector,
    require_version,
)
from dsv2.streams.base import Stream, connect_broadcast, refuse_foreign
from dsv2.streams.expressions import key_of_columns
from dsv2.streams.operators import GlobalOperators, RecordOperators, StreamOperators
from dsv2.streams.outputs import ConfiguredSink, WithDeadLetters, WithSideOutputs, preserving, side_output
from dsv2.streams.over import KeyedOver
from dsv2.streams.ranking import KeyedRanking
from dsv2.streams.windowed_streams import GlobalWindowedStream, KeyedWindowedStream, NonKeyedWindowedStream

if TYPE_CHECKING:
    from dsv2.streams.expressions import Column

K = TypeVar("K", bound=Hashable)
NK = TypeVar("NK", bound=Hashable)
O1_co = TypeVar("O1_co", covariant=True)
O2_co = TypeVar("O2_co", covariant=True)
TO = TypeVar("TO")
O1 = TypeVar("O1")
O2 = TypeVar("O2")

_CHOOSE_OUTPUT = "It has two outputs: call it on first or second."


class PartitionableStream(Stream[T_co], Generic[T_co]):
    """A stream that can be repartitioned: any stream but a broadcast stream."""

    @overload
    def key_by(
        self, key_selector: Callable[[T_co], NK], /, *, version: int | None = None
    ) -> KeyedPartitionStream[NK, T_co]: ...
    @overload
    def key_by(
        self, *columns: Column, records: type[Any] | None = None, version: int | None = None
    ) -> KeyedPartitionStream[Any, T_co]: ...
    def key_by(
        self, *key: Callable[[T_co], Any] | Column, records: type[Any] | None = None, version: int | None = None
    ) -> KeyedPartitionStream[Any, T_co]:
        """Partition by key. Records with equal keys go to the same partition, in order per channel.

        Args:
            key: A callable that returns the key of a record, deterministically. A key is a str, bytes, int, bool,
                float, date, datetime, UUID, Decimal, Enum, or a tuple, NamedTuple or frozen dataclass of these. Or one
                or several columns: names of fields, and expressions as for ``select``. The key of several is a tuple.
            records: The class of the records, for expressions. None: as the stream declares it.
            version: The version of the keys, at least 1. A restart from a checkpoint compares the versions, or the code
                of the selectors if none is set, and is refused if they differ. Increase it when the keys change. A
                selector without a version counts as version 1.

        Raises:
            PlanError: The key or ``version`` is invalid, or as for ``where``.
        """
        if len(key) == 1 and callable(key[0]):
            if not takes(key[0], 1):
                raise PlanError(f"key_by at {caller_location()} takes a callable (record) -> key, not {key[0]!r}.")
            ref, selector = self._ref, key[0]
        else:
            ref, selector = key_of_columns(self, key, records)
        require_version(version, (selector,))
        return KeyedPartitionStream(self._builder, InputRef(ref.node, ref.output, Exchange.HASH, selector, version))

    def shuffle(self) -> NonKeyedPartitionStream[T_co]:
        """Distribute the records evenly over the subtasks of the next operator."""
        return NonKeyedPartitionStream(self._builder, self._through(Exchange.REBALANCE))

    def broadcast(self) -> BroadcastStream[T_co]:
        """Send every record to every subtask of the function that this stream is connected to."""
        return BroadcastStream(self._builder, self._through(Exchange.BROADCAST))

    def to_sink(self, sink: Sink[T_co]) -> ConfiguredSink:
        """Write the records to ``sink``, those of a global stream in one subtask."""
        return self._to_sink(sink)


class ParallelStream(PartitionableStream[T_co], RecordOperators[T_co], Generic[T_co]):
    """A stream whose partitions are spread over subtasks."""

    def global_(self) -> GlobalStream[T_co]:
        """Send all records to one partition."""
        return GlobalStream(self._builder, self._through(Exchange.GLOBAL))


class NonKeyedPartitionStream(ParallelStream[T_co], StreamOperators[T_co], Generic[T_co]):
    """A stream whose partitions are the parallel subtasks. The partition of a record is not defined."""

    _kind = "NonKeyedPartitionStream"

    @overload
    def process(self, function: TwoOutputStreamProcessFunction[T_co, O1, O2]) -> TwoStreams[O1, O2]: ...
    @overload
    def process(self, function: PassingFunction[T_co]) -> ConfiguredStream[T_co]: ...
    @overload
    def process(self, function: OneInputOrCallable[T_co, OUT]) -> ConfiguredStream[OUT]: ...
    def process(
        self,
        function: TwoOutputStreamProcessFunction[T_co, Any, Any]
        | PassingFunction[T_co]
        | OneInputOrCallable[T_co, Any],
    ) -> ConfiguredStream[Any] | TwoStreams[Any, Any]:
        """Run ``function`` on every subtask.

        A two-output function returns a pair of streams (``first``, ``second``). A one-input function, or a callable
        ``(record, output, ctx)``, returns one stream.
        """
        if isinstance(function, TwoOutputStreamProcessFunction):
            ref = self._add(OperatorKind.TWO_OUTPUT, function, "Two-Output-Process", output_keys=(None, None))
            return TwoStreams[Any, Any](self._builder, ref)
        ref = self._add(OperatorKind.ONE_INPUT, one_input(function), "Process")
        return ConfiguredStream[Any](self._builder, ref)

    @overload
    def connect_and_process(
        self,
        other: NonKeyedPartitionStream[TO],
        function: TwoInputNonBroadcastStreamProcessFunction[T_co, TO, OUT],
    ) -> ConfiguredStream[OUT]: ...
    @overload
    def connect_and_process(
        self,
        other: BroadcastStream[TO],
        function: TwoInputBroadcastStreamProcessFunction[T_co, TO, OUT],
        *,
        wait_for_broadcast: WaitForBroadcast | None = None,
    ) -> ConfiguredStream[OUT]: ...
    def connect_and_process(
        self,
        other: NonKeyedPartitionStream[Any] | BroadcastStream[Any],
        function: AnyTwoInput[Any, Any],
        *,
        wait_for_broadcast: WaitForBroadcast | None = None,
    ) -> ConfiguredStream[Any]:
        """Run ``function`` on this stream and ``other``: a non-keyed stream, or a broadcast stream as side input.

        With ``wait_for_broadcast`` this stream waits until the broadcast stream was read.
        """
        refuse_foreign(self, other, NonKeyedPartitionStream, BroadcastStream)
        if isinstance(other, BroadcastStream):
            ref = connect_broadcast(self, other, function, wait_for_broadcast)
        else:
            refuse_wait(wait_for_broadcast)
            require(function, TwoInputNonBroadcastStreamProcessFunction)
            ref = self._add(OperatorKind.TWO_INPUT, function, "TwoInput-Process", other._ref)
        return ConfiguredStream[Any](self._builder, ref)

    def window(self, strategy: GlobalWindowStrategy) -> NonKeyedWindowedStream[T_co]:
        """Collect the records of each subtask in one window: ``WindowStrategy.global_()``, also with a trigger.

        Other windows require a keyed or a global stream.
        """
        return NonKeyedWindowedStream(self, strategy)


class KeyedPartitionStream(
    ParallelStream[T_co], KeyedAggregates[T_co], KeyedRanking[T_co], KeyedOver[T_co], Generic[K, T_co]
):
    """A stream partitioned by key."""

    _kind = "KeyedPartitionStream"

    @overload
    def process(self, function: TwoOutputStreamProcessFunction[T_co, O1, O2]) -> TwoStreams[O1, O2]: ...
    @overload
    def process(
        self,
        function: TwoOutputStreamProcessFunction[T_co, O1, O2],
        *,
        first_key_selector: Callable[[O1], K],
        second_key_selector: Callable[[O2], K],
        version: int | None = None,
    ) -> TwoKeyedStreams[K, O1, O2]: ...
    @overload
    def process(self, function: PassingFunction[T_co]) -> ConfiguredStream[T_co]: ...
    @overload
    def process(
        self, function: PassingFunction[T_co], new_key_selector: Callable[[T_co], K], *, version: int | None = None
    ) -> ConfiguredKeyedStream[K, T_co]: ...
    @overload
    def process(self, function: OneInputOrCallable[T_co, OUT]) -> ConfiguredStream[OUT]: ...
    @overload
    def process(
        self, function: OneInput[T_co, OUT], new_key_selector: Callable[[OUT], K], *, version: int | None = None
    ) -> ConfiguredKeyedStream[K, OUT]: ...
    def process(
        self,
        function: TwoOutputStreamProcessFunction[T_co, Any, Any]
        | PassingFunction[T_co]
        | OneInputOrCallable[T_co, Any],
        new_key_selector: Callable[[Any], K] | None = None,
        *,
        first_key_selector: Callable[[Any], K] | None = None,
        second_key_selector: Callable[[Any], K] | None = None,
        version: int | None = None,
    ) -> ConfiguredStream[Any] | ConfiguredKeyedStream[K, Any] | TwoStreams[Any, Any] | TwoKeyedStreams[K, Any, Any]:
        """Run ``function`` on every record, with the key of the record as partition.

        Without key selectors the result is not keyed. With ``new_key_selector`` (for a two-output function
        ``first_key_selector`` and ``second_key_selector``) it stays keyed without an exchange: every emitted record
        must have the current key, which is checked. ``version`` is the version of these selectors, as in ``key_by``.
        Raises ``PlanError`` for selectors that do not apply to the function.
        """
        if isinstance(function, TwoOutputStreamProcessFunction):
            refuse_selectors("a two-output function", new_key_selector=new_key_selector)
            require_both_or_neither(first_key_selector, second_key_selector)
            selectors = (first_key_selector, second_key_selector)
            name = "Two-Output-Operator"
            ref = self._add(OperatorKind.TWO_OUTPUT, function, name, output_keys=selectors, version=version)
            kind = TwoStreams[Any, Any] if first_key_selector is None else TwoKeyedStreams[K, Any, Any]
            return kind(self._builder, ref)
        body = one_input(function)
        refuse_selectors(
            "a function with one output",
            first_key_selector=first_key_selector,
            second_key_selector=second_key_selector,
        )
        require_selector("process", new_key_selector, "new_key_selector")
        ref = self._add(OperatorKind.ONE_INPUT, body, "KeyedProcess", output_keys=(new_key_selector,), version=version)
        return _keyed_result(self._builder, ref)

    @overload
    def connect_and_process(
        self,
        other: KeyedPartitionStream[K, TO],
        function: TwoInputNonBroadcastStreamProcessFunction[T_co, TO, OUT],
    ) -> ConfiguredStream[OUT]: ...
    @overload
    def connect_and_process(
        self,
        other: KeyedPartitionStream[K, TO],
        function: TwoInputNonBroadcastStreamProcessFunction[T_co, TO, OUT],
        new_key_selector: Callable[[OUT], K],
        *,
        version: int | None = None,
    ) -> ConfiguredKeyedStream[K, OUT]: ...
    @overload
    def connect_and_process(
        self,
        other: BroadcastStream[TO],
        function: TwoInputBroadcastStreamProcessFunction[T_co, TO, OUT],
        *,
        wait_for_broadcast: WaitForBroadcast | None = None,
    ) -> ConfiguredStream[OUT]: ...
    @overload
    def connect_and_process(
        self,
        other: BroadcastStream[TO],
        function: TwoInputBroadcastStreamProcessFunction[T_co, TO, OUT],
        new_key_selector: Callable[[OUT], K],
        *,
        version: int | None = None,
        wait_for_broadcast: WaitForBroadcast | None = None,
    ) -> ConfiguredKeyedStream[K, OUT]: ...
    def connect_and_process(
        self,
        other: KeyedPartitionStream[K, Any] | BroadcastStream[Any],
        function: AnyTwoInput[Any, Any],
        new_key_selector: Callable[[Any], K] | None = None,
        *,
        version: int | None = None,
        wait_for_broadcast: WaitForBroadcast | None = None,
    ) -> ConfiguredStream[Any] | ConfiguredKeyedStream[K, Any]:
        """Run ``function`` on this stream and ``other``: a stream with the same key type, or a broadcast stream.

        With ``new_key_selector``, whose version is ``version``, the result stays keyed, as for ``process``. With
        ``wait_for_broadcast`` this stream waits until the broadcast stream was read.
        """
        refuse_foreign(self, other, KeyedPartitionStream, BroadcastStream)
        if isinstance(other, BroadcastStream):
            side, wait = other, wait_for_broadcast
            ref = connect_broadcast(self, side, function, wait, new_key_selector, version)
            return _keyed_result(self._builder, ref)
        refuse_wait(wait_for_broadcast)
        require_selector("connect_and_process", new_key_selector, "new_key_selector")
        body: Any = function
        if isinstance(body, TwoInputDeclaration):
            refs = self._ref, other._ref
            types, selectors = [*map(declared_type_of, refs)], [ref.key_selector for ref in refs]
            body = body.function_of(types, selectors, keeps_keys=new_key_selector is not None)
        require(body, TwoInputNonBroadcastStreamProcessFunction, TwoInputColumnarFunction)
        ref = self._add(
            OperatorKind.TWO_INPUT,
            body,
            "Keyed-TwoInput-Process",
            other._ref,
            output_keys=(new_key_selector,),
            version=version,
        )
        return _keyed_result(self._builder, ref)

    def window(self, strategy: WindowStrategy) -> KeyedWindowedStream[K, T_co]:
        """Divide the records of each key into windows."""
        return KeyedWindowedStream(self, strategy)


class GlobalStream(PartitionableStream[T_co], GlobalOperators[T_co], GlobalAggregates[T_co], Generic[T_co]):
    """A stream with one partition. Its operators have parallelism 1."""

    _kind = "GlobalStream"
    _non_parallel = True

    @overload
    def process(self, function: TwoOutputStreamProcessFunction[T_co, O1, O2]) -> TwoGlobalStreams[O1, O2]: ...
    @overload
    def process(self, function: PassingFunction[T_co]) -> ConfiguredGlobalStream[T_co]: ...
    @overload
    def process(self, function: OneInputOrCallable[T_co, OUT]) -> ConfiguredGlobalStream[OUT]: ...
    def process(
        self,
        function: TwoOutputStreamProcessFunction[T_co, Any, Any]
        | PassingFunction[T_co]
        | OneInputOrCallable[T_co, Any],
    ) -> ConfiguredGlobalStream[Any] | TwoGlobalStreams[Any, Any]:
        """Run ``function`` in one subtask, which receives all records."""
        name = "Global Process"
        if isinstance(function, TwoOutputStreamProcessFunction):
            ref = self._add(OperatorKind.TWO_OUTPUT, function, name, output_keys=(None, None))
            return TwoGlobalStreams[Any, Any](self._builder, ref)
        ref = self._add(OperatorKind.ONE_INPUT, one_input(function), name)
        return ConfiguredGlobalStream[Any](self._builder, ref)

    def connect_and_process(
        self,
        other: GlobalStream[TO],
        function: TwoInputNonBroadcastStreamProcessFunction[T_co, TO, OUT],
    ) -> ConfiguredGlobalStream[OUT]:
        """Run ``function`` on this stream and another global one."""
        refuse_foreign(self, other, GlobalStream)
        require(function, TwoInputNonBroadcastStreamProcessFunction)
        ref = self._add(OperatorKind.TWO_INPUT, function, "Global-Global-TwoInput-Process", other._ref)
        return ConfiguredGlobalStream(self._builder, ref)

    def window(self, strategy: WindowStrategy) -> GlobalWindowedStream[T_co]:
        """Divide the records into windows."""
        return GlobalWindowedStream(self, strategy)


class BroadcastStream(Stream[T_co], Generic[T_co]):
    """A stream whose records all go to every partition. It can only be a side input of ``connect_and_process``."""

    _kind = "BroadcastStream"

    @overload
    def connect_and_process(
        self,
        other: KeyedPartitionStream[Any, TO] | NonKeyedPartitionStream[TO],
        function: TwoInputBroadcastStreamProcessFunction[TO, T_co, OUT],
        *,
        wait_for_broadcast: WaitForBroadcast | None = None,
    ) -> ConfiguredStream[OUT]: ...
    @overload
    def connect_and_process(
        self,
        other: KeyedPartitionStream[K, TO],
        function: TwoInputBroadcastStreamProcessFunction[TO, T_co, OUT],
        new_key_selector: Callable[[OUT], K],
        *,
        version: int | None = None,
        wait_for_broadcast: WaitForBroadcast | None = None,
    ) -> ConfiguredKeyedStream[K, OUT]: ...
    def connect_and_process(
        self,
        other: KeyedPartitionStream[Any, Any] | NonKeyedPartitionStream[Any],
        function: TwoInputBroadcastStreamProcessFunction[Any, T_co, Any],
        new_key_selector: Callable[[Any], Any] | None = None,
        *,
        version: int | None = None,
        wait_for_broadcast: WaitForBroadcast | None = None,
    ) -> ConfiguredStream[Any] | ConfiguredKeyedStream[Any, Any]:
        """Run ``function`` on ``other`` (first input) with this stream as side input (second input).

        With ``wait_for_broadcast``, ``other`` waits until this stream was read.
        """
        refuse_foreign(self, other, KeyedPartitionStream, NonKeyedPartitionStream)
        is_keyed = isinstance(other, KeyedPartitionStream)
        if not is_keyed and (new_key_selector is not None or version is not None):
            raise PlanError(f"connect_and_process at {caller_location()}: only a keyed stream can stay keyed.")
        ref = connect_broadcast(other, self, function, wait_for_broadcast, new_key_selector, version)
        return _keyed_result(self._builder, ref)


class ConfiguredStream(NonKeyedPartitionStream[T_co], WithSideOutputs):
    """A non-keyed stream, and the handle on the operator that emits it.

    Where nothing is configured, annotate it as ``NonKeyedPartitionStream``.
    (Flink ``ProcessConfigurableAndNonKeyedPartitionStream``.)
    """


class ConfiguredKeyedStream(KeyedPartitionStream[K, T_co], WithSideOutputs):
    """A keyed stream, and the handle on the operator that emits it.

    (Flink ``ProcessConfigurableAndKeyedPartitionStream``.)
    """


class ConfiguredGlobalStream(GlobalStream[T_co], WithDeadLetters):
    """A global stream, and the handle on the operator that emits it.

    (Flink ``ProcessConfigurableAndGlobalStream``.)
    """

    def side_output(self, tag: OutputTag[OUT]) -> ConfiguredGlobalStream[OUT]:
        """As ``ConfiguredStream.side_output``; the stream is global."""
        return ConfiguredGlobalStream(self._builder, side_output(self._node, tag))


class _TwoOutputs:
    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            of_streams = dict.fromkeys((one for one in dir(ConfiguredStream) if one[0] != "_"), _CHOOSE_OUTPUT)
            raise missing_method(self, type(self).__name__, name, of_streams)


class TwoStreams(_TwoOutputs, WithSideOutputs, Generic[O1_co, O2_co]):
    """Both outputs of a two-output function, and the handle on its operator."""

    @property
    def first(self) -> ConfiguredStream[O1_co]:
        """The first output."""
        return ConfiguredStream(self._builder, InputRef(self._node, 0))

    @property
    def second(self) -> ConfiguredStream[O2_co]:
        """The second output."""
        return ConfiguredStream(self._builder, InputRef(self._node, 1))


class TwoKeyedStreams(_TwoOutputs, WithSideOutputs, Generic[K, O1_co, O2_co]):
    """Both outputs of a two-output function that stay keyed, and the handle on its operator."""

    @property
    def first(self) -> ConfiguredKeyedStream[K, O1_co]:
        """The first output."""
        return ConfiguredKeyedStream(self._builder, preserving(InputRef(self._node, 0)))

    @property
    def second(self) -> ConfiguredKeyedStream[K, O2_co]:
        """The second output."""
        return ConfiguredKeyedStream(self._builder, preserving(InputRef(self._node, 1)))


class TwoGlobalStreams(_TwoOutputs, Generic[O1_co, O2_co]):
    """Both outputs of a two-output function on a global stream."""

    def __init__(self, builder: PlanBuilder, ref: InputRef) -> None:
        self._builder = builder
        self._node = ref.node

    @property
    def first(self) -> ConfiguredGlobalStream[O1_co]:
        """The first output."""
        return ConfiguredGlobalStream(self._builder, InputRef(self._node, 0))

    @property
    def second(self) -> ConfiguredGlobalStream[O2_co]:
        """The second output."""
        return ConfiguredGlobalStream(self._builder, InputRef(self._node, 1))

    def side_output(self, tag: OutputTag[OUT]) -> ConfiguredGlobalStream[OUT]:
        """As ``ConfiguredStream.side_output``; the stream is global."""
        return ConfiguredGlobalStream(self._builder, side_output(self._node, tag))


def _keyed_result(builder: PlanBuilder, ref: InputRef) -> ConfiguredStream[Any] | ConfiguredKeyedStream[Any, Any]:
    if ref.node.output_keys == (None,):
        return ConfiguredStream[Any](builder, ref)
    return ConfiguredKeyedStream[Any, Any](builder, preserving(ref))
