"""The sink of a lakehouse table: it commits each micro-batch once, with the number of the micro-batch."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

from dsv2.base.type_variables import T
from dsv2.checks.arguments import check_at_least_one
from dsv2.connectors.lakehouse.columns import Field, check_key, new_columns
from dsv2.errors import ConfigurationError, JobError
from dsv2.file_log.schema import check_columns, json_schema
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import DriverLimit, DriverSink, SinkInfo

if TYPE_CHECKING:
    from dsv2.connectors.lakehouse.rows import Changes, RowWriter

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 10  # of a commit, when other writers commit at the same time


class Written(NamedTuple):
    """The last micro-batch that a table has of a sink.

    Attributes:
        batch_id: The micro-batch.
        run: The run that has written it, as a number.
    """

    batch_id: int
    run: int


class ConflictError(Exception):
    """Another writer has committed at the same time."""


class OpenTable(Protocol):
    """An open table."""

    @property
    def columns(self) -> Sequence[Field]:
        """Its columns, as Spark writes them in JSON."""

    @property
    def partitions(self) -> Sequence[str] | None:
        """The columns that divide it; None if it is divided by something else."""

    def refresh(self) -> None:
        """Read its last version."""

    def add_columns(self, columns: Sequence[Field]) -> None:
        """Add columns."""

    def written(self, sink: str) -> Written | None:
        """Return the last micro-batch of a sink; None if it has none."""

    def commit(self, changes: Changes, key: Sequence[str], sink: str, written: Written) -> None:
        """Commit changes to the version that was read last, with ``written``. Raises ``ConflictError``."""

    def merge_small_files(self) -> None:
        """Merge small files of the version that was read last. Raises ``ConflictError``."""


class LakehouseSink(DriverSink[T], Generic[T]):
    """Base class of the sinks of lakehouse tables.

    The table stores the number of a micro-batch with its rows, in one commit. A repeated micro-batch finds the number
    and writes nothing.
    """

    exactly_once = True
    accepts_other_records = True

    def __init__(
        self,
        schema: type | str,
        partition_by: Sequence[str],
        key: Sequence[str],
        row: Callable[[T], Any] | None,
        deletes: Callable[[T], bool] | None,
        merge_schema: bool,
        compact_every: int | None,
        limit: DriverLimit,
    ) -> None:
        """Check the arguments. Raises ``ConfigurationError`` or ``SchemaError``."""
        for name, names in (("partition_by", partition_by), ("key", key)):
            if isinstance(names, str) or len(set(names)) < len(names):
                raise ConfigurationError(f"{name} must be a list of different columns, not {names!r}.")
        if deletes is not None and not key:
            raise ConfigurationError(f"{type(self).__name__} deletes rows by key. Pass a key, or omit deletes.")
        check_at_least_one(compact_every=compact_every)
        self.schema = schema
        self._schema = json_schema(schema)
        check_columns(self._schema, partition_by)
        check_key(self._schema["fields"], key)
        self._partition_by = tuple(partition_by)
        self._key = tuple(key)
        self._row = row
        self._deletes = deletes
        self._merge_schema = merge_schema
        self._compact_every = compact_every
        self.dsv2_limit = limit
        self._table: OpenTable

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open table. Only the driver uses it, and tasks that check records get a copy."""
        return {name: value for name, value in vars(self).items() if name != "_table"}

    @abstractmethod
    def open_table(self) -> OpenTable:
        """Open the table, which is created if there is none."""

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        self._table = table = self.open_table()
        if self._partition_by and table.partitions != list(self._partition_by):
            parts = "other expressions" if table.partitions is None else ", ".join(table.partitions) or "nothing"
            raise JobError(f"The table is partitioned by {parts}, not by {', '.join(self._partition_by)}.")
        if new := new_columns(self._schema["fields"], table.columns, may_add=self._merge_schema):
            table.add_columns(new)
            table.refresh()
        self._is_written(info, batch_id)

    def write(self, info: SinkInfo, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        if not any(map(len, batches)):
            return
        changes, table = self._rows.changes(batches), self._table
        for _ in range(_ATTEMPTS):
            table.refresh()
            if self._is_written(info, batch_id):
                return
            try:
                table.commit(changes, self._key, info.name, Written(batch_id, _number_of(info.run.run_id)))
            except ConflictError:
                continue
            if self._compact_every is not None and (batch_id + 1) % self._compact_every == 0:
                self._merge_small_files()
            return
        raise JobError(f"{_ATTEMPTS} attempts to commit conflicted with other writers of the table.")

    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        """Write a micro-batch without a job, for tests."""
        info = SinkInfo("", "", 1)
        self.begin(info, batch_id)
        self.write(info, batches, batch_id)

    def check_record(self, record: T) -> None:
        """Raise an error if ``record`` does not fit the schema."""
        self._rows.changes([RecordBatch([record])])

    @property
    def record_types(self) -> Collection[type]:
        return (self.schema,) if isinstance(self.schema, type) and self._row is None else ()

    @property
    def dsv2_takes_columns(self) -> bool:
        return self._row is None and self._deletes is None

    @property
    def dsv2_why_rows(self) -> str:
        return "" if self.dsv2_takes_columns else "it has a function row or deletes"

    @property
    def _rows(self) -> RowWriter[T]:
        from dsv2.connectors.lakehouse.rows import RowWriter  # which imports Arrow

        return RowWriter(self._schema, self._key, self._row, self._deletes, repr(self))

    def _merge_small_files(self) -> None:
        self._table.refresh()
        try:
            self._table.merge_small_files()
        except ConflictError:
            _LOG.warning("Files of %s were not merged: another writer has changed it.", self.describe_target())

    def _is_written(self, info: SinkInfo, batch_id: int) -> bool:
        written = self._table.written(info.name)
        if written is None:
            return False
        known = {_number_of(run): run for run in (*info.run.earlier, info.run.run_id)}
        return info.is_written(batch_id, written.batch_id, known.get(written.run, ""))


def _number_of(run_id: str) -> int:
    return int.from_bytes(sha256(run_id.encode()).digest()[:7], "big")
