"""``SqlSink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, cast

from dsv2.base.type_variables import T
from dsv2.connectors.row_arguments import check_columns_of, check_key_of
from dsv2.connectors.sql import mysql
from dsv2.connectors.sql.database import Database
from dsv2.connectors.sql.values import check_rows
from dsv2.errors import ConfigurationError, JobError
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import DriverLimit, DriverSink, SinkInfo
from dsv2.sinks.sink import MAX_BYTES, MAX_RECORDS

if TYPE_CHECKING:
    import sqlalchemy as sa

    from dsv2.connectors.sql.ledger import SqlLedger

_WITH_UPSERT = ("sqlite", "duckdb", "postgresql", *mysql.DIALECTS)


class SqlSink(DriverSink[T], Generic[T]):
    """Writes records as rows of a table of a SQL database, exactly once, with SQLAlchemy.

    A micro-batch is one transaction, which also stores the number of the micro-batch in ``batch_table``. A repeated
    micro-batch finds this number and writes nothing. Without ``key``, rows are inserted. With ``key``, a row replaces
    the values of an existing row with the same key (upsert).
    """

    exactly_once = True
    accepts_other_records = True

    def __init__(
        self,
        url: str,
        table: str,
        columns: Sequence[str],
        *,
        row: Callable[[T], Sequence[Any]] = tuple,  # type: ignore[assignment]  # of records that are tuples
        key: Sequence[str] = (),
        deletes: Callable[[T], bool] | None = None,
        batch_table: str = "dsv2_batches",
        options: Mapping[str, Any] | None = None,
        max_records: int | None = MAX_RECORDS,
        max_bytes: int | None = MAX_BYTES,
    ) -> None:
        """Create the sink.

        Args:
            url: The URL of SQLAlchemy, such as ``mysql+pymysql://user:password@host/shop``.
            table: The table as ``name`` or ``schema.name``.
            columns: The names of the columns to write.
            row: Returns the values of ``columns``. Not needed if records are tuples of these values.
            key: The columns that identify a row. They are among ``columns``, and the table has a unique index on them.
                For SQLite, DuckDB, PostgreSQL, MySQL and MariaDB.
            deletes: Returns whether a record deletes the row with its key. Only the values of ``key`` are used then.
            batch_table: The table for the numbers of micro-batches, named like ``table``. It is created if needed;
                several jobs may share it.
            options: Arguments of the driver's ``connect``, for TLS for example. Texts among them are never shown.
            max_records: The most records that a micro-batch may contain. None: any number.
            max_bytes: The most bytes, likewise; see ``CollectSink``.

        Raises:
            ConfigurationError: An argument is invalid, or SQLAlchemy or the driver is not installed.
        """
        check_columns_of("SqlSink", columns)
        check_key_of("SqlSink", columns, key, deletes=deletes is not None)
        self._database = Database("SqlSink", url, options or {})
        if key and self._database.dialect not in _WITH_UPSERT:
            raise ConfigurationError(
                f"SqlSink replaces rows by key in {', '.join(_WITH_UPSERT)}, not in {self._database.dialect}."
            )
        self._table_name = table
        self._columns = tuple(columns)
        self._row = row
        self._key = tuple(key)
        self._deletes = deletes
        self._batch_table = batch_table
        self.dsv2_limit = DriverLimit(max_records, max_bytes)

    def __repr__(self) -> str:
        return f"SqlSink({self._table_name} at {self._database})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return {name: value for name, value in vars(self).items() if name not in ("_inspected", "_ledger")}

    def describe_target(self) -> str:
        return f"{self._table_name} at {self._database}, micro-batches in {self._batch_table}"

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        with self._database.errors(f"Cannot use table {self._batch_table}"), self._database.engine.begin() as opened:
            self._ledger.create(opened)
            self._ledger.is_written(opened, info, batch_id)
        self._check_table()

    def write(self, info: SinkInfo, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        if not any(map(len, batches)):
            return
        changes = self._changes([record for batch in batches for record in batch.rows()])
        with self._database.errors(f"Cannot write table {self._table_name}"), self._database.engine.begin() as opened:
            if not self._ledger.is_written(opened, info, batch_id):
                self._ledger.note(opened, info, batch_id)
                self._apply(opened, *changes)

    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        """Write a micro-batch without a job, for tests."""
        info = SinkInfo("", "", 1)
        self.begin(info, batch_id)
        self.write(info, batches, batch_id)

    def check_record(self, record: T) -> None:
        """Raise an error if the database refuses the row of ``record``. It is written, and taken back."""
        changes = self._changes([record])
        with self._database.errors(f"Cannot write table {self._table_name}"), self._database.engine.connect() as opened:
            try:
                self._apply(opened, *changes)
            finally:
                opened.rollback()

    @cached_property
    def _inspected(self) -> sa.TableClause:
        return self._database.table(self._table_name, self._columns)

    @property
    def _table(self) -> sa.TableClause:
        return self._database.for_statements(self._inspected)

    @cached_property
    def _ledger(self) -> SqlLedger:
        from dsv2.connectors.sql.ledger import SqlLedger

        return SqlLedger(self._batch_table)

    def _check_table(self) -> None:
        table = self._inspected
        if self._database.dialect in mysql.DIALECTS:
            with self._database.errors(f"Cannot open table {self._table_name}"):
                mysql.check_table(self._database.engine, cast("sa.Table", table), self._columns, self._key)

    def _changes(self, records: Sequence[T]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the rows to write, and the keys of rows to delete. Only the last change of a key counts."""
        columns, dialect = self._columns, self._database.dialect
        rows = [self._values(record) for record in records]
        check_rows(dialect, rows, {name: self._inspected.c[name].type for name in columns})
        if (packet := self._database.packet) is not None:
            mysql.check_sizes(rows, packet)
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        if not self._key:
            return named, []
        deleted = [False] * len(records) if self._deletes is None else list(map(self._deletes, records))
        last: dict[tuple[Any, ...], tuple[dict[str, Any], bool]] = {}
        for row, gone in zip(named, deleted, strict=True):
            key = self._key_of(row)
            last.pop(key, None)  # in the order of the last changes: the database may compare texts loosely
            last[key] = row, gone
        written = [row for row, gone in last.values() if not gone]
        return written, [{f"dsv2_{name}": row[name] for name in self._key} for row, gone in last.values() if gone]

    def _values(self, record: T) -> Sequence[Any]:
        values = self._row(record)
        if len(values) != len(self._columns):
            raise JobError(f"A row of {self} has {len(values)} values, but there are {len(self._columns)} columns.")
        return values

    def _key_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        key = tuple(row[name] for name in self._key)
        if None in key:
            raise JobError(f"A row of {self} has None in the key {', '.join(self._key)}.")
        return key

    def _apply(self, opened: sa.Connection, rows: list[dict[str, Any]], deleted: list[dict[str, Any]]) -> None:
        import sqlalchemy as sa

        if deleted:
            table = self._table
            same = [table.c[name] == sa.bindparam(f"dsv2_{name}") for name in self._key]
            opened.execute(sa.delete(table).where(*same), deleted)
        if rows:
            opened.execute(self._statement(), rows)

    def _statement(self) -> Any:
        import sqlalchemy as sa

        if not self._key:
            return sa.insert(self._table)
        others = [name for name in self._columns if name not in self._key]
        if self._database.dialect in mysql.DIALECTS:
            from sqlalchemy.dialects.mysql import insert as into_mysql

            replaced = into_mysql(self._table)
            return replaced.on_duplicate_key_update({name: replaced.inserted[name] for name in others or self._key})
        if self._database.dialect == "sqlite":
            from sqlalchemy.dialects.sqlite import insert
        else:
            from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
        statement = insert(self._table)
        if not others:
            return statement.on_conflict_do_nothing(index_elements=self._key)
        return statement.on_conflict_do_update(
            index_elements=self._key, set_={name: statement.excluded[name] for name in others}
        )
