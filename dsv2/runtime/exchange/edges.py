"""The edges of a plan as seen by one upstream subtask: they choose the channel of each record."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from dsv2.base.columnar import ComputedKey, column_names
from dsv2.errors import InvalidKeyError
from dsv2.graph import Edge, Exchange, KeySelector, Operator, OperatorKind, Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import ControlLog
from dsv2.runtime.exchange.emitter import Emit, EmitStamped, Emitter
from dsv2.runtime.exchange.frames import MAX_FRAME_RECORDS, ChannelWriter, EmitFrame
from dsv2.runtime.exchange.position_tracing import CurrentPosition, TracedWriter
from dsv2.runtime.report.failure import raise_user_failure
from dsv2.runtime.state.key_groups import not_hashable, subtask_of
from dsv2.spi import AsyncFunction, ColumnarFunction, KeyedBatchFunction, ProcessFunction

EdgeName: TypeAlias = tuple[str, int | str, str, int]
"""The upstream operator and its output, the downstream operator and its input."""

_NO_KEY = None  # is never a key
_CACHED_KEYS = 1 << 18
_COLUMNAR_PIECE = 1 << 16  # records at a time, so that their columns stay in the CPU cache


def new_edge(plan: Plan, edge: Edge, subtask: int, origin: CurrentPosition | None = None) -> EdgeEmitter:
    """Create the emitter for ``edge`` in ``subtask`` of its upstream operator. ``origin``: If records are traced."""

    def writer(index: int, channel: int) -> ChannelWriter:
        if origin is None or target.kind is OperatorKind.SINK:
            return ChannelWriter(target.id, index, channel, log)
        return TracedWriter(target.id, index, channel, origin, log)

    log = ControlLog(edge.last_only)
    target = plan.operators[edge.target]
    upstream = plan.edges_into[edge.target]
    first_channel = sum(plan.channels_of(other) for other in upstream if other.input < edge.input)
    source = plan.operators[edge.source]
    name = source.uid, source.output_name(edge.output), target.uid, edge.input
    if edge.exchange is Exchange.FORWARD:
        return SingleEdge(name, subtask, [writer(subtask, first_channel)])
    channel = first_channel + subtask
    writers = [writer(index, channel) for index in range(target.parallelism)]
    if edge.exchange is Exchange.BROADCAST:
        return BroadcastEdge(name, subtask, writers)
    if edge.exchange is Exchange.HASH and (len(writers) > 1 or plan.per_key or not checks_keys(target)):
        kind = KeyWatermarkEdge if plan.per_key else HashEdge
        return kind(name, subtask, writers, plan, edge, origin)
    return SingleEdge(name, subtask, writers) if len(writers) == 1 else RebalanceEdge(name, subtask, writers)


def checks_keys(target: Operator) -> bool:
    """Return whether the subtask of ``target`` selects and checks the key of each record, so that its edge need not."""
    function = target.body
    return isinstance(function, ProcessFunction) and not isinstance(
        function, AsyncFunction | ColumnarFunction | KeyedBatchFunction
    )


class EdgeEmitter(Emitter):
    """One edge, with a writer for each of its channels."""

    __slots__ = ("_first", "_log", "_next", "_sent_before", "_writers", "name")

    def __init__(
        self,
        name: EdgeName,
        subtask: int,
        writers: Sequence[ChannelWriter],
        emit: Emit,
        emit_stamped: EmitStamped,
    ) -> None:
        super().__init__(emit, emit_stamped)
        self.name = name
        self._writers = writers
        self._log = writers[0].log
        self._first = self._next = subtask % len(writers)
        self._sent_before = 0  # records sent before the snapshot that was restored

    @property
    def records_sent(self) -> int:
        return self._sent_before + sum(writer.count + len(writer.records) for writer in self._writers)

    def control(self, kind: int, identifier: str, value: Any) -> None:
        log = self._log
        holding = [writer for writer in self._writers if writer.records or writer.columns.count or writer.controls]
        for writer in holding:
            writer.control(kind, identifier, value)
        log.add(kind, identifier, value)
        for writer in holding:
            writer.sent = len(log)

    def flush(self, emit: EmitFrame, at_least: int = 0) -> None:
        """Emit the complete frames, and the buffered records of each channel that has ``at_least`` of them."""
        log = self._log
        if len(log) >= MAX_FRAME_RECORDS:
            at_least = 0
        for writer in self._writers:
            if len(writer.records) >= at_least:
                writer.flush(emit)
            elif writer.whole:
                writer.flush_whole(emit)
        if at_least == 0 and len(log):
            log.clear()
            for writer in self._writers:
                writer.sent = 0

    def seek(self, position: int) -> None:
        """Continue round-robin as after ``position`` records. For sources, which have no state."""
        self._next = (self._first + position) % len(self._writers)

    def snapshot(self) -> tuple[int, int]:
        """Return the next channel of the rotation and the number of records sent."""
        return self._next, self.records_sent

    def restore(self, state: tuple[int, int]) -> None:
        """Restore a ``snapshot``."""
        self._next, self._sent_before = state

    def succeed(self, old: Sequence[tuple[int, int]], subtask: int) -> None:
        """Continue the old upstream subtasks with these snapshots, which may be another number, as ``subtask``.

        The number of records sent stays the same in total. The rotation begins again if its position no longer exists.
        """
        own, _ = old[subtask] if subtask < len(old) else (self._first, 0)
        self._next = own if own < len(self._writers) else self._first
        self._sent_before = sum(sent for _, sent in old) if subtask == 0 else 0


class SingleEdge(EdgeEmitter):
    """Sends all records to one channel."""

    __slots__ = ()

    def __init__(self, name: EdgeName, subtask: int, writers: Sequence[ChannelWriter]) -> None:
        (writer,) = writers
        super().__init__(name, subtask, writers, writer.append, writer.append_stamped)

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        self._writers[0].extend(batch)


class BroadcastEdge(EdgeEmitter):
    """Sends every record to every channel."""

    __slots__ = ()

    def __init__(self, name: EdgeName, subtask: int, writers: Sequence[ChannelWriter]) -> None:
        appends = [writer.append for writer in writers]
        stamped_appends = [writer.append_stamped for writer in writers]

        def emit(record: Any) -> None:
            for append in appends:
                append(record)

        def emit_stamped(record: Any, timestamp: int | None) -> None:
            for append in stamped_appends:
                append(record, timestamp)

        super().__init__(name, subtask, writers, emit, emit_stamped)

    @property
    def records_sent(self) -> int:
        first = self._writers[0]
        return self._sent_before + first.count + len(first.records)

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        for writer in self._writers:
            writer.extend(batch)


class RebalanceEdge(EdgeEmitter):
    """Sends records to the channels round-robin."""

    __slots__ = ()

    def __init__(self, name: EdgeName, subtask: int, writers: Sequence[ChannelWriter]) -> None:
        appends = [writer.append for writer in writers]
        stamped_appends = [writer.append_stamped for writer in writers]
        count = len(writers)

        def emit(record: Any) -> None:
            turn = self._next
            appends[turn](record)
            self._next = (turn + 1) % count

        def emit_stamped(record: Any, timestamp: int | None) -> None:
            turn = self._next
            stamped_appends[turn](record, timestamp)
            self._next = (turn + 1) % count

        super().__init__(name, subtask, writers, emit, emit_stamped)

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        count, first = len(self._writers), self._next
        for turn in range(count):
            self._writers[(first + turn) % count].extend(batch.slice(turn, None, count))
        self._next = (first + len(batch)) % count


class HashEdge(EdgeEmitter):
    """Sends each record to the channel of its key."""

    __slots__ = (
        "_columns",
        "_computed",
        "_origin",
        "_pair_routes",
        "_per_key",
        "_routes",
        "_select",
        "_stamped_routes",
        "_subtask",
        "_target",
        "_tolerates",
    )

    def __init__(
        self,
        name: EdgeName,
        subtask: int,
        writers: Sequence[ChannelWriter],
        plan: Plan,
        edge: Edge,
        origin: CurrentPosition | None,
    ) -> None:
        assert edge.key_selector is not None
        self._target = plan.operators[edge.target]
        self._tolerates = self._target.error_policy is not None
        self._select: KeySelector = _tolerant(edge.key_selector) if self._tolerates else edge.key_selector
        self._columns = column_names(edge.key_selector)
        self._computed = self._columns if isinstance(self._columns, ComputedKey) else None
        self._subtask = subtask
        self._origin = origin
        self._per_key = plan.per_key
        self._routes: dict[Any, Emit] = {}
        self._stamped_routes: dict[Any, EmitStamped] = {}
        self._pair_routes: dict[Any, tuple[Emit, Emit]] = {}
        super().__init__(name, subtask, writers, self._new_emit(), self._new_emit_stamped())

    def flush(self, emit: EmitFrame, at_least: int = 0) -> None:
        super().flush(emit, at_least)
        for routes in (self._routes, self._stamped_routes, self._pair_routes):
            if len(routes) > _CACHED_KEYS:
                routes.clear()

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        if batch.is_columnar:
            for piece in batch.pieces(_COLUMNAR_PIECE):
                self._emit_columns(piece, self._columns)
            return
        if self._computed is not None:
            self._computed.prepare(batch.records)
        if batch.timestamps is None:
            self._emit_rows(batch.records)
        else:
            self._emit_stamped_rows(batch)

    def _emit_columns(self, batch: RecordBatch[Any], names: Sequence[str] | None) -> None:
        parts = None
        if names is not None:
            with contextlib.suppress(InvalidKeyError):  # the row path reports it with its record
                parts = batch.split(names, self._target.max_parallelism, len(self._writers))
        if parts is None:
            self.emit_batch(RecordBatch(batch.rows(), batch.timestamps))
            return
        for subtask, part in parts:
            self._writers[subtask].extend(part)

    def _emit_rows(self, records: Sequence[Any]) -> None:
        select, routes = self._select, self._routes
        record: Any = None
        try:
            for record in records:
                key = select(record)
                try:
                    append = routes.get(key)
                except TypeError as error:
                    raise not_hashable(key, error) from error
                if append is None:
                    append = routes[key] = self._writer_of(key).append
                append(record)
        except BaseException as error:
            self._failed_to_route(record, error)

    def _emit_stamped_rows(self, batch: RecordBatch[Any]) -> None:
        select, routes = self._select, self._pair_routes
        for writer in self._writers:
            writer.pad()
        record: Any = None
        try:
            for record, timestamp in batch.pairs():
                key = select(record)
                try:
                    appends = routes.get(key)
                except TypeError as error:
                    raise not_hashable(key, error) from error
                if appends is None:
                    appends = routes[key] = self._writer_of(key).appends
                appends[0](record)
                appends[1](timestamp)
        except BaseException as error:
            self._failed_to_route(record, error)

    def _new_emit(self) -> Emit:
        select, routes, failed = self._select, self._routes, self._failed_to_route

        def emit(record: Any) -> None:
            try:
                key = select(record)
                try:
                    append = routes.get(key)
                except TypeError as error:
                    raise not_hashable(key, error) from error
                if append is None:
                    append = routes[key] = self._writer_of(key).append
            except BaseException as error:
                failed(record, error)
            append(record)

        return emit

    def _new_emit_stamped(self) -> EmitStamped:
        select, routes, failed = self._select, self._stamped_routes, self._failed_to_route

        def emit_stamped(record: Any, timestamp: int | None) -> None:
            try:
                key = select(record)
                try:
                    append = routes.get(key)
                except TypeError as error:
                    raise not_hashable(key, error) from error
                if append is None:
                    append = routes[key] = self._writer_of(key).append_stamped
            except BaseException as error:
                failed(record, error)
            append(record, timestamp)

        return emit_stamped

    def _writer_of(self, key: Any) -> ChannelWriter:
        try:
            return self._writers[subtask_of(key, self._target.max_parallelism, len(self._writers))]
        except InvalidKeyError:
            if not self._tolerates:
                raise
            return self._writers[self._first]

    def _failed_to_route(self, record: Any, error: BaseException) -> NoReturn:
        # Otherwise the failure would be attributed to the function that emitted the record.
        position = None if self._origin is None else self._origin.position
        raise_user_failure(self._target, self._subtask, "key selector", error, record=record, position=position)


class KeyWatermarkEdge(HashEdge):
    """Also sends each watermark about a key to the channel of the key."""

    __slots__ = ()

    def control(self, kind: int, identifier: str, value: Any) -> None:
        if identifier in self._per_key:
            key, _ = value
            self._writer_of(key).control(kind, identifier, value)
        else:
            super().control(kind, identifier, value)


def _tolerant(select: KeySelector) -> KeySelector:
    """A selector for an operator with an error policy: its subtask calls ``select`` again, where the policy applies."""

    def tolerant(record: Any) -> Any:
        try:
            key = select(record)
            hash(key)
        except Exception:
            return _NO_KEY
        return key

    return tolerant
