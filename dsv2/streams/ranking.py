"""Operators of keyed streams that choose records by their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, overload

from dsv2.aggregates.field_types import field_types
from dsv2.base.columnar import column_names, fields_read
from dsv2.base.type_variables import OUT, T, T_co
from dsv2.checks.arguments import is_whole_number
from dsv2.checks.client_library import require_client_library
from dsv2.errors import PlanError, SchemaError
from dsv2.functions import ProcessFunction
from dsv2.graph import InputRef, OperatorKind
from dsv2.graph.builder import caller_location
from dsv2.graph.record_types import UNDECLARED, declared_type_of
from dsv2.model.change import Change
from dsv2.state import StateTtl
from dsv2.streams.arguments import ttl_of
from dsv2.streams.base import Stream
from dsv2.streams.outputs import configured

if TYPE_CHECKING:
    from dsv2.extension.window.strategy import WindowStrategy
    from dsv2.streams.kinds import ConfiguredStream

Ties: TypeAlias = Literal["row_number", "rank", "dense_rank"]
"""The ranks of records with the same values: different ones, or as SQL's functions have them."""
_Order: TypeAlias = tuple[type[Any], Sequence[str], Any]
"""The class of the records, the fields of the key, and the order."""


class KeyedRanking(Stream[T_co], Generic[T_co]):
    """The operators, as a base of ``KeyedPartitionStream``."""

    def last(
        self,
        by: str | Sequence[str] | None = None,
        records: type[Any] | None = None,
        *,
        descending: bool | Sequence[bool] = False,
        until: str | None = None,
        ttl: timedelta | StateTtl | None = None,
    ) -> ConfiguredStream[T_co]:
        """Emit each record that is the last one of its key so far: no earlier record of the key has a greater ``by``.

        Of records with the same value, the one that arrived later is the last one. (Flink SQL
        ``ROW_NUMBER() OVER (PARTITION BY key ORDER BY rowtime DESC) = 1``.) None is less than all values, and NaN is
        greater. It runs on columns: the key selector must be an ``operator.attrgetter``.

        Args:
            by: The field by which records are ordered, or several; the first one decides first. None: their
                timestamps. Records without a timestamp are in the order of arrival, before all others.
            records: The class of the records, a NamedTuple class or dataclass. None: as the stream declares it.
            descending: Whether the order is descending, so that the last record has the least value. For several
                fields one bool, or one for each.
            until: A field with a time in ms, for example when an offer ends. Then only the last record is emitted, when
                event time reaches its time, which is its timestamp. The key is forgotten. A record whose time has been
                reached is late: it is dropped and counted (metric ``late_records_dropped``). None: each record that is
                the last one so far is emitted at once.
            ttl: The time for which the value of a key is remembered after its last change, in processing time; a
                ``StateTtl`` for other rules. None: for ever.

        Raises:
            PlanError: The key selector is not an ``operator.attrgetter``, the class of the records is not known or has
                no columns, it has no such field, there is not one direction or one for each field, or ``until`` is
                not a field of whole numbers.
            ConfigurationError: ``ttl`` is invalid.
        """
        return configured(self._builder, _first_or_last(self, "last", by, descending, records, until, ttl))

    def first(
        self,
        by: str | Sequence[str] | None = None,
        records: type[Any] | None = None,
        *,
        descending: bool | Sequence[bool] = False,
        until: str | None = None,
        ttl: timedelta | StateTtl | None = None,
    ) -> ConfiguredStream[T_co]:
        """Emit each record that is the first one of its key so far: all before it have a greater ``by``.

        Of records with the same value, the one that arrived earlier is the first one. All else is as for ``last``.
        """
        return configured(self._builder, _first_or_last(self, "first", by, descending, records, until, ttl))

    @overload
    def top_n(
        self,
        n: int,
        *,
        by: str | Sequence[str] | None,
        descending: bool | Sequence[bool] = True,
        ties: Ties = "row_number",
        ttl: timedelta | StateTtl | None = None,
        records: type[Any] | None = None,
    ) -> ConfiguredStream[Change[T_co]]: ...
    @overload
    def top_n(
        self,
        n: int,
        result: type[OUT],
        *,
        by: str | Sequence[str] | None,
        descending: bool | Sequence[bool] = True,
        ties: Ties = "row_number",
        rank: str = "",
        ttl: timedelta | StateTtl | None = None,
        records: type[Any] | None = None,
    ) -> ConfiguredStream[Change[OUT]]: ...
    @overload
    def top_n(
        self,
        n: int,
        result: type[OUT],
        *,
        by: str | Sequence[str] | None,
        descending: bool | Sequence[bool] = True,
        ties: Ties = "row_number",
        rank: str = "",
        change: str,
        ttl: timedelta | StateTtl | None = None,
        records: type[Any] | None = None,
    ) -> ConfiguredStream[OUT]: ...
    def top_n(
        self,
        n: int,
        result: type[Any] | None = None,
        *,
        by: str | Sequence[str] | None,
        descending: bool | Sequence[bool] = True,
        ties: Ties = "row_number",
        rank: str = "",
        change: str = "",
        ttl: timedelta | StateTtl | None = None,
        records: type[Any] | None = None,
    ) -> ConfiguredStream[Any]:
        """Emit the changes of the first ``n`` records of each key so far.

        (Flink SQL ``ROW_NUMBER() OVER (PARTITION BY key ORDER BY ...) <= n``.) The order is that of ``last``. Of
        records with the same value, those that arrived earlier come first. Changes are those between before and after
        some records that arrived together, so their number depends on the micro-batches. The table after them does not.

        Without ``rank`` records are inserted and deleted. With it the table has a row for each rank: if another record
        gets a rank, the row is updated.

        Args:
            n: The number of records.
            result: The class of the results: fields of the records, and those named by ``rank`` and ``change``. None:
                the records themselves.
            by: The field by which records are ordered, or several; the first one decides first. None: their
                timestamps.
            descending: Whether the record with the greatest value is the first one. For several fields one bool, or one
                for each.
            ties: The ranks of records with the same values: ``row_number``, different ones; ``rank``, the number of
                records before all of them, plus 1; ``dense_rank``, the number of different values before them, plus 1.
                All records with ranks up to ``n`` are kept, which may be more than ``n``.
            rank: The field of ``result`` for the rank, from 1. Not with ``ties``, because ranks are then not unique.
            change: The text field of ``result`` for the kind of the change, such as ``"+I"``, so that the changes stay
                columns. Empty: the results are in ``Change`` objects.
            ttl: The time for which the records of a key are remembered after their last change. None: for ever.
            records: The class of the records. None: as the stream declares it.

        Raises:
            PlanError: As for ``last``, or ``result`` has other fields.
            ConfigurationError: ``ttl`` is invalid.
        """
        _check_count(n)
        kind, names, ranking = _columns(self, "top_n", records, by, descending, ties)
        result = kind if result is None else result
        if rank and ranking.ties != "row_number":
            raise PlanError(f"top_n at {caller_location()}: rows of a rank are not unique with ties={ties!r}.")
        _check_result(kind, result, {rank: int, change: str}, f"top_n at {caller_location()}")
        top = import_module("dsv2.arrow.running_top").RunningTop
        function = top(kind, names, result, n, ranking, rank, change, ttl_of(ttl))
        return configured(self._builder, self._add(OperatorKind.ONE_INPUT, function, "TopN"))


class WindowRanking(Generic[T]):
    """The operators on windows, as a base of ``KeyedWindowedStream``."""

    _stream: Any
    _strategy: WindowStrategy

    def last(
        self,
        by: str | Sequence[str] | None = None,
        records: type[Any] | None = None,
        *,
        descending: bool | Sequence[bool] = False,
    ) -> ConfiguredStream[T]:
        """Emit the last record of each window at its end, with the timestamp of the window.

        The order and the arguments are those of ``KeyedPartitionStream.last``. Windows are tumbling or sliding ones in
        event time, without allowed lateness, early firing, trigger and late output.
        """
        kind, names, order = _columns(self._stream, "last", records, by, descending)
        return _ranked(self, "last", (kind, names, order.reversed), None, 1)

    def first(
        self,
        by: str | Sequence[str] | None = None,
        records: type[Any] | None = None,
        *,
        descending: bool | Sequence[bool] = False,
    ) -> ConfiguredStream[T]:
        """Emit the first record of each window at its end. As ``last`` in all other respects."""
        return _ranked(self, "first", _columns(self._stream, "first", records, by, descending), None, 1)

    @overload
    def top_n(
        self,
        n: int,
        *,
        by: str | Sequence[str] | None,
        descending: bool | Sequence[bool] = True,
        ties: Ties = "row_number",
        records: type[Any] | None = None,
    ) -> ConfiguredStream[T]: ...
    @overload
    def top_n(
        self,
        n: int,
        result: type[OUT],
        *,
        by: str | Sequence[str] | None,
        descending: bool | Sequence[bool] = True,
        ties: Ties = "row_number",
        rank: str = "",
        start: str = "",
        end: str = "",
        records: type[Any] | None = None,
    ) -> ConfiguredStream[OUT]: ...
    def top_n(
        self,
        n: int,
        result: type[Any] | None = None,
        *,
        by: str | Sequence[str] | None,
        descending: bool | Sequence[bool] = True,
        ties: Ties = "row_number",
        rank: str = "",
        start: str = "",
        end: str = "",
        records: type[Any] | None = None,
    ) -> ConfiguredStream[Any]:
        """Emit the first ``n`` records of each window at its end, in their order.

        (Flink SQL ``ROW_NUMBER() OVER (PARTITION BY window_start, window_end, key ORDER BY ...) <= n``.) Of records
        with the same value, those that arrived earlier come first. Windows are those of ``last``.

        Args:
            n: The number of records.
            result: The class of the results: fields of the records, and those named by ``rank``, ``start`` and ``end``.
                None: the records themselves.
            by: As for ``KeyedPartitionStream.top_n``.
            descending: Likewise.
            ties: Likewise.
            rank: The field of ``result`` for the rank, from 1.
            start: The field for the start of the window, in ms.
            end: The field for its end.
            records: The class of the records. None: as the stream declares it.

        Raises:
            PlanError: As for ``KeyedPartitionStream.last``, or ``result`` has other fields, or the windows are others.
        """
        _check_count(n)
        order = _columns(self._stream, "top_n", records, by, descending, ties)
        return _ranked(self, "top_n", order, result, n, rank=rank, start=start, end=end)


def _first_or_last(
    stream: Stream[Any],
    method: str,
    by: str | Sequence[str] | None,
    descending: bool | Sequence[bool],
    records: type[Any] | None,
    until: str | None,
    ttl: timedelta | StateTtl | None,
) -> InputRef:
    kind, names, ranking = _columns(stream, method, records, by, descending)
    function: ProcessFunction
    if until is None:
        made = import_module("dsv2.arrow.ranking")
        function = made.FirstOrLast(kind, names, ranking, method == "last", ttl_of(ttl))
    else:
        if (field_types(kind) or {}).get(until) is not int:
            raise PlanError(
                f"{method} at {caller_location()}: {kind.__qualname__} has no field {until!r} of type int for until."
            )
        made = import_module("dsv2.arrow.final_ranking")
        order = ranking.reversed if method == "last" else ranking
        function = made.FirstUntil(kind, names, order, until, ttl_of(ttl))
    return stream._add(OperatorKind.ONE_INPUT, function, method.title())


def _ranked(
    windowed: Any, method: str, order: _Order, result: type[Any] | None, count: int, **fields: str
) -> ConfiguredStream[Any]:
    stream, where = windowed._stream, f"{method} at {caller_location()}"
    kind, names, ranking = order
    reason = windowed._why_rows()
    if reason is not None:
        raise PlanError(f"{where} runs on columns, but {reason}. Call process with a window function.")
    made = import_module("dsv2.arrow.ranking")
    further = made.RankedFields(**fields)
    result = kind if result is None else result
    _check_result(kind, result, dict.fromkeys(fields.values(), int), where)
    function = made.RankedWindows(kind, names, result, windowed._strategy, count, ranking, further)
    return configured(stream._builder, stream._add(OperatorKind.ONE_INPUT, function, method.title().replace("_", "")))


def _check_count(n: object) -> None:
    if not is_whole_number(n) or n < 1:
        raise PlanError(f"top_n at {caller_location()} takes a number of at least 1, not {n!r}.")


def _check_result(kind: type[Any], result: type[Any], further: Mapping[str, type], where: str) -> None:
    """Check that a result has fields of the records, and ``further`` ones of these types, as far as they have names."""
    types = field_types(result) or {}
    for name, form in further.items():
        if name and types.get(name) is not form:
            raise PlanError(f"{where}: {result.__qualname__} has no field {name!r} of type {form.__name__}.")
    try:
        misfit = import_module("dsv2.arrow.keyed_operator").check_kept(kind, result, further)
    except SchemaError as error:
        raise PlanError(f"{where}: {error}") from error
    if misfit is not None:
        raise PlanError(f"{where}: {misfit}")


def _columns(
    stream: Stream[Any],
    method: str,
    records: type[Any] | None,
    by: str | Sequence[str] | None,
    descending: bool | Sequence[bool],
    ties: Ties = "row_number",
) -> _Order:
    where = f"{method} at {caller_location()}"
    kind, names = keyed_columns(stream, where, records)
    ranking = import_module("dsv2.arrow.ranking").ranking_of(kind, by, descending, ties)
    if isinstance(ranking, str):
        raise PlanError(f"{where}: {ranking}")
    return kind, names, ranking


def keyed_columns(stream: Stream[Any], where: str, records: type[Any] | None) -> tuple[type[Any], Sequence[str]]:
    """Return the class of the records and the fields of the key, for an operator that runs on columns.

    Args:
        stream: The stream.
        where: The method and the place of the call.
        records: The class of the records, if the program gives it.

    Raises:
        PlanError: They are not known, or the class has no columns.
        MissingLibraryError: pyarrow or numpy is not installed.
    """
    for library in ("pyarrow", "numpy"):
        require_client_library(library, "arrow", where)
    selector = stream._ref.key_selector
    names = None if selector is None else column_names(selector)
    if names is None:
        raise PlanError(
            f"{where} runs on columns, so the key must be one: key_by('user'), or an expression of narwhals such as "
            f"key_by(nw.col('time') // 1000)."
        )
    kind = declared_type_of(stream._ref) if records is None else records
    if kind is UNDECLARED:
        raise PlanError(f"{where}: the class of the records is not declared. Pass it: records=...")
    try:
        schema = import_module("dsv2.arrow.schema").schema_of(kind)
    except SchemaError as error:
        raise PlanError(f"{where} runs on columns: {error}") from error
    for name in fields_read(names):
        if name not in schema.names:
            raise PlanError(f"{where}: {kind.__qualname__} has no field {name!r}, which is the key.")
    return kind, names
