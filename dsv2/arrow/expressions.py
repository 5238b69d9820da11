"""The functions of ``where``, ``select`` and ``with_columns``, which evaluate narwhals expressions on columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, Generic

import narwhals as nw
import pyarrow as pa
from narwhals.exceptions import ShapeError

from dsv2.arrow.casts import may_be_cast
from dsv2.arrow.encoding import in_one_piece
from dsv2.arrow.functions import TableFunction, process_batch_failure
from dsv2.arrow.records import ArrowRecords, chosen_records, records_of, table_of
from dsv2.arrow.schema import column_type, rows_to_table, schema_of
from dsv2.base.columnar import ComputedKey
from dsv2.base.derived_classes import unused_name
from dsv2.base.type_variables import IN, OUT, T
from dsv2.errors import PlanError
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import BatchFunction, EmitBatch, FailedRecordError

_CONDITION: Final = "condition"
_SAMPLES: Final[Sequence[tuple[Callable[[pa.DataType], bool], Sequence[Any]]]] = (
    (pa.types.is_boolean, (True, False, True, None)),
    (pa.types.is_int64, (3, 1, 2, None)),
    (pa.types.is_float64, (3.0, 1.0, 2.0, None)),
    (pa.types.is_string, ("3", "1", "2", None)),
    (pa.types.is_binary, (b"3", b"1", b"2", None)),
    (pa.types.is_date32, (date(2003, 3, 3), date(2001, 1, 1), date(2002, 2, 2), None)),
    (pa.types.is_timestamp, (datetime(2003, 3, 3), datetime(2001, 1, 1), datetime(2002, 2, 2), None)),
    (pa.types.is_decimal, (Decimal(3), Decimal(1), Decimal(2), None)),
)
"""Values of each type, all different. An expression that depends on other rows has other results for single ones."""


class Computation:
    """Columns that are computed from those of a class.

    Args:
        kind: The class of the records.
        expressions: The expressions, or names of columns, by the name of the column that they compute.

    Raises:
        PlanError: An expression names a column that the records do not have, fails, or depends on other rows.
        SchemaError: The class has no columns.
    """

    def __init__(self, kind: type[Any], expressions: Mapping[str, nw.Expr | str]) -> None:
        self._schema = schema_of(kind)
        self._names = list(expressions)
        self._expressions = [_expression(given).alias(name) for name, given in expressions.items()]
        try:
            self.schema: pa.Schema = self.of(self._schema.empty_table()).schema
            """The names and types of the columns."""
        except Exception as error:
            columns = ", ".join(f"{field.name} {field.type}" for field in self._schema)
            raise PlanError(
                f"the columns of {kind.__qualname__} are {columns}. {type(error).__name__}: {error}"
            ) from error
        self._check_rows()

    def of(self, table: pa.Table) -> pa.Table:
        """Return the columns for the rows of ``table``."""
        frame = nw.from_native(table, eager_only=True).with_columns(*self._expressions)
        return frame.select(self._names).to_native()

    def _check_rows(self) -> None:
        sample = pa.table([_sample(field.type) for field in self._schema], self._schema)
        try:
            together = self.of(sample)
            alone = pa.concat_tables([self.of(sample.slice(row, 1)) for row in range(len(sample))])
        except ShapeError as error:
            raise PlanError(f"an expression has another number of rows than the records: {error}") from error
        except Exception:  # a text that is no number, for example
            return
        for name in self._names:
            if repr(together[name].to_pylist()) != repr(alone[name].to_pylist()):  # NaN does not equal itself
                raise PlanError(
                    f"{name!r} depends on other rows than its own, but the rows of a stream do not arrive together. "
                    f"Use aggregate, or a function with state."
                )


class Prepared(ABC, Generic[T]):
    """A function of single records that can be computed for many of them at once. ``kind``: Their class."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self._prepared: tuple[Sequence[Any], dict[int, T]] = (), {}

    @abstractmethod
    def _values(self, table: pa.Table) -> Sequence[T]:
        """The results for the rows of a table."""

    def prepare(self, records: Sequence[Any]) -> None:
        """Compute it for records that ``of_record`` will be asked about."""
        self._prepared = (), {}
        if not len(records):
            return
        with suppress(Exception):  # which the record that causes it will raise again
            values = self._values(table_of(records, self._kind))
            rows = records.rows() if isinstance(records, ArrowRecords) else records
            self._prepared = rows, dict(zip(map(id, rows), values, strict=True))

    def of_record(self, record: Any) -> T:
        """Return the result for a record."""
        if (number := id(record)) in self._prepared[1]:
            return self._prepared[1][number]
        return self._values(rows_to_table([record], self._kind))[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_prepared": ((), {})}


class Condition(Prepared[bool | None]):
    """An expression that is true for some records. Null counts as false.

    Args:
        kind: The class of the records.
        condition: The expression.

    Raises:
        PlanError: As for ``Computation``, or the expression is not a truth value.
        SchemaError: The class has no columns.
    """

    def __init__(self, kind: type[Any], condition: nw.Expr) -> None:
        super().__init__(kind)
        self._computation = Computation(kind, {_CONDITION: condition})
        found = self._computation.schema.field(_CONDITION).type
        if not pa.types.is_boolean(found):
            raise PlanError(f"the condition is a column of {found}, not of truth values. Compare it with something.")

    def of(self, table: pa.Table) -> pa.BooleanArray:
        """Return for each row of ``table`` whether it is true."""
        return in_one_piece(self._computation.of(table)[_CONDITION])

    def _values(self, table: pa.Table) -> Sequence[bool | None]:
        found: list[bool | None] = self.of(table).to_pylist()
        return found


class ExpressionKey(Prepared[Any], ComputedKey):
    """A key selector whose keys are expressions.

    Args:
        kind: The class of the records.
        columns: The expressions, or names of columns.

    Raises:
        PlanError: As for ``Computation``, or a column cannot be that of a key.
        SchemaError: The class has no columns.
    """

    def __init__(self, kind: type[Any], columns: Sequence[nw.Expr | str]) -> None:
        super().__init__(kind)
        given = schema_of(kind)
        wanted = ["key"] if len(columns) == 1 else [f"key_{number}" for number in range(1, len(columns) + 1)]
        self._names = [unused_name(name, given.names) for name in wanted]
        self._computation = Computation(kind, dict(zip(self._names, columns, strict=True)))
        made = [column_type(field.type) for field in self._computation.schema]
        self.types = [one for one, _ in made]
        self._schema = pa.schema(list(zip(self._names, [other for _, other in made], strict=True)))
        self.fields = [name for name in given.names if not self._is_defined_without(name)]
        self.__qualname__ = ", ".join(map(str, columns))

    def _is_defined_without(self, name: str) -> bool:
        try:
            self._computation.of(schema_of(self._kind).empty_table().drop_columns([name]))
        except Exception:  # that of the library for a missing column
            return False
        return True

    def columns_of(self, table: pa.Table) -> list[pa.ChunkedArray]:
        columns: list[pa.ChunkedArray] = self._computation.of(table).cast(self._schema).columns
        return columns

    def _values(self, table: pa.Table) -> Sequence[Any]:
        columns = [column.to_pylist() for column in self.columns_of(table)]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def __call__(self, record: Any) -> Any:
        return self.of_record(record)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        return self._names[index]


def _expression(given: object) -> nw.Expr:
    if isinstance(given, str):
        return nw.col(given)
    if not isinstance(given, nw.Expr):
        raise PlanError(f"{given!r:.80} is not an expression of narwhals, such as nw.col('price') > 100.")
    return given


def _sample(kind: pa.DataType) -> pa.Array:
    if pa.types.is_list(kind):
        return pa.array([[value] for value in _sample(kind.value_type).to_pylist()], kind)
    return pa.array(next(values for is_kind, values in _SAMPLES if is_kind(kind)), kind)


class ExpressionFunction(TableFunction[IN, OUT], BatchFunction, Generic[IN, OUT]):
    """Base class of the functions. They are stateless, so they can run in the tasks that read the source."""

    keeps_nothing = True

    def __init__(self, kind: type[IN]) -> None:
        self.kind = kind

    @property
    def record_types(self) -> tuple[type, type]:
        return self.kind, self.kind

    @property
    def dsv2_tables_of(self) -> type:
        return self.kind

    def dsv2_collect_columns(self, emit: EmitBatch) -> Callable[..., None]:
        return emit

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        output.collect_batch(self._applied(batch))

    def process_record_batch(self, batch: RecordBatch[Any], emit: EmitBatch) -> None:
        try:
            result = self._applied(batch)
        except Exception as error:
            raise FailedRecordError(batch.records) from process_batch_failure(error)
        emit(result)

    @abstractmethod
    def _applied(self, batch: RecordBatch[IN]) -> RecordBatch[OUT]: ...


class WhereFunction(ExpressionFunction[T, T], Generic[T]):
    """Emits the records for which an expression is true. Null counts as false.

    Args:
        kind: The class of the records.
        condition: The expression.

    Raises:
        PlanError: As for ``Condition``.
    """

    def __init__(self, kind: type[T], condition: nw.Expr) -> None:
        super().__init__(kind)
        self._condition = Condition(kind, condition)

    def _applied(self, batch: RecordBatch[T]) -> RecordBatch[T]:
        table = table_of(batch.records, self.kind)
        chosen = self._condition.of(table)
        if chosen.true_count == len(table):
            return batch
        return chosen_records(batch, chosen)


class GatherFunction(ExpressionFunction[T, T], Generic[T]):
    """Emits its records together, so that expressions after it are evaluated for many of them at once."""

    dsv2_inherits_parallelism = True
    dsv2_part_of = "key_by"

    def _applied(self, batch: RecordBatch[T]) -> RecordBatch[T]:
        return batch


class SelectFunction(ExpressionFunction[IN, OUT], Generic[IN, OUT]):
    """Emits a record of other columns for each record.

    Args:
        kind: The class of the records.
        result: The class of the results.
        expressions: What each field of ``result`` is.

    Raises:
        PlanError: As for ``Computation``, or the names or types are not those of the fields of ``result``.
        SchemaError: A class has no columns.
    """

    def __init__(self, kind: type[IN], result: type[OUT], expressions: Mapping[str, nw.Expr | str]) -> None:
        fields = schema_of(result).names
        if set(fields) != expressions.keys():
            missing = ", ".join(repr(name) for name in fields if name not in expressions) or "no field"
            unknown = ", ".join(repr(name) for name in expressions if name not in fields) or "no other"
            raise PlanError(
                f"give an expression for each field of {result.__qualname__}. Missing: {missing}; unknown: {unknown}."
            )
        super().__init__(kind)
        self.result = result
        self._computation = Computation(kind, expressions)
        for field in schema_of(result):
            found = self._computation.schema.field(field.name).type
            if not may_be_cast(found, field.type):
                raise PlanError(
                    f"{field.name} of {result.__qualname__} is {field.type}, but its expression is {found}. Cast the "
                    f"expression, or declare the field with its type."
                )

    @property
    def record_types(self) -> tuple[type, type]:
        return self.kind, self.result

    def _applied(self, batch: RecordBatch[IN]) -> RecordBatch[OUT]:
        computed = self._computation.of(table_of(batch.records, self.kind))
        return RecordBatch(records_of(computed, self.result), batch.timestamps)
