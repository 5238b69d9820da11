"""The conversions of a stream into one with another partitioning (FLIP-409)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from dsv2.callables import takes
from dsv2.errors import PlanError
from dsv2.graph import Exchange
from dsv2.graph.builder import caller_location
from dsv2.sinks import Sink
from dsv2.stream_arguments import require_version
from dsv2.stream_base import Stream
from dsv2.stream_sinks import ConfiguredSink

if TYPE_CHECKING:
    from dsv2.streams import BroadcastStream, GlobalStream, KeyedPartitionStream, NonKeyedPartitionStream

__all__ = ("ParallelStream", "PartitionableStream")

NK = TypeVar("NK", bound=Hashable)
T_co = TypeVar("T_co", covariant=True)


class PartitionableStream(Stream[T_co], Generic[T_co]):
    """A stream that can be repartitioned: any stream but a broadcast stream."""

    def key_by(
        self, key_selector: Callable[[T_co], NK], *, version: int | None = None
    ) -> KeyedPartitionStream[NK, T_co]:
        """Partition by key. Records with equal keys go to the same partition, in order per channel.

        Args:
            key_selector: Returns the key of a record, deterministically. A key is a str, bytes, int, bool, float, date,
                datetime, UUID, Decimal, Enum, or a tuple, NamedTuple or frozen dataclass of these.
            version: The version of the keys, at least 1. A restart from a checkpoint compares the versions, or the code
                of the selectors if none is set, and is refused if they differ. Increase it when the keys change. A
                selector without a version counts as version 1.

        Raises:
            PlanError: ``key_selector`` or ``version`` is invalid.
        """
        from dsv2.streams import KeyedPartitionStream

        if not takes(key_selector, 1):
            raise PlanError(f"key_by at {caller_location()} takes a callable (record) -> key, not {key_selector!r}.")
        require_version(version, (key_selector,))
        return KeyedPartitionStream(self._builder, self._through(Exchange.HASH, key_selector, version))

    def shuffle(self) -> NonKeyedPartitionStream[T_co]:
        """Distribute the records evenly over the subtasks of the next operator."""
        from dsv2.streams import NonKeyedPartitionStream

        return NonKeyedPartitionStream(self._builder, self._through(Exchange.REBALANCE))

    def broadcast(self) -> BroadcastStream[T_co]:
        """Send every record to every subtask of the function that this stream is connected to."""
        from dsv2.streams import BroadcastStream

        return BroadcastStream(self._builder, self._through(Exchange.BROADCAST))


class ParallelStream(PartitionableStream[T_co], Generic[T_co]):
    """A stream whose partitions are spread over subtasks."""

    def global_(self) -> GlobalStream[T_co]:
        """Send all records to one partition."""
        from dsv2.streams import GlobalStream

        return GlobalStream(self._builder, self._through(Exchange.GLOBAL))

    def to_sink(self, sink: Sink[T_co]) -> ConfiguredSink:
        """Write the records to ``sink``."""
        return self._to_sink(sink)
