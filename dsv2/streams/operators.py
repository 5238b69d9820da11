"""Operators that need no process function, such as map and union."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.type_variables import OUT, T_co
from dsv2.checks.arguments import check_whole_number, is_number, is_whole_number
from dsv2.errors import ConfigurationError, PlanError
from dsv2.functions import (
    DeduplicateFunction,
    FilterFunction,
    FlatMapFunction,
    LimitFunction,
    MapFunction,
    OneInput,
    SampleFunction,
    UnionFunction,
)
from dsv2.graph import Exchange, InputRef, OperatorKind
from dsv2.graph.builder import caller_location
from dsv2.state import StateTtl
from dsv2.streams.arguments import require_callable, require_version, ttl_of
from dsv2.streams.base import Stream
from dsv2.streams.expressions import ColumnOperators, GlobalColumnOperators
from dsv2.streams.outputs import configured, configured_global

if TYPE_CHECKING:
    from dsv2.streams.kinds import ConfiguredGlobalStream, ConfiguredStream, GlobalStream, NonKeyedPartitionStream


class RecordOperators(ColumnOperators[T_co], Generic[T_co]):
    """The operators on single records, as a base of the streams with parallel subtasks."""

    def map(self, function: Callable[[T_co], OUT]) -> ConfiguredStream[OUT]:
        """Emit ``function(record)`` for each record. The result is not keyed."""
        return configured(self._builder, _map(self, function))

    def filter(self, predicate: Callable[[T_co], bool]) -> ConfiguredStream[T_co]:
        """Emit the records for which ``predicate(record)`` is true. The result is not keyed."""
        return configured(self._builder, _filter(self, predicate))

    def flat_map(self, function: Callable[[T_co], Iterable[OUT]]) -> ConfiguredStream[OUT]:
        """Emit the elements of ``function(record)`` for each record. The result is not keyed."""
        return configured(self._builder, _flat_map(self, function))


class GlobalOperators(GlobalColumnOperators[T_co], Generic[T_co]):
    """The operators of a global stream, as its base. They run in one subtask, and their results are global."""

    def map(self, function: Callable[[T_co], OUT]) -> ConfiguredGlobalStream[OUT]:
        """Emit ``function(record)`` for each record."""
        return configured_global(self._builder, _map(self, function))

    def filter(self, predicate: Callable[[T_co], bool]) -> ConfiguredGlobalStream[T_co]:
        """Emit the records for which ``predicate(record)`` is true."""
        return configured_global(self._builder, _filter(self, predicate))

    def flat_map(self, function: Callable[[T_co], Iterable[OUT]]) -> ConfiguredGlobalStream[OUT]:
        """Emit the elements of ``function(record)`` for each record."""
        return configured_global(self._builder, _flat_map(self, function))

    def union(self, *others: GlobalStream[T_co]) -> ConfiguredGlobalStream[T_co]:
        """Emit the records of this stream and of ``others``, as ``NonKeyedPartitionStream.union`` does.

        Raises:
            PlanError: There is no other stream, or one is not global, or of another environment.
        """
        _check_united(self, others, GlobalOperators, "global streams", "Call global_ on each.")
        return configured_global(self._builder, _union(self, others))


class StreamOperators(RecordOperators[T_co], Generic[T_co]):
    """The operators, as a base of ``NonKeyedPartitionStream``."""

    def union(self, *others: NonKeyedPartitionStream[T_co]) -> ConfiguredStream[T_co]:
        """Emit the records of this stream and of ``others``, without an order between them.

        Watermarks are combined over all streams, as over the channels of one input: event time is the least of the
        streams. The result ends when all streams have ended. (Flink ``DataStream.union``.)

        Args:
            others: Streams of the same type. A stream that is given twice is emitted twice.

        Raises:
            PlanError: There is no other stream, or one is keyed, global, broadcast, or of another environment.
                ``execute`` raises it if an operator before the union declares an aligned watermark.
        """
        _check_united(self, others, StreamOperators, "streams without partitioning", "Call key_by afterwards.")
        return configured(self._builder, _union(self, others))

    def deduplicate(
        self, key: Callable[[T_co], Hashable], ttl: timedelta | StateTtl | None, *, version: int | None = None
    ) -> ConfiguredStream[T_co]:
        """Emit the first record of each key.

        A key is forgotten ``ttl`` after its first record; the next record with it is emitted again. (Flink SQL
        ``ROW_NUMBER() OVER (PARTITION BY key ORDER BY proctime) = 1`` with a state TTL.)

        Args:
            key: Returns the key of a record, as for ``key_by``.
            ttl: The time for which a key is remembered, in processing time; a ``StateTtl`` for other rules. None: for
                ever, so that the state grows with each new key.
            version: The version of the keys, as for ``key_by``.

        Raises:
            PlanError: ``key`` or ``version`` is invalid.
            ConfigurationError: ``ttl`` is invalid.
        """
        require_callable("deduplicate", key)
        require_version(version, (key,))
        function = DeduplicateFunction[T_co](ttl_of(ttl))
        return configured(
            self._builder, _added(self, self._through(Exchange.HASH, key, version), function, "Deduplicate")
        )

    def sample(self, fraction: float, *, seed: int = 0) -> ConfiguredStream[T_co]:
        """Emit a random part of the records. Each is emitted with the same probability, independently of the others.

        The choice depends on the seed, on the subtask, and on the position of the record in the subtask. A repeated
        micro-batch makes the same choice.

        Args:
            fraction: The probability: more than 0, at most 1.
            seed: Selects the sequence of random numbers.

        Raises:
            ConfigurationError: ``fraction`` or ``seed`` is invalid.
        """
        if not is_number(fraction) or not 0 < fraction <= 1:
            raise ConfigurationError(f"sample: fraction must be more than 0 and at most 1, not {fraction!r}.")
        if not is_whole_number(seed):
            raise ConfigurationError(f"sample: seed must be a whole number, not {seed!r}.")
        return configured(self._builder, _added(self, self._ref, SampleFunction[T_co](fraction, seed), "Sample"))

    def limit(self, count: int) -> ConfiguredGlobalStream[T_co]:
        """Emit ``count`` records, the first ones that arrive, in the life of the job.

        All records are sent to one subtask. The job continues, and its sources are read to their end.

        Args:
            count: At least 0.

        Raises:
            ConfigurationError: ``count`` is not a whole number of at least 0.
        """
        check_whole_number(count, "limit: count", at_least=0)
        one = self._through(Exchange.GLOBAL)
        ref = _added(self, one, LimitFunction[T_co](count), "Limit", non_parallel=True)
        return configured_global(self._builder, ref)


def _map(stream: Stream[T_co], function: Callable[[T_co], OUT]) -> InputRef:
    require_callable("map", function)
    return stream._add(OperatorKind.ONE_INPUT, MapFunction(function), "Map")


def _filter(stream: Stream[T_co], predicate: Callable[[T_co], bool]) -> InputRef:
    require_callable("filter", predicate)
    return stream._add(OperatorKind.ONE_INPUT, FilterFunction(predicate), "Filter")


def _flat_map(stream: Stream[T_co], function: Callable[[T_co], Iterable[OUT]]) -> InputRef:
    require_callable("flat_map", function)
    return stream._add(OperatorKind.ONE_INPUT, FlatMapFunction(function), "FlatMap")


def _union(stream: Stream[T_co], others: Sequence[Stream[T_co]]) -> InputRef:
    return stream._add(OperatorKind.UNION, UnionFunction[T_co](), "Union", *(other._ref for other in others))


def _check_united(
    stream: Stream[Any], others: Sequence[object], kind: type[Stream[Any]], wanted: str, advice: str
) -> None:
    where = f"union at {caller_location()}"
    if not others:
        raise PlanError(f"{where} takes at least one other stream.")
    for other in others:
        if not isinstance(other, kind):
            found = other._kind if isinstance(other, Stream) else type(other).__name__
            raise PlanError(f"{where} takes {wanted}, not a {found}. {advice}")
        if other._builder is not stream._builder:
            raise PlanError(f"{where}: the streams belong to different environments.")


def _added(
    stream: Stream[T_co], ref: InputRef, function: OneInput[T_co, T_co], name: str, *, non_parallel: bool = False
) -> InputRef:
    kind = OperatorKind.ONE_INPUT
    return InputRef(stream._builder.add(kind, function, name, (ref,), non_parallel=non_parallel))
