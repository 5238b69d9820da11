"""Changing tables, and their operators."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

from dsv2.aggregates import Part
from dsv2.base.callables import takes
from dsv2.base.type_variables import OUT, K, R, T, V
from dsv2.checks.arguments import as_choice, as_milliseconds, check_at_least_one
from dsv2.errors import PlanError
from dsv2.extension.join.functions import JoinType
from dsv2.extension.window.strategy import TimeType, TimeTypeChoice
from dsv2.graph.builder import caller_location
from dsv2.graph.record_types import UNDECLARED, declared_type_of, returned_type
from dsv2.model.change import Change
from dsv2.streams import ConfiguredStream, KeyedPartitionStream, ProcessConfigurable
from dsv2.streams.aggregates import declare_for
from dsv2.streams.kinds import PartitionableStream
from dsv2.streams.outputs import configured
from dsv2.tables.aggregation import GroupAggregate, fields_of_key
from dsv2.tables.functions import (
    EventTimeSuppression,
    LatestRow,
    MapRow,
    OfChanges,
    OfRow,
    RowKey,
    Settling,
    Suppression,
    Undeleted,
    latest_of,
    upsert_of,
)
from dsv2.tables.joining import JoinKey, TableJoin
from dsv2.tables.versions import identity

if TYPE_CHECKING:
    from dsv2.connectors.postgres import RowChange

NK = TypeVar("NK")
"""The type of the primary key of a result."""

_Alone: TypeAlias = Literal[JoinType.SEMI, JoinType.ANTI, "semi", "anti"]


def no_key(row: object) -> None:
    """Pass it as ``key`` for rows without a primary key. Such a table may have the same row several times."""


class Table(Generic[K, T]):
    """A table whose rows change: a stream of insertions, updates and deletions, with a primary key.

    A program makes one of a stream, with ``from_changes``, ``from_upserts`` or ``from_row_changes``. Its operators
    follow the changes, so that the result is what SQL returns for the rows that the tables have. What is emitted on the
    way there depends on the micro-batches. (Flink dynamic tables, Kafka Streams ``KTable``.)

    Functions of rows must return equal results for equal rows, because a deletion is found by the row that it deletes.
    """

    def __init__(
        self, stream: PartitionableStream[Change[T]], key: Callable[[T], K], records: Any, is_settled: bool
    ) -> None:
        self._stream = stream
        self._builder = stream._builder
        self._ref = stream._ref
        self._key = key
        self._records = records
        """The class of the rows, as far as the program declares it."""
        self._is_settled = is_settled
        """True if the changes of a key are in order, and each changes something."""

    @staticmethod
    def from_changes(stream: PartitionableStream[Change[R]], key: Callable[[R], NK]) -> Table[NK, R]:
        """Return the table with these changes, such as those of ``top_n``. They may arrive in any order.

        Args:
            stream: The changes. An update is the deletion of one row and the insertion of another.
            key: Returns the primary key of a row, as for ``key_by``; ``no_key`` if there is none.

        Raises:
            PlanError: ``key`` cannot be called with a row.
        """
        _check("from_changes", key=key)
        return Table(stream, key, UNDECLARED, is_settled=False)

    @staticmethod
    def from_upserts(
        stream: PartitionableStream[R], key: Callable[[R], NK], *, is_deletion: Callable[[R], bool] | None = None
    ) -> ConfiguredTable[NK, R]:
        """Return the table with the latest record of each key, in the order of arrival.

        Args:
            stream: The records. Each replaces the one before it with the same key.
            key: Returns the primary key of a record, as for ``key_by``.
            is_deletion: Returns whether a record deletes the row of its key. None: no record does.

        Raises:
            PlanError: A function cannot be called with a record.
        """
        where = _check("from_upserts", key=key, is_deletion=is_deletion)
        if key is no_key:
            raise PlanError(f"{where}: a record replaces the row with its primary key. Pass a key.")
        function = LatestRow[R, R](None if is_deletion is None else Undeleted(is_deletion))
        changes = stream.key_by(key).process(function).with_name("Upserts")
        return ConfiguredTable(changes, key, declared_type_of(stream._ref), is_settled=True)

    @staticmethod
    def from_row_changes(stream: PartitionableStream[RowChange[R]], key: Callable[[R], NK]) -> ConfiguredTable[NK, R]:
        """Return the table that a ``PostgresSource`` reads: its rows at the start, and then their changes.

        Args:
            stream: The records of the source.
            key: Returns the primary key of a row, which is that of the table in the database.

        Raises:
            PlanError: ``key`` cannot be called with a row.
        """
        _check("from_row_changes", key=key)
        function = LatestRow["RowChange[R]", R](attrgetter("row"))
        changes = stream.key_by(attrgetter("key")).process(function).with_name("RowChanges")
        return ConfiguredTable(changes, key, UNDECLARED, is_settled=True)

    def where(self, predicate: Callable[[T], bool]) -> ConfiguredTable[K, T]:
        """Return the rows for which ``predicate`` is true.

        Raises:
            PlanError: ``predicate`` cannot be called with a row.
        """
        _check("where", predicate=predicate)
        changes = self._through.filter(OfRow(predicate)).with_name("Where")
        return ConfiguredTable(changes, self._key, self._records, is_settled=False)

    def map(self, function: Callable[[T], OUT], key: Callable[[OUT], V]) -> ConfiguredTable[V, OUT]:
        """Return the table with the result of ``function`` for each row.

        Args:
            function: Called with a row.
            key: Returns the primary key of a result; ``no_key`` if there is none.

        Raises:
            PlanError: A function cannot be called with a row.
        """
        _check("map", function=function, key=key)
        changes = self._through.map(MapRow(function)).with_name("Map")
        return ConfiguredTable(changes, key, returned_type(function), is_settled=False)

    @overload
    def join(
        self,
        other: Table[V, R],
        function: Callable[[T, R], OUT],
        *,
        on: Callable[[T], V | None],
        key: Callable[[OUT], NK],
        join_type: Literal[JoinType.INNER, "inner"] = ...,
    ) -> ConfiguredTable[NK, OUT]: ...
    @overload
    def join(
        self,
        other: Table[V, R],
        function: Callable[[T, R | None], OUT],
        *,
        on: Callable[[T], V | None],
        key: Callable[[OUT], NK],
        join_type: Literal[JoinType.LEFT, "left"],
    ) -> ConfiguredTable[NK, OUT]: ...
    @overload
    def join(
        self,
        other: Table[V, R],
        function: Callable[[T | None, R], OUT],
        *,
        on: Callable[[T], V | None],
        key: Callable[[OUT], NK],
        join_type: Literal[JoinType.RIGHT, "right"],
    ) -> ConfiguredTable[NK, OUT]: ...
    @overload
    def join(
        self,
        other: Table[V, R],
        function: Callable[[T | None, R | None], OUT],
        *,
        on: Callable[[T], V | None],
        key: Callable[[OUT], NK],
        join_type: Literal[JoinType.FULL, "full"],
    ) -> ConfiguredTable[NK, OUT]: ...
    @overload
    def join(
        self,
        other: Table[V, R],
        function: Callable[[T, None], OUT],
        *,
        on: Callable[[T], V | None],
        key: Callable[[OUT], NK],
        join_type: _Alone,
    ) -> ConfiguredTable[NK, OUT]: ...
    def join(
        self,
        other: Table[V, Any],
        function: Callable[[Any, Any], Any],
        *,
        on: Callable[[T], V | None],
        key: Callable[[Any], Any],
        join_type: Any = JoinType.INNER,
    ) -> ConfiguredTable[Any, Any]:
        """Join each row with the row of ``other`` whose primary key it refers to.

        If either row changes, so does the result. To join by the primary keys of both tables, pass that of this one as
        ``on``. If the ``key`` of ``other`` is not unique, a row is joined with all rows that have it.

        Args:
            other: The other table, which has a primary key.
            function: Called with a row of each table, and with None in place of a missing one. Returns a row.
            on: Returns the foreign key: the primary key of a row of ``other``. None: there is no such row.
            key: Returns the primary key of a result; ``no_key`` if there is none.
            join_type: The rows for which ``function`` is called, see ``JoinType``.

        Raises:
            PlanError: A function cannot be called with rows, or ``other`` has no key, or is of another environment.
            ConfigurationError: There is no such ``join_type``.
        """
        where = _check("join", on=on, key=key)
        chosen = as_choice(JoinType, join_type, "join_type")
        if not isinstance(other, Table):
            raise PlanError(f"{where} takes another Table, not a {type(other).__name__}.")
        if not takes(function, 2):
            raise PlanError(f"{where}: function must be a callable (left, right) -> row, not {function!r}.")
        if other._key is no_key:
            raise PlanError(f"{where}: the other table has no key. Give it one: map(lambda row: row, key=...).")
        if other._builder is not self._builder:
            raise PlanError(f"{where}: the two tables belong to different environments.")
        left = self._through.key_by(JoinKey(on, self._identify))
        right = other._through.key_by(JoinKey(other._key, other._key))
        join = TableJoin[T, Any, Any](function, chosen, (self._identify, identity))
        joined = left.connect_and_process(right, join).with_name("TableJoin")
        return ConfiguredTable(joined, key, returned_type(function), is_settled=False)

    def group_by(self, selector: Callable[[T], V]) -> GroupedTable[V, T]:
        """Group the rows by the results of ``selector``, which are keys as for ``key_by``, or None.

        Raises:
            PlanError: ``selector`` cannot be called with a row.
        """
        _check("group_by", selector=selector)
        return GroupedTable(self, selector)

    def suppress(
        self,
        after: timedelta | None,
        *,
        time_type: TimeTypeChoice = TimeType.PROCESSING,
        max_rows: int | None = None,
    ) -> ConfiguredTable[K, T]:
        """Return the same table with fewer changes: each key's are held back, and then only the latest is emitted.

        Changes that cancel each other out are not emitted at all. (Kafka Streams ``suppress``.)

        Args:
            after: The time for which changes are held back, from the first one. 0: until the end of the micro-batch.
                None: until the input has ended.
            time_type: The kind of that time. In event time it begins with the timestamp of the change, if it has one.
            max_rows: The number of keys in each subtask whose changes are held back. While there are so many, the
                changes of others are emitted at once. None: any number.

        Raises:
            PlanError: The table has no primary key.
            ConfigurationError: An argument is invalid.
        """
        where = f"suppress at {caller_location()}"
        self._require_key(where)
        chosen = as_choice(TimeType, time_type, "time_type")
        milliseconds = None if after is None else as_milliseconds(after, "after", at_least=0)
        check_at_least_one(max_rows=max_rows)
        is_event_time = chosen is TimeType.EVENT and after is not None
        kind: type[Suppression[T]] = EventTimeSuppression if is_event_time else Suppression
        changes = self._by_key.process(kind(milliseconds, max_rows)).with_name("Suppress")
        return ConfiguredTable(changes, self._key, self._records, is_settled=True)

    def changes(self) -> ConfiguredStream[Change[T]]:
        """Return the changes as a stream, in order for each key.

        An insertion is ``+I``, a deletion ``-D``. An update is ``-U`` with the former row, followed by ``+U``. No
        change is emitted that changes nothing.
        """
        if self._is_settled:
            return configured(self._builder, self._ref)
        function = Settling[T](has_key=self._key is not no_key)
        return self._by_key.process(function).with_name("Changes")

    def upserts(self) -> ConfiguredStream[Change[T]]:
        """Return the changes without ``-U``, for sinks that replace and delete rows by their key.

        Raises:
            PlanError: The table has no primary key.
        """
        self._require_key(f"upserts at {caller_location()}")
        return self.changes().process(OfChanges[T, Change[T]](upsert_of)).with_name("Upserts")

    def latest(self) -> ConfiguredStream[T]:
        """Return each row that is inserted or replaces another one, as a stream of records without deletions."""
        return self.changes().process(OfChanges[T, T](latest_of)).with_name("Latest")

    @property
    def _through(self) -> ConfiguredStream[Change[T]]:
        return configured(self._builder, self._ref)

    @property
    def _identify(self) -> Callable[[Any], Any]:
        return identity if self._key is no_key else self._key

    @property
    def _by_key(self) -> KeyedPartitionStream[Any, Change[T]]:
        return self._through.key_by(RowKey(self._identify))

    def _require_key(self, where: str) -> None:
        if self._key is no_key:
            raise PlanError(f"{where} requires a table with a primary key, not key=no_key.")


class ConfiguredTable(Table[K, T], ProcessConfigurable, Generic[K, T]):
    """A table that an operator makes, and the handle on that operator."""


class GroupedTable(Generic[K, T]):
    """The rows of a table by groups."""

    def __init__(self, table: Table[Any, T], selector: Callable[[T], K]) -> None:
        self._table = table
        self._selector = selector

    def aggregate(
        self, result: type[OUT], records: type[Any] | None = None, /, **parts: Part
    ) -> ConfiguredTable[K, OUT]:
        """Return the table with the aggregates of each group that has rows. Its primary key is that of the group.

        Possible are ``Count``, ``CountDistinct``, ``Sum``, ``Mean``, ``Variance``, ``StdDev``, ``Min`` and ``Max``.
        Sums are exact, also of floats, and do not depend on the order of the changes.

        Args:
            result: The class of the results, a NamedTuple class or dataclass.
            records: The class of the rows. None: as the program declares it.
            parts: The content of each field of ``result``, as for ``KeyedPartitionStream.aggregate``. One field holds
                ``Key()``, or several hold all parts of the key: ``Key(0)``, ``Key(1)`` and so on.

        Raises:
            PlanError: ``parts`` are not those of the fields of ``result``, have other types, lack the key, or have an
                aggregate from which rows cannot be taken back.
        """
        where = f"aggregate at {caller_location()}"
        table = self._table
        declared = declare_for(table._records, self._selector, result, records, parts, windowed=False)
        names = fields_of_key(parts)
        if names is None:
            raise PlanError(
                f"{where}: {result.__qualname__} has no field with the key of the group. Add one: group=Key(), or all "
                f"parts of it: first=Key(0), second=Key(1)."
            )
        try:
            function = GroupAggregate[T, OUT](declared)
        except PlanError as error:
            raise PlanError(f"{where}: {error}") from error
        key: Callable[[Any], Any] = attrgetter(*names)
        keyed = table._through.key_by(RowKey(self._selector))
        changes = keyed.process(function).with_name("GroupAggregate")
        return ConfiguredTable(changes, key, result, is_settled=True)


def _check(method: str, **functions: object) -> str:
    """Return the method and the place of its call. Raises ``PlanError`` unless ``functions`` can be called with a row.

    Functions that are None are not given.
    """
    where = f"{method} at {caller_location()}"
    for name, function in functions.items():
        if function is not None and not takes(function, 1):
            raise PlanError(f"{where}: {name} must be a callable (row), not {function!r}.")
    if "key" in functions and functions["key"] is None:
        raise PlanError(f"{where}: key must be a callable (row) -> key, or no_key, not None.")
    return where
