"""The streams of an auction, and sources that generate their events as columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa

from dsv2 import ExecutionEnvironment, NonKeyedPartitionStream
from dsv2.arrow import records_of
from dsv2.extension.event_time import EventTimeExtension
from dsv2.model import RecordBatch
from dsv2.sources import BaseSource, DataclassSerializer, Portion, RoundRobinSplitAssigner, SplitSource
from examples.nexmark.events import PER_ROUND, Auction, Bid, Numbers, Person, auctions, bids, people

__all__ = ("AuctionSource", "BidSource", "EventSource", "Nexmark", "NexmarkStreams", "PersonSource")

EventT = TypeVar("EventT", Person, Auction, Bid)
_ROUNDS_AT_ONCE = 1_000


@dataclass(frozen=True)
class Rounds:
    """The rounds ``number``, ``number + splits``, ... from the one at ``position`` to before ``stop``."""

    number: int
    splits: int
    position: int
    stop: int

    @property
    def split_id(self) -> str:
        return str(self.number)


class EventSource(SplitSource[EventT, Rounds], Generic[EventT]):
    """Generates the events of one class, as columns.

    All sources of a job read the same rounds in the same micro-batch, if their limits are equal.

    Args:
        events: The number of events of all classes.
        events_per_second: The rate in event time.
        splits: The number of parts that are read side by side.
        events_per_batch: The maximum number of events of all classes in a micro-batch. None: no limit.
    """

    bounded = True
    split_serializer = DataclassSerializer(Rounds)
    assigner = RoundRobinSplitAssigner()

    kind: type[EventT]

    def __init__(self, events: int, events_per_second: int, splits: int, events_per_batch: int | None) -> None:
        self._rounds = events // PER_ROUND
        self.events_per_second = events_per_second
        self._splits = splits
        self.limit_per_batch = None if events_per_batch is None else max(splits, events_per_batch // PER_ROUND)

    @abstractmethod
    def generate(self, rounds: Numbers, /) -> pa.Table:
        """Generate the events of some rounds."""

    def discover(self) -> list[Rounds]:
        counts = [len(range(number, self._rounds, self._splits)) for number in range(self._splits)]
        return [Rounds(number, self._splits, 0, count) for number, count in enumerate(counts)]

    def advance(self, split: Rounds, limit: int | None, /) -> Portion[Rounds]:
        position = split.stop if limit is None else min(split.stop, split.position + limit)
        return Portion(replace(split, position=position), size=position - split.position, last=position == split.stop)

    def read(self, start: Rounds, stop: Rounds, /) -> Iterator[RecordBatch[EventT]]:
        for first in range(start.position, stop.position, _ROUNDS_AT_ONCE):
            positions = np.arange(first, min(first + _ROUNDS_AT_ONCE, stop.position))
            table = self.generate(positions * start.splits + start.number)
            yield RecordBatch(records_of(table, self.kind))


class PersonSource(EventSource[Person]):
    """The persons."""

    kind = Person

    def generate(self, rounds: Numbers, /) -> pa.Table:
        return people(rounds, self.events_per_second)


class AuctionSource(EventSource[Auction]):
    """The auctions."""

    kind = Auction

    def generate(self, rounds: Numbers, /) -> pa.Table:
        return auctions(rounds, self.events_per_second)


class BidSource(EventSource[Bid]):
    """The bids."""

    kind = Bid

    def generate(self, rounds: Numbers, /) -> pa.Table:
        return bids(rounds, self.events_per_second)


class NexmarkStreams(ABC):
    """The three streams, with timestamps and watermarks.

    Args:
        env: The environment.
        splits: The number of parts of a stream that are read side by side. With 1, events keep their order.
    """

    def __init__(self, env: ExecutionEnvironment, splits: int = 1) -> None:
        self.env = env
        self.splits = splits

    @abstractmethod
    def source_of(self, kind: type[EventT], /) -> BaseSource[EventT]:
        """Return the source of the events of a class."""

    @cached_property
    def people(self) -> NonKeyedPartitionStream[Person]:
        """The persons."""
        return self._stream(Person)

    @cached_property
    def auctions(self) -> NonKeyedPartitionStream[Auction]:
        """The auctions."""
        return self._stream(Auction)

    @cached_property
    def bids(self) -> NonKeyedPartitionStream[Bid]:
        """The bids."""
        return self._stream(Bid)

    def _stream(self, kind: type[EventT]) -> NonKeyedPartitionStream[EventT]:
        times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
        strategy = times.with_max_out_of_order_time(timedelta(seconds=4)).build_as_watermark_strategy()
        events = self.env.from_source(self.source_of(kind), f"{kind.__name__}Source", watermarks=strategy)
        return events.with_parallelism(self.splits)


class Nexmark(NexmarkStreams):
    """The streams of generated events.

    Args:
        env: The environment.
        events: The number of events of all classes.
        events_per_second: The rate in event time. Default: 100.
        splits: As for ``NexmarkStreams``. Default: 1.
        events_per_batch: The maximum number of events in a micro-batch. None (default): no limit.
    """

    _sources: ClassVar[dict[type, Any]] = {Person: PersonSource, Auction: AuctionSource, Bid: BidSource}

    def __init__(
        self,
        env: ExecutionEnvironment,
        events: int,
        *,
        events_per_second: int = 100,
        splits: int = 1,
        events_per_batch: int | None = None,
    ) -> None:
        super().__init__(env, splits)
        self._events = events
        self._rate = events_per_second
        self._limit = events_per_batch

    def source_of(self, kind: type[EventT], /) -> BaseSource[EventT]:
        source: EventSource[EventT] = self._sources[kind](self._events, self._rate, self.splits, self._limit)
        return source
