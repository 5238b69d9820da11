"""The sending side of an operator: which channel a record goes to, and the collector that functions see."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from dsv2.columnar import Columnar, column_names
from dsv2.errors import ContractError, InternalError, InvalidKeyError
from dsv2.functions import CollectAll, check_timestamp
from dsv2.graph import Edge, Exchange, KeySelector, Plan
from dsv2.runtime.exchange.current_timestamp import CurrentTimestamp
from dsv2.runtime.exchange.frames import MAX_FRAME_RECORDS, ChannelWriter, EmitFrame, Timestamps
from dsv2.runtime.report.failure import raise_user_failure
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.partition import PartitionState

__all__ = (
    "Collect",
    "CollectStamped",
    "EdgeOutput",
    "Output",
    "OutputCollector",
    "at_end_only",
    "fan_out",
    "fan_out_stamped",
    "key_checked",
    "key_checked_stamped",
    "one_by_one",
)

Collect: TypeAlias = Callable[[Any], None]
CollectStamped: TypeAlias = Callable[[Any, int | None], None]
"""Takes a record and its timestamp in ms."""

_CACHED_KEYS = 1 << 18
_SPLIT = 1 << 16  # columns at a time: what a processor has near at hand


@dataclass(frozen=True, slots=True)
class Output:
    """One output of an operator: a collector for records, and a way for control elements, to all its consumers."""

    collect: Collect
    collect_stamped: CollectStamped
    collect_all: CollectAll
    control: Callable[[int, str, int | bool], None]
    records_sent: Callable[[], int]


class OutputCollector:
    """What user functions see as ``Collector``: nothing but the functions that take a record.

    ``collect`` is one of two, which the operator sets: most records have no timestamp, and cost nothing for it.
    """

    __slots__ = (
        "_collect_inheriting",
        "_collect_plainly",
        "collect",
        "collect_all",
        "collect_and_overwrite_timestamp",
        "collect_batch",
        "collect_stamped",
    )

    def __init__(
        self,
        collect: Collect,
        collect_stamped: CollectStamped,
        moment: CurrentTimestamp,
        collect_all: CollectAll | None,
    ) -> None:
        """``collect_all``: None if each record has to be looked at."""

        def inherit(record: Any) -> None:
            collect_stamped(record, moment.timestamp)

        def overwrite(record: Any, timestamp: int) -> None:
            check_timestamp(timestamp)
            collect_stamped(record, timestamp)

        self._collect_plainly = collect
        self._collect_inheriting = inherit
        self.collect = collect
        self.collect_and_overwrite_timestamp = overwrite
        self.collect_stamped = collect_stamped  # for extensions, as the next one
        self.collect_all = collect_all
        self.collect_batch: Callable[..., None]  # of functions that have it

    def inherit_timestamps(self, inherit: bool) -> None:
        """Whether ``collect`` gives records the timestamp of the moment, or none."""
        self.collect = self._collect_inheriting if inherit else self._collect_plainly


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
        self._stamped_routes: dict[Any, CollectStamped] = {}
        self.collect, self.collect_stamped = self._collectors()
        self._pair_routes: dict[Any, tuple[Collect, Collect]] = {}

    @property
    def records_sent(self) -> int:
        """Number of records collected so far (a broadcast record counts once)."""
        writers = self._writers[:1] if self._edge.exchange is Exchange.BROADCAST else self._writers
        return self._sent_before + sum(writer.count + len(writer.records) for writer in writers)

    def control(self, kind: int, identifier: str, value: int | bool) -> None:
        """Send a control element to every downstream subtask, behind the records so far."""
        for writer in self._writers:
            writer.control(kind, identifier, value)

    def flush(self, emit: EmitFrame, at_least: int = 0) -> None:
        """Send the frames that are done, and what a channel holds besides if that is ``at_least`` records."""
        for writer in self._writers:
            if len(writer.records) >= at_least or len(writer.controls) >= MAX_FRAME_RECORDS:
                writer.flush(emit)
            elif writer.whole:
                writer.flush_whole(emit)
        for routes in (self._routes, self._stamped_routes, self._pair_routes):
            if len(routes) > _CACHED_KEYS:
                routes.clear()

    def collect_all(self, records: Sequence[Any], timestamps: Timestamps) -> None:
        """A run of records, in the order of ``records``: as if ``collect`` took each, but faster."""
        if self._edge.exchange is Exchange.HASH and isinstance(records, Columnar):
            self._hash_columns(records, timestamps)
        elif self._edge.exchange is Exchange.HASH:
            if timestamps is None:
                self._hash_all(records)
            else:
                self._hash_all_stamped(records, timestamps)
        elif self._edge.exchange is Exchange.BROADCAST or len(self._writers) == 1:
            for writer in self._writers:
                writer.extend(records, timestamps)
        else:
            count, first = len(self._writers), self._next
            for turn in range(count):
                own = slice(turn, None, count)
                stamps = None if timestamps is None else timestamps[own]
                self._writers[(first + turn) % count].extend(records[own], stamps)
            self._next = (first + len(records)) % count

    def _hash_columns(self, records: Columnar[Any], timestamps: Timestamps) -> None:
        names = column_names(self._selector())
        for start in range(0, len(records), _SPLIT):
            piece = slice(start, start + _SPLIT)
            self._hash_piece(records[piece], None if timestamps is None else timestamps[piece], names)

    def _hash_piece(self, records: Columnar[Any], timestamps: Timestamps, names: tuple[str, ...] | None) -> None:
        parts = None
        if names is not None:
            with contextlib.suppress(InvalidKeyError):  # which the way of single records lays to one of them
                parts = records.split(names, self._target.max_parallelism, len(self._writers), timestamps)
        if parts is None:
            self.collect_all(records.rows(), timestamps)
            return
        for subtask, part, stamps in parts:
            self._writers[subtask].extend(part, stamps)

    def _hash_all(self, records: Sequence[Any]) -> None:
        select, routes = self._selector(), self._routes
        record: Any = None
        try:
            for record in records:
                key = select(record)
                try:
                    append = routes.get(key)
                except TypeError as error:
                    raise _not_hashable(key, error) from error
                if append is None:
                    append = routes[key] = self._writer_of(key).append
                append(record)
        except BaseException as error:
            self._failed_to_route(record, error)

    def _hash_all_stamped(self, records: Sequence[Any], timestamps: Sequence[int | None]) -> None:
        select, routes = self._selector(), self._pair_routes
        for writer in self._writers:
            writer.pad()
        record: Any = None
        try:
            for record, timestamp in zip(records, timestamps, strict=True):
                key = select(record)
                try:
                    appends = routes.get(key)
                except TypeError as error:
                    raise _not_hashable(key, error) from error
                if appends is None:
                    appends = routes[key] = self._writer_of(key).appends
                appends[0](record)
                appends[1](timestamp)
        except BaseException as error:
            self._failed_to_route(record, error)

    def _selector(self) -> KeySelector:
        if self._edge.key_selector is None:
            raise InternalError("A hash edge has a key selector.")
        return self._edge.key_selector

    def seek(self, position: int) -> None:
        """Let the round go on as it would after ``position`` records: for sources, which keep no state."""
        self._next = (self._first + position) % len(self._writers)

    def snapshot(self) -> tuple[int, int]:
        """Where the round goes on, and the number of records so far."""
        return self._next, self.records_sent

    def restore(self, state: tuple[int, int]) -> None:
        """Take over an earlier ``snapshot``."""
        self._next, self._sent_before = state

    def _collectors(self) -> tuple[Collect, CollectStamped]:
        writers = self._writers
        if self._edge.exchange is Exchange.BROADCAST:
            every = [writer.append_stamped for writer in writers]
            return fan_out([writer.append for writer in writers]), fan_out_stamped(every)
        if self._edge.exchange is Exchange.HASH:
            return self._hash_collectors(self._selector())
        if len(writers) == 1:
            return writers[0].append, writers[0].append_stamped
        return self._round_robin_collectors()

    def _hash_collectors(self, select: KeySelector) -> tuple[Collect, CollectStamped]:
        routes, stamped_routes = self._routes, self._stamped_routes
        failed = self._failed_to_route

        def collect(record: Any) -> None:
            try:
                key = select(record)
                try:
                    append = routes.get(key)
                except TypeError as error:
                    raise _not_hashable(key, error) from error
                if append is None:
                    append = routes[key] = self._writer_of(key).append
            except BaseException as error:
                failed(record, error)
            append(record)

        def collect_stamped(record: Any, timestamp: int | None) -> None:
            try:
                key = select(record)
                try:
                    append = stamped_routes.get(key)
                except TypeError as error:
                    raise _not_hashable(key, error) from error
                if append is None:
                    append = stamped_routes[key] = self._writer_of(key).append_stamped
            except BaseException as error:
                failed(record, error)
            append(record, timestamp)

        return collect, collect_stamped

    def _writer_of(self, key: Any) -> ChannelWriter:
        return self._writers[subtask_of(key, self._target.max_parallelism, len(self._writers))]

    def _failed_to_route(self, record: Any, error: BaseException) -> NoReturn:
        # Else it would be laid on the function that emitted the record.
        raise_user_failure(self._target, self._subtask, "key selector", error, record=record)

    def _round_robin_collectors(self) -> tuple[Collect, CollectStamped]:
        appends = [writer.append for writer in self._writers]
        stamped_appends = [writer.append_stamped for writer in self._writers]
        count = len(appends)

        def collect(record: Any) -> None:
            turn = self._next
            appends[turn](record)
            self._next = (turn + 1) % count

        def collect_stamped(record: Any, timestamp: int | None) -> None:
            turn = self._next
            stamped_appends[turn](record, timestamp)
            self._next = (turn + 1) % count

        return collect, collect_stamped


def _not_hashable(key: Any, error: TypeError) -> InvalidKeyError:
    return InvalidKeyError(f"The key {shorten(key)} is not hashable: {error}.")


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


def fan_out_stamped(collects: Sequence[CollectStamped]) -> CollectStamped:
    """``fan_out`` for records with timestamps."""
    if len(collects) == 1:
        return collects[0]

    def collect_all(record: Any, timestamp: int | None) -> None:
        for collect in collects:
            collect(record, timestamp)

    return collect_all


def one_by_one(collect: Collect, collect_stamped: CollectStamped) -> CollectAll:
    """A run of records by way of the functions that take one."""

    def collect_all(records: Sequence[Any], timestamps: Timestamps) -> None:
        if timestamps is None:
            for record in records:
                collect(record)
        else:
            for record, timestamp in zip(records, timestamps, strict=True):
                collect_stamped(record, timestamp)

    return collect_all


def key_checked(collect: Collect, select: KeySelector, partition: PartitionState) -> Collect:
    """``collect`` for a key-preserving output: refuses records of another key than the current one."""

    def checked(record: Any) -> None:
        _check_key(record, select(record), partition.current_key)
        collect(record)

    return checked


def key_checked_stamped(collect: CollectStamped, select: KeySelector, partition: PartitionState) -> CollectStamped:
    """``key_checked`` for records with timestamps."""

    def checked(record: Any, timestamp: int | None) -> None:
        _check_key(record, select(record), partition.current_key)
        collect(record, timestamp)

    return checked


def at_end_only(
    collect: Collect, collect_stamped: CollectStamped, has_ended: Callable[[], bool]
) -> tuple[Collect, CollectStamped]:
    """Both for a function that has promised to emit nothing before the end of its input."""

    def collect_at_end(record: Any) -> None:
        _check_ended(record, has_ended)
        collect(record)

    def collect_stamped_at_end(record: Any, timestamp: int | None) -> None:
        _check_ended(record, has_ended)
        collect_stamped(record, timestamp)

    return collect_at_end, collect_stamped_at_end


def _check_ended(record: Any, has_ended: Callable[[], bool]) -> None:
    if not has_ended():
        raise ContractError(
            f"The function is marked with no_output_until_end_of_input and emits {shorten(record)} before that. "
            f"Emit in end_input, or take the mark away."
        )


def _check_key(record: Any, key: Any, expected: Any) -> None:
    if key != expected:
        raise InvalidKeyError(
            f"The output key must equal the input key when the stream stays keyed: record {shorten(record)} has "
            f"the key {shorten(key)}, the current key is {shorten(expected)}."
        )
