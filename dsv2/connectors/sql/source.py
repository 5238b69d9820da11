"""``SqlSource``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import check_whole_number
from dsv2.connectors.row_arguments import check_columns_of
from dsv2.connectors.sql.database import Database
from dsv2.errors import JobError
from dsv2.sources import DataclassSerializer, Portion, SplitBatch, SplitSource
from dsv2.sources.shared_parts import DecodingSource, FollowingSource

if TYPE_CHECKING:
    import sqlalchemy as sa

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class SqlRange:
    """The rows of a table up to ``position``, which have been read.

    Attributes:
        position: The greatest number of them; None: none have been read.
        last: The number with which a bounded source ends.
        is_bounded: Whether it ends.
    """

    position: int | None = None
    last: int | None = None
    is_bounded: bool = True

    @property
    def split_id(self) -> str:
        """The same for all, because the rows of a table have one order."""
        return "rows"


class SqlSource(DecodingSource[T_co], FollowingSource, SplitSource[T_co, SqlRange], Generic[T_co]):
    """Reads the rows of a table or view of a SQL database in the order of a number, with SQLAlchemy.

    Each row has another number, and rows that are added later have greater ones: an identity or AUTO_INCREMENT column.
    A row that becomes visible after one with a greater number was read is missed, so transactions that insert rows must
    not overlap; or read a view that leaves out the last seconds. Changes of rows are not noticed. One subtask reads;
    distribute the records behind the source with ``shuffle`` or ``key_by``.

    Source: Kafka Connect's JDBC source, mode "incrementing".
    """

    split_serializer = DataclassSerializer(SqlRange)

    def __init__(
        self,
        url: str,
        table: str,
        columns: Sequence[str],
        decode: Callable[[dict[str, Any]], T_co],
        *,
        by: str,
        discovery_interval: timedelta | None = None,
        rows_per_batch: int = 100_000,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the source.

        Args:
            url: The URL of SQLAlchemy, valid on the driver and on all workers.
            table: The table or view as ``name`` or ``schema.name``.
            columns: The names of the columns to read.
            decode: Creates the record from a row, a dict by column name.
            by: The column of numbers.
            discovery_interval: None: the source is bounded, and reads the rows that exist when the job first starts.
                Otherwise it is unbounded. It looks for new rows before each micro-batch.
            rows_per_batch: The most rows of a micro-batch.
            options: Arguments of the driver's ``connect``. Texts among them are never shown.

        Raises:
            ConfigurationError: An argument is invalid, or SQLAlchemy or the driver is not installed.
        """
        check_columns_of("SqlSource", columns)
        check_whole_number(rows_per_batch, "rows_per_batch")
        super().__init__(discovery_interval)
        self._database = Database("SqlSource", url, options or {})
        self._table_name = table
        self._columns = tuple(columns)
        self._decode = decode
        self._by = by
        self.limit_per_batch = rows_per_batch
        self._available: int | None = None

    def __repr__(self) -> str:
        return f"SqlSource({self._table_name} at {self._database})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return {name: value for name, value in vars(self).items() if name != "_table"}

    def refresh(self) -> None:
        import sqlalchemy as sa

        self._available = self._number(sa.select(sa.func.max(self._number_column)))

    def discover(self) -> list[SqlRange]:
        return [SqlRange(last=self._available if self.bounded else None, is_bounded=self.bounded)]

    def advance(self, split: SqlRange, limit: int | None, /) -> Portion[SqlRange] | None:
        import sqlalchemy as sa

        end = split.last if split.is_bounded else self._available
        if end is None or (split.position is not None and end <= split.position):
            return Portion(split, 1, last=True) if split.is_bounded else None
        some = sa.select(self._number_column).where(*self._between(split.position, end)).order_by(self._number_column)
        numbers = (some if limit is None else some.limit(limit)).subquery()
        with self._errors(), self._database.engine.connect() as opened:
            stop, size = opened.execute(sa.select(sa.func.max(numbers.c[self._by]), sa.func.count())).one()
        stop = end if stop is None else self._checked(stop)  # None: rows were deleted
        return Portion(replace(split, position=stop), max(size, 1), split.is_bounded and stop == end)

    def read(self, start: SqlRange, stop: SqlRange, /) -> Iterator[SplitBatch[T_co]]:
        import sqlalchemy as sa

        if stop.position is None or stop.position == start.position:
            return
        number, wanted = self._number_column, [self._table.c[name] for name in self._columns]
        query = sa.select(number.label("dsv2_number"), *wanted).where(*self._between(start.position, stop.position))
        with self._errors(), self._database.engine.connect() as opened:
            rows = opened.execution_options(yield_per=_ROWS_AT_ONCE).execute(query.order_by(number))
            for some in rows.partitions(_ROWS_AT_ONCE):
                numbers = [row[0] for row in some]
                values = [dict(zip(self._columns, row[1:], strict=True)) for row in some]
                yield SplitBatch(values, self._decode, offsets=lambda numbers=numbers: numbers)  # type: ignore[misc]

    @cached_property
    def _table(self) -> sa.TableClause:
        columns = [*dict.fromkeys([*self._columns, self._by])]
        return self._database.for_statements(self._database.table(self._table_name, columns))

    @property
    def _number_column(self) -> Any:
        return self._table.c[self._by]

    def _between(self, start: int | None, stop: int) -> list[Any]:
        number = self._number_column
        return [number <= stop] if start is None else [number > start, number <= stop]

    def _number(self, query: sa.Select[Any]) -> int | None:
        with self._errors(), self._database.engine.connect() as opened:
            found = opened.execute(query).scalar_one()
        return None if found is None else self._checked(found)

    def _checked(self, number: Any) -> int:
        if not isinstance(number, int):
            raise JobError(f"{self} is read by {self._by!r}, which has {number!r}. It must be a whole number.")
        return number

    def _errors(self) -> Any:
        return self._database.errors(f"Cannot read table {self._table_name}")
