"""The sending side of an operator: which channel a record goes to, and the collector that functions see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dsv2.errors import InternalError, InvalidKeyError
from dsv2.graph import Edge, Exchange, KeySelector, Plan
from dsv2.runtime.contexts import PartitionState
from dsv2.runtime.failure import raise_user_failure, shorten
from dsv2.runtime.frames import MAX_FRAME_RECORDS, ChannelWriter, Emit
from dsv2.runtime.keys import subtask_of

__all__ = ("Collect", "EdgeOutput", "OutputCollector", "fan_out", "key_checked")

Collect: TypeAlias = Callable[[Any], None]

_CACHED_KEYS = 1 << 16


class OutputCollector:
    """What user functions see as ``Collector``: nothing but the function that takes a record."""

    __slots__ = ("collect",)

    def __init__(self, collect: Collect) -> None:
        self.collect = collect


class EdgeOutput:
    """One edge of the plan, seen from one upstream subtask: a writer for each channel it feeds."""

    def __init__(self, plan: Plan, edge: Edge, subtask: int) -> None:
        target = plan.operators[edge.target]
        upstream = plan.edges_into[edge.target]
        first_channel = sum(plan.channels_of(other) for other in upstream if other.input < edge.input)
        if edge.exchange is Exchange.FORWARD:
            self._writers = [ChannelWriter(target.id, subtask, first_channel)]
        else:
            channel = first_channel + subtask
            self._writers = [ChannelWriter(target.id, index, channel) for index in range(target.parallelism)]
        self.name = (plan.operators[edge.source].uid, edge.output, target.uid, edge.input)
        self._edge = edge
        self._target = target
        self._subtask = subtask
        self._first = self._next = subtask % len(self._writers)
        self._sent_before = 0  # records of the run that this one goes on from
        self._routes: dict[Any, Collect] = {}
        self.collect = self._collector()

    @property
    def records_sent(self) -> int:
        """Number of records collected so far (a broadcast record counts once)."""
        writers = self._writers[:1] if self._edge.exchange is Exchange.BROADCAST else self._writers
        return self._sent_before + sum(writer.count + len(writer.records) for writer in writers)

    def control(self, kind: int, identifier: str, value: int | bool) -> None:
        """Send a control element to every downstream subtask, behind the records so far."""
        for writer in self._writers:
            writer.control(kind, identifier, value)

    def flush(self, emit: Emit, at_least: int = 0) -> None:
        """Send every channel that holds ``at_least`` records (or controls) as a frame."""
        for writer in self._writers:
            if len(writer.records) >= at_least or len(writer.controls) >= MAX_FRAME_RECORDS:
                writer.flush(emit)
        if len(self._routes) > _CACHED_KEYS:
            self._routes.clear()

    def seek(self, position: int) -> None:
        """Let the round go on as it would after ``position`` records: for sources, which keep no state."""
        self._next = (self._first + position) % len(self._writers)

    def snapshot(self) -> tuple[int, int]:
        """Where the round goes on, and the number of records so far."""
        return self._next, self.records_sent

    def restore(self, state: tuple[int, int]) -> None:
        """Take over an earlier ``snapshot``."""
        self._next, self._sent_before = state

    def _collector(self) -> Collect:
        appends = [writer.append for writer in self._writers]
        if self._edge.exchange is Exchange.BROADCAST:
            return fan_out(appends)
        if self._edge.exchange is Exchange.HASH:
            if self._edge.key_selector is None:
                raise InternalError("A hash edge has a key selector.")
            return self._hash_collector(self._edge.key_selector, appends)
        if len(appends) == 1:
            return appends[0]
        return self._round_robin_collector(appends)

    def _hash_collector(self, select: KeySelector, appends: Sequence[Collect]) -> Collect:
        routes, max_parallelism = self._routes, self._target.max_parallelism

        def collect(record: Any) -> None:
            try:
                key = select(record)
                try:
                    append = routes.get(key)
                except TypeError as error:
                    raise InvalidKeyError(f"The key {shorten(key)} is not hashable: {error}.") from error
                if append is None:
                    append = routes[key] = appends[subtask_of(key, max_parallelism, len(appends))]
            except BaseException as error:
                # Else it would be laid on the function that emitted the record.
                raise_user_failure(self._target, self._subtask, "key selector", error, record=record)
            append(record)

        return collect

    def _round_robin_collector(self, appends: Sequence[Collect]) -> Collect:
        count = len(appends)

        def collect(record: Any) -> None:
            turn = self._next
            appends[turn](record)
            self._next = (turn + 1) % count

        return collect


def fan_out(collects: Sequence[Collect]) -> Collect:
    """One function that hands a record to all of ``collects``."""
    if len(collects) == 1:
        return collects[0]
    if len(collects) == 2:
        first, second = collects

        def collect_both(record: Any) -> None:
            first(record)
            second(record)

        return collect_both

    def collect_all(record: Any) -> None:
        for collect in collects:
            collect(record)

    return collect_all


def key_checked(collect: Collect, select: KeySelector, partition: PartitionState) -> Collect:
    """``collect`` for a key-preserving output: refuses records of another key than the current one."""

    def checked(record: Any) -> None:
        key, expected = select(record), partition.current_key
        if key != expected:
            raise InvalidKeyError(
                f"The output key must equal the input key when the stream stays keyed: record {shorten(record)} has "
                f"the key {shorten(key)}, the current key is {shorten(expected)}."
            )
        collect(record)

    return checked
