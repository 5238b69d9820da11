"""The keyed states and timers of a function on tables in one subtask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from dsv2.arrow.keyed.expiry import Expiry
from dsv2.arrow.keyed.keys import FoundKeys, KeyArray, KeyFinder, Keys, encoded_keys
from dsv2.arrow.keyed.lists import ArrowKeyedLists, Lists, type_of_lists
from dsv2.arrow.keyed.snapshots import StoredTable, stored_columns, type_name
from dsv2.arrow.keyed.state import ArrowKeyedState
from dsv2.arrow.keyed.table import KeyedTable, TableState
from dsv2.arrow.keyed.timers import TIMES, ArrowTimers
from dsv2.arrow.schema import rows_to_table, schema_of
from dsv2.errors import ContractError, IncompatibleCheckpointError, StateDeclarationError, UndeclaredStateError
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.runtime.state.deadlines import Deadlines
from dsv2.runtime.state.keyed_store import Domain
from dsv2.runtime.state.migrations import FailedMigration, Migrations, split_name, stored_name
from dsv2.runtime.state.page_store import PageStore
from dsv2.runtime.state.rows import TIMERS, RowKind
from dsv2.spi import KeyedColumns
from dsv2.state import (
    ListStateDeclaration,
    RedistributionMode,
    StateDeclaration,
    TtlTimeCharacteristic,
    ValueStateDeclaration,
)
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN, EventTimeOfInputs

Declaration: TypeAlias = ValueStateDeclaration[Any, Any] | ListStateDeclaration[Any]
"""A state that can have columns."""

_AT_ONCE = 10_000
_NONE = TableState("", 0, 0, {}, None)
_EVENT, _PROCESSING = "event", "processing"
_EVENT_EXPIRY, _EXPIRY = "event-expiry", "expiry"


def check_column_states(declarations: Iterable[StateDeclaration], owner: str) -> None:
    """Check the states that a function on tables declares.

    Raises:
        StateDeclarationError: A state of keys is not a value state.
        SchemaError: The class of its values has no columns.
    """
    for declaration in declarations:
        if declaration.redistribution_mode is not RedistributionMode.NONE:
            continue
        if not isinstance(declaration, ValueStateDeclaration | ListStateDeclaration):
            raise StateDeclarationError(
                f"{owner}: {declaration} cannot have columns. Declare a value state or a list state whose type is a "
                f"NamedTuple class or a dataclass. Its fields are the columns, and may be lists."
            )
        schema_of(_kind(declaration))  # it refuses what is not a class


class ArrowKeyedColumns(KeyedColumns):
    """Creates the tables of all states, and stores them."""

    def __init__(
        self, declarations: Sequence[StateDeclaration], environment: ColumnsEnvironment, fail: FailedMigration
    ) -> None:
        self._environment = environment
        self._codec, self._owner = environment.codec, environment.owner
        self._finder = KeyFinder(
            environment.codec,
            environment.subtask,
            environment.parallelism,
            environment.max_parallelism,
            environment.keyed,
            environment.key_names,
            environment.owner,
        )
        self._declared = {
            one.name: one
            for one in declarations
            if isinstance(one, ValueStateDeclaration | ListStateDeclaration)
            and one.redistribution_mode is RedistributionMode.NONE
        }
        self._migrations = Migrations(self._declared.values(), fail)
        self._layouts: dict[str, StoredTable] = {}
        self._tables: dict[str, KeyedTable] = {}
        self._expiring: list[Callable[[], None]] = []
        self._lists: dict[str, Lists] = {}
        self._states = {name: self._new_state(one) for name, one in self._declared.items()}
        self._event_timers = self._new_timers(_EVENT, lambda: environment.event_time.current)
        self._processing_timers = self._new_timers(_PROCESSING, lambda: environment.time.now_ms)
        self._undeclared: dict[str, Any] = {}

    @property
    def keyed_state(self) -> Callable[..., Any]:
        return self._state_of

    @property
    def event_timers(self) -> ArrowTimers:
        return self._event_timers

    @property
    def processing_timers(self) -> ArrowTimers:
        return self._processing_timers

    def all_tables(self) -> Iterable[KeyedTable]:
        """The tables with values and timers of keys."""
        return self._tables.values()

    @property
    def count(self) -> int:
        return sum(table.count for table in self.all_tables())

    @property
    def timers(self) -> int:
        return self._event_timers.count + self._processing_timers.count

    def keys(self) -> Iterable[Any]:
        found: dict[Any, None] = {}
        for table in self.all_tables():
            for rows in table.scan():
                found.update(dict.fromkeys(self._finder.decoded(table.keys_of(rows))))
        return list(found)

    def expire(self) -> None:
        for expire in self._expiring:
            expire()

    def find(self, keys: KeyArray) -> FoundKeys:
        """Return the distinct keys of a batch. For the operators of dsv2."""
        return self._finder.find(keys)

    def recognize(self, batch: pa.Table | None) -> None:
        """Use the columns of the records that are processed to recognize keys that are none."""
        self._finder.batch = batch

    def fire(self, by_event: bool, time: int, call: Callable[[Any], None], *, last: bool = False) -> None:
        timers = self._event_timers if by_event else self._processing_timers
        while (first := timers.next_time()) is not None and first <= time:
            due = timers.take_due(time)
            if due is not None:
                call(due)
                if last:
                    return

    def next_time(self, by_event: bool) -> int | None:
        return (self._event_timers if by_event else self._processing_timers).next_time()

    def snapshot(self) -> dict[str, Any]:
        self._finder.forget()
        tables = {
            name: (*self._layouts[name][:-2], tuple(state), self._layouts[name].due)
            for name, table in self._tables.items()
            if (state := table.snapshot()).stored
        }
        return {**self._undeclared, **tables}

    def restore(self, state: dict[str, Any]) -> None:
        self._undeclared = {}
        for name, stored in stored_columns(state).items():
            if name in self._layouts and stored.has_layout_of(self._layouts[name]):
                self._tables[name].restore(stored.table)
            elif split_name(stored.state)[0] in self._declared and stored.row_kind != RowKind.TIMERS:
                self._convert(name, stored)
            else:
                self._undeclared[name] = state[name]

    def stored_tables(self, state: Mapping[str, Any]) -> dict[str, StoredTable]:
        return stored_columns(state)

    def loader(self) -> ColumnsLoader:
        return ColumnsLoader(self)

    def put(self, kind: RowKind, stored: str, keys: Keys, values: Sequence[Any]) -> None:
        """Set values or timers of distinct keys, which are Python objects: those of ``StoredTable.contents``.

        Values of expiring states are pairs with the deadline.
        """
        name = f"{kind.value}/{stored}"
        table = self._tables[name]
        if stored in self._lists and kind is not RowKind.TIMERS:
            self._lists[stored].load(keys, values)
            return
        rows, _ = table.make(keys)
        if kind is RowKind.TIMERS:
            table.put(0, rows, pa.array(values, TIMES))
            table.set_deadlines(rows, _numbers(times[0] for times in values))
            return
        if kind is RowKind.EXPIRING:
            table.set_deadlines(rows, _numbers(deadline for _, deadline in values))
            values = [value for value, _ in values]
        columns = rows_to_table(values, _kind(self._declared[split_name(stored)[0]]))
        for number, column in enumerate(columns.columns):
            table.put(number, rows, column.combine_chunks())

    def current(self, stored: str, key: Any, value: Any) -> Any:
        """Return a value of a state in its current version; None if nothing is left."""
        if self._migrations.outdated(stored) is None:
            return value
        return self._migrations.convert(stored, key, value)

    def declared(self, stored: str) -> Declaration | None:
        """Return the state with a stored name, in any version."""
        return self._declared.get(split_name(stored)[0])

    @property
    def codec(self) -> tuple[Any, str]:
        """The codec, and the owner for its errors."""
        return self._codec, self._owner

    def _state_of(self, declaration: StateDeclaration, /) -> Any:
        found = self._declared.get(getattr(declaration, "name", ""))
        if found is None or not found.matches(declaration):
            known = ", ".join(map(str, self._declared.values())) or "none"
            raise UndeclaredStateError(
                f"{declaration} is not declared (declared: {known}). Return its declaration from uses_states()."
            )
        return self._states[found.name]

    def _new_state(self, declaration: Declaration) -> ArrowKeyedState[Any] | ArrowKeyedLists[Any]:
        record_class = _kind(declaration)
        schema = schema_of(record_class)
        ttl, stored = declaration.time_to_live, stored_name(declaration)
        expiry, domain = None, ""
        if ttl is not None:
            by_event = ttl.time_characteristic is TtlTimeCharacteristic.EVENT_TIME
            domain = _EVENT_EXPIRY if by_event else _EXPIRY
            environment = self._environment
            clock = _EventClock(environment.event_time) if by_event else _BatchClock(environment.time)
            expiry = Expiry(ttl, clock)
        kind = RowKind.KEYED if ttl is None else RowKind.EXPIRING
        template: Any = empty_value(record_class)
        has_lists = isinstance(declaration, ListStateDeclaration)
        names = tuple(map(type_name, schema.types))
        layout = StoredTable(
            kind.value, stored, domain, tuple(schema.names), names, [template] if has_lists else template, _NONE
        )
        if not isinstance(declaration, ListStateDeclaration):
            table = self._new_table(layout, schema.types)
            if expiry is not None:
                self._expiring.append(partial(expiry.expire, table))
            return ArrowKeyedState(declaration, table, self._finder, expiry)
        table = self._new_table(layout, [type_of_lists(schema, expiry is not None)])
        lists = self._lists[stored] = Lists(table, record_class, expiry)
        if expiry is not None:
            self._expiring.append(lists.expire)
        return ArrowKeyedLists(lists, self._finder)

    def _new_timers(self, domain: str, time: Callable[[], int]) -> ArrowTimers:
        layout = StoredTable(RowKind.TIMERS.value, domain, "", ("times",), (type_name(TIMES),), None, _NONE)
        return ArrowTimers(self._new_table(layout, [TIMES]), self._finder, time)

    def _new_table(self, layout: StoredTable, types: Sequence[pa.DataType]) -> KeyedTable:
        name, environment = f"{layout.row_kind}/{layout.state}", self._environment
        owner = f"{self._owner}, {layout.state}"
        deadlines = None
        if layout.has_deadlines:
            deadlines = Deadlines(self._codec, f"{owner}, deadlines", environment.stores, f"columns/{name}/deadlines")
        table = KeyedTable(types, environment.stores(f"columns/{name}", owner), deadlines, owner)
        self._layouts[name], self._tables[name] = layout, table
        return table

    def _convert(self, name: str, stored: StoredTable) -> None:
        """Load values that were stored with other columns."""
        store: PageStore = self._environment.stores(f"columns/{name}", self._owner)
        store.restore(stored.table.pages)
        loader = self.loader()
        kind = RowKind(stored.row_kind)
        for number in range(stored.table.stored):
            page = store.get(number)
            if page is None:
                raise IncompatibleCheckpointError(f"{self._owner}: page {number} of {name} is missing.")
            keys, values, deadlines = stored.contents([page])
            decoded = self._finder.decoded(keys)
            if deadlines is not None and not stored.has_lists:
                values = list(zip(values, deadlines.tolist(), strict=True))
            for key, value in zip(decoded, values, strict=True):
                loader.put(kind, stored.state, key, value)
        for number in range(stored.table.stored):
            store.remove(number)
        loader.finish()


class ColumnsLoader:
    """Loads rows of a savepoint into empty columns, in any order, like ``RowLoader``."""

    def __init__(self, columns: ArrowKeyedColumns) -> None:
        self._columns = columns
        self._waiting: dict[tuple[RowKind, str], dict[Any, Any]] = {}

    def add(self, row: Any) -> None:
        """Add a row that belongs to a key. Others, and those of states that are not declared, are dropped."""
        if row.kind in (RowKind.KEYED, RowKind.EXPIRING):
            if not self.is_declared(row):
                return
        elif row.kind is not RowKind.TIMERS or TIMERS[row.state] not in (Domain.EVENT_TIME, Domain.PROCESSING_TIME):
            return
        codec, owner = self._columns.codec
        self.put(row.kind, row.state, codec.loads(row.key, owner), codec.loads(row.value, owner))

    def is_declared(self, row: Any) -> bool:
        """Return whether the function declares the state of ``row``, which is a row of a state."""
        return row.state is not None and self._columns.declared(row.state) is not None

    def put(self, kind: RowKind, stored: str, key: Any, value: Any) -> None:
        """Add a value of any version, or the timers of a key."""
        if kind is not RowKind.TIMERS:
            declaration = self._columns.declared(stored)
            assert declaration is not None
            value = self._columns.current(stored, key, value)
            if value is None:
                return
            stored = stored_name(declaration)
        self._add(kind, stored, key, value)

    def _add(self, kind: RowKind, stored: str, key: Any, value: Any) -> None:
        waiting = self._waiting.setdefault((kind, stored), {})
        waiting[key] = value
        if len(waiting) >= _AT_ONCE:
            self._flush(kind, stored)

    def finish(self) -> None:
        """Called after the last row."""
        for kind, stored in self._waiting:
            self._flush(kind, stored)

    def _flush(self, kind: RowKind, stored: str) -> None:
        waiting = self._waiting[kind, stored]
        if waiting:
            codec, _ = self._columns.codec
            self._columns.put(kind, stored, encoded_keys(waiting, codec), list(waiting.values()))
            waiting.clear()


class _BatchClock:
    """Processing time."""

    def __init__(self, time: Any) -> None:
        self._time = time

    @property
    def now_ms(self) -> int:
        now: int = self._time.now_ms
        return now

    def updated_at(self) -> int:
        return self.now_ms


class _EventClock:
    """Event time. At the end of the input, nothing more expires."""

    def __init__(self, event_time: EventTimeOfInputs) -> None:
        self._event_time = event_time

    @property
    def now_ms(self) -> int:
        now = self._event_time.current
        return now if now < LONG_MAX else LONG_MIN

    def updated_at(self) -> int:
        if self._event_time.current == LONG_MIN:
            raise ContractError(
                "A state with a time to live in event time cannot be updated in a table before event time has begun."
            )
        return self.now_ms


def _kind(declaration: Declaration) -> Any:
    """The class of the values or elements."""
    return declaration.element_type if isinstance(declaration, ListStateDeclaration) else declaration.value_type


def empty_value(kind: Any) -> Any:
    """Return a value of a class whose fields are all None."""
    if issubclass(kind, tuple):
        return kind(*[None] * len(kind._fields))
    value = object.__new__(kind)
    for name in schema_of(kind).names:
        object.__setattr__(value, name, None)
    return value


def _numbers(values: Iterable[int]) -> Any:
    return pa.array(values, pa.int64()).to_numpy()
