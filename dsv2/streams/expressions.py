"""Operators that evaluate expressions on columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from dsv2.aggregates.field_types import field_types
from dsv2.base.type_variables import OUT, T, T_co
from dsv2.checks.client_library import require_client_library
from dsv2.errors import PlanError, SchemaError
from dsv2.functions import ProcessFunction
from dsv2.graph import InputRef, KeySelector, OperatorKind
from dsv2.graph.builder import caller_location
from dsv2.graph.record_types import UNDECLARED, declared_type_of
from dsv2.streams.base import Stream
from dsv2.streams.outputs import configured, configured_global

if TYPE_CHECKING:
    from narwhals import Expr

    from dsv2.streams.kinds import ConfiguredGlobalStream, ConfiguredStream

    Column: TypeAlias = Expr | str
    """An expression, or the name of a column."""


class ColumnOperators(Stream[T_co], Generic[T_co]):
    """The operators, as a base of the streams with parallel subtasks."""

    def where(self, condition: Expr, records: type[Any] | None = None, /) -> ConfiguredStream[T_co]:
        """Emit the records for which an expression is true. The result is not keyed.

        Expressions are those of ``narwhals``, whose API is a part of that of Polars: ``nw.col("price") > 100``. They
        are evaluated on columns. Records that are rows are converted to columns for it.

        Args:
            condition: The expression. Null counts as false.
            records: The class of the records, a NamedTuple class or dataclass. None: as the stream declares it.

        Raises:
            PlanError: The class of the records is not known or has no columns, or the expression is not a truth value,
                names another column, or depends on other rows.
        """
        return configured(self._builder, _where(self, condition, records))

    def select(
        self, result: type[OUT], records: type[Any] | None = None, /, **columns: Column
    ) -> ConfiguredStream[OUT]:
        """Emit a record of ``result`` for each record. Its fields are expressions on columns. The result is not keyed.

        Args:
            result: The class of the results, a NamedTuple class or dataclass.
            records: The class of the records. None: as the stream declares it.
            columns: An expression for each field of ``result``, as for ``where``, or the name of a column.

        Raises:
            PlanError: As for ``where``, or ``columns`` are not the fields of ``result``, or have other types.
        """
        return configured(self._builder, _select(self, result, records, columns, keep=False))

    def with_columns(
        self, result: type[OUT], records: type[Any] | None = None, /, **columns: Column
    ) -> ConfiguredStream[OUT]:
        """As ``select``. Fields of ``result`` that are not in ``columns`` have the value of the same field."""
        return configured(self._builder, _select(self, result, records, columns, keep=True))


class GlobalColumnOperators(Stream[T_co], Generic[T_co]):
    """The operators of a global stream, as its base. They run in one subtask, and their results are global."""

    def where(self, condition: Expr, records: type[Any] | None = None, /) -> ConfiguredGlobalStream[T_co]:
        """As ``NonKeyedPartitionStream.where``."""
        return configured_global(self._builder, _where(self, condition, records))

    def select(
        self, result: type[OUT], records: type[Any] | None = None, /, **columns: Column
    ) -> ConfiguredGlobalStream[OUT]:
        """As ``NonKeyedPartitionStream.select``."""
        return configured_global(self._builder, _select(self, result, records, columns, keep=False))

    def with_columns(
        self, result: type[OUT], records: type[Any] | None = None, /, **columns: Column
    ) -> ConfiguredGlobalStream[OUT]:
        """As ``NonKeyedPartitionStream.with_columns``."""
        return configured_global(self._builder, _select(self, result, records, columns, keep=True))


def key_of_columns(
    stream: Stream[Any], columns: Sequence[object], records: type[Any] | None
) -> tuple[InputRef, KeySelector]:
    """Return the output whose records are partitioned by ``columns`` of them, and the key selector."""
    names = [column for column in columns if isinstance(column, str)]
    if names and len(names) == len(columns):
        return stream._ref, attrgetter(*names)
    where = f"key_by at {caller_location()}"
    if not columns or len(names) + sum(map(_is_expression, columns)) < len(columns):
        shown = ", ".join(map(repr, columns))
        raise PlanError(f"{where} takes a callable (record) -> key, or names and expressions of columns, not {shown}.")

    def create(made: Any, kind: type[Any]) -> tuple[ProcessFunction, KeySelector]:
        return made.GatherFunction(kind), made.ExpressionKey(kind, columns)

    function, selector = _created(stream, where, records, create, "as records=...")
    return stream._add(OperatorKind.ONE_INPUT, function, "Gather"), selector


def _is_expression(column: object) -> bool:
    return type(column).__module__.partition(".")[0] == "narwhals"


def _where(stream: Stream[Any], condition: Expr, records: type[Any] | None) -> InputRef:
    return _added(stream, "where", records, lambda made, kind: made.WhereFunction(kind, condition))


def _select(
    stream: Stream[Any], result: type[Any], records: type[Any] | None, columns: Mapping[str, Column], *, keep: bool
) -> InputRef:
    def create(made: Any, kind: type[Any]) -> ProcessFunction:
        given = field_types(kind) or {}
        kept = [name for name in field_types(result) or () if keep and name in given]
        function: ProcessFunction = made.SelectFunction(kind, result, {**dict(zip(kept, kept, strict=True)), **columns})
        return function

    return _added(stream, "with_columns" if keep else "select", records, create)


def _added(
    stream: Stream[Any], method: str, records: type[Any] | None, create: Callable[[Any, type[Any]], ProcessFunction]
) -> InputRef:
    function = _created(stream, f"{method} at {caller_location()}", records, create)
    return stream._add(OperatorKind.ONE_INPUT, function, method.title().replace("_", ""))


def _created(
    stream: Stream[Any],
    where: str,
    records: type[Any] | None,
    create: Callable[[Any, type[Any]], T],
    place: str = "as the last positional argument",
) -> T:
    for library in ("pyarrow", "numpy", "narwhals"):
        require_client_library(library, "arrow", where)
    kind = declared_type_of(stream._ref) if records is None else records
    if kind is UNDECLARED:
        raise PlanError(f"{where}: the class of the records is not declared. Pass it {place}.")
    try:
        return create(import_module("dsv2.arrow.expressions"), kind)
    except (PlanError, SchemaError) as error:
        raise PlanError(f"{where}: {error}") from error
