"""The functions that turn records into changes of a table, and changes into those between micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from dsv2.base.type_variables import IN, OUT, T
from dsv2.extension.event_time import EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.functions import FlatMapFunction, OneInputStreamProcessFunction
from dsv2.model.change import Change, ChangeKind
from dsv2.model.context import Collector, NonPartitionedContext, PartitionedContext
from dsv2.state import StateDeclaration, ValueStateDeclaration
from dsv2.tables.versions import Versions, changes_between, counted, latest, present

NULL = ()
"""The partition of rows whose key is None."""


@dataclass(frozen=True)
class OfRow(Generic[IN, OUT]):
    """Calls a function with the row of a change."""

    function: Callable[[IN], OUT]

    def __call__(self, change: Change[IN]) -> OUT:
        return self.function(change.record)


@dataclass(frozen=True)
class RowKey(OfRow[IN, OUT]):
    """The partition of a change. The rows whose key is None are in one partition, as SQL groups them."""

    def __call__(self, change: Change[IN]) -> Any:
        key = self.function(change.record)
        return NULL if key is None else key


@dataclass(frozen=True)
class MapRow(Generic[IN, OUT]):
    """Replaces the row of a change by the result of a function."""

    function: Callable[[IN], OUT]

    def __call__(self, change: Change[IN]) -> Change[OUT]:
        return Change(change.kind, self.function(change.record))


@dataclass(frozen=True)
class Undeleted(Generic[T]):
    """Returns a record, or None if it is a deletion."""

    is_deletion: Callable[[T], bool]

    def __call__(self, record: T) -> T | None:
        return None if self.is_deletion(record) else record


class LatestRow(OneInputStreamProcessFunction[IN, Change[OUT]], Generic[IN, OUT]):
    """Emits the changes of a table with the latest record of each key.

    Args:
        row_of: Returns the row of a record, or None if the record deletes the row of its key.
    """

    dsv2_remember_keys = False

    def __init__(self, row_of: Callable[[IN], OUT | None] | None) -> None:
        self.function = row_of
        self._row = ValueStateDeclaration[Any, Any]("row", object)

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._row]

    def process_record(self, record: IN, output: Collector[Change[OUT]], ctx: PartitionedContext[Change[OUT]]) -> None:
        self.process_records([record], output, ctx)

    def process_records(
        self, records: Sequence[IN], output: Collector[Change[OUT]], ctx: PartitionedContext[Change[OUT]]
    ) -> None:
        state = ctx.state_manager.get_state(self._row)
        rows: list[Any] = [state.value(), records[-1] if self.function is None else self.function(records[-1])]
        before, after = ([] if row is None else [(row, 1)] for row in rows)
        state.update(rows[1])
        for change in changes_between(before, after):
            output.collect(change)


class Settling(OneInputStreamProcessFunction[Change[T], Change[T]], Generic[T]):
    """Emits the changes of a table by its primary key: those between before and after records that arrive together.

    Args:
        has_key: Whether there is a primary key, so that the table has at most one row of each partition. Otherwise it
            may have the same row several times.
    """

    dsv2_remember_keys = False

    def __init__(self, has_key: bool) -> None:
        self._visible = latest if has_key else present
        self._versions = ValueStateDeclaration[Any, Any]("versions", list[tuple[object, int]])

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._versions]

    def process_record(
        self, record: Change[T], output: Collector[Change[T]], ctx: PartitionedContext[Change[T]]
    ) -> None:
        self.process_records([record], output, ctx)

    def process_records(
        self, records: Sequence[Change[T]], output: Collector[Change[T]], ctx: PartitionedContext[Change[T]]
    ) -> None:
        state = ctx.state_manager.get_state(self._versions)
        before = state.value() or []
        after = counted(before, records)
        state.update(after or None)
        self._changed(self._visible(before), self._visible(after), output, ctx)

    def _changed(
        self, before: Versions, after: Versions, output: Collector[Change[T]], ctx: PartitionedContext[Change[T]]
    ) -> None:
        """Called with the rows that the table had and has."""
        for change in changes_between(before, after):
            output.collect(change)


class Suppression(Settling[T], Generic[T]):
    """Holds the changes of a key back, and then emits the one from the row before them to the latest one.

    Args:
        after: The time from the first change that is held back, in ms. None: until all input has ended.
        max_rows: The number of keys in a subtask whose changes are held back. Those of others are emitted at once.
    """

    keyed_fields = ("held",)

    def __init__(self, after: int | None, max_rows: int | None) -> None:
        super().__init__(has_key=True)
        self.after = after
        self.max_rows = max_rows
        self.held: dict[Any, bool] = {}
        """The keys whose changes are held back, if their number is limited."""
        self._before = ValueStateDeclaration[Any, Any]("before", list[tuple[object, int]])

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._versions, self._before]

    def dsv2_uses_processing_timers(self) -> bool:
        return self.after is not None

    def _changed(
        self, before: Versions, after: Versions, output: Collector[Change[T]], ctx: PartitionedContext[Change[T]]
    ) -> None:
        state = ctx.state_manager.get_state(self._before)
        if state.value() is not None:
            return
        if self.max_rows is not None:
            if len(self.held) >= self.max_rows:
                super()._changed(before, after, output, ctx)
                return
            self.held[ctx.state_manager.current_key] = True
        state.update(before)
        if self.after is not None:
            self._wait(self.after, ctx)

    def _wait(self, after: int, ctx: PartitionedContext[Change[T]]) -> None:
        timers = ctx.processing_time_manager
        timers.register_timer(timers.current_time() + after)

    def on_processing_timer(
        self, timestamp: int, output: Collector[Change[T]], ctx: PartitionedContext[Change[T]]
    ) -> None:
        self._release(output, ctx)

    def end_input(self, ctx: NonPartitionedContext[Change[T]]) -> None:
        if self.after is None:
            ctx.apply_to_all_partitions(self._release)

    def _release(self, output: Collector[Change[T]], ctx: PartitionedContext[Change[T]]) -> None:
        state = ctx.state_manager.get_state(self._before)
        before = state.value()
        if before is None:
            return
        state.clear()
        self.held.pop(ctx.state_manager.current_key, None)
        now = ctx.state_manager.get_state(self._versions).value() or []
        super()._changed(before, self._visible(now), output, ctx)


class EventTimeSuppression(Suppression[T], OneInputEventTimeStreamProcessFunction[Change[T], Change[T]], Generic[T]):
    """The same in event time, from the timestamp of the first change that is held back."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self._manager = manager

    def dsv2_uses_processing_timers(self) -> bool:
        return False

    def _wait(self, after: int, ctx: PartitionedContext[Change[T]]) -> None:
        start = self._manager.current_time() if ctx.timestamp is None else ctx.timestamp
        self._manager.register_timer(start + after)

    def on_event_timer(self, timestamp: int, output: Collector[Change[T]], ctx: PartitionedContext[Change[T]]) -> None:
        self._release(output, ctx)


class OfChanges(FlatMapFunction[Change[IN], OUT], Generic[IN, OUT]):
    """Selects from the changes of a table, in the subtasks that emit them, so that those of a key stay in order."""

    dsv2_inherits_parallelism = True

    @property
    def keeps_nothing(self) -> bool:
        return True


def upsert_of(change: Change[T]) -> Sequence[Change[T]]:
    """Return a change if it says that a row is there, or that there is none, rather than which one was."""
    return [] if change.kind is ChangeKind.UPDATE_BEFORE else [change]


def latest_of(change: Change[T]) -> Sequence[T]:
    """Return the row of a change that adds one."""
    return [change.record] if change.kind.adds else []
