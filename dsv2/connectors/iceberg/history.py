"""The snapshots of an Iceberg table, as its source reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, ancestors_of
from pyiceberg.types import TimestamptzType

from dsv2.base.secrets import ClientOptions
from dsv2.connectors.iceberg.errors import named_errors
from dsv2.connectors.iceberg.small_files import only_merges_files
from dsv2.errors import JobError

_CACHED_SNAPSHOTS = 64
_NO_SNAPSHOT = 0  # the version of a table without any


class IcebergFile(NamedTuple):
    """A file with rows of a table.

    Attributes:
        path: Its path.
        size: Its size in bytes.
        task: Reads it, without rows that were deleted.
    """

    path: str
    size: int
    task: FileScanTask


class IcebergHistory:
    """The snapshots of the table ``name`` (``TableHistory``). A version is the id of a snapshot.

    Args:
        name: The table.
        catalog: Its catalog.
        options: Options of the catalog and of the store.
        skip_changes: Whether snapshots that delete or replace rows are skipped.
    """

    def __init__(self, name: str, catalog: str, options: ClientOptions, *, skip_changes: bool) -> None:
        self._name = name
        self._catalog = catalog
        self._options = options
        self._skip_changes = skip_changes
        self._following: dict[int, int] = {}  # the snapshot after each
        self.rows = lru_cache(_CACHED_SNAPSHOTS)(self._rows)
        self.new_rows = lru_cache(_CACHED_SNAPSHOTS)(self._new_rows)

    @cached_property
    def _table(self) -> Table:
        with named_errors(f"Cannot open the table {self._name}", self._options):
            options = {name: str(value) for name, value in self._options.items()}
            table = load_catalog(self._catalog, **options).load_table(self._name)
        self._note_snapshots(table)
        return table

    def refresh(self) -> None:
        """Look for new versions."""
        with named_errors(f"Cannot read the table {self._name}", self._options):
            self._table.refresh()
        self._note_snapshots(self._table)

    def last(self) -> int:
        """Return the last version; that before the first one if there is none."""
        snapshot = self._table.current_snapshot()
        return _NO_SNAPSHOT if snapshot is None else snapshot.snapshot_id

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return [field.name for field in self._table.schema().fields]

    def has_zone(self, column: str) -> bool:
        """Return whether a column has instants: timestamps with a time zone."""
        return isinstance(self._table.schema().find_type(column), TimestamptzType)

    def after(self, version: int) -> int | None:
        """Return the version that follows; None if there is none. Raises ``JobError`` if ``version`` is not known."""
        if version not in self._following and version != self.last():
            raise self._missing(version)
        return self._following.get(version)

    def batches(self, file: IcebergFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        table = self._table
        scan = ArrowScan(table.metadata, table.io, table.schema().select(*columns), AlwaysTrue())
        with named_errors(f"Cannot read {file.path} of {self._name}", self._options):
            yield from (batch.select(columns) for batch in scan.to_record_batches([file.task]))

    def _note_snapshots(self, table: Table) -> None:
        ids = [snapshot.snapshot_id for snapshot in ancestors_of(table.current_snapshot(), table.metadata)]
        self._following = dict(zip(ids[1:], ids, strict=False))
        if ids:
            self._following[_NO_SNAPSHOT] = ids[-1]

    def _rows(self, version: int) -> Sequence[IcebergFile]:
        """Return the files with all rows of a version."""
        if version == _NO_SNAPSHOT:
            return []
        with named_errors(f"Cannot read snapshot {version} of {self._name}", self._options):
            return _files(self._table.scan(snapshot_id=version).plan_files())

    def _new_rows(self, version: int) -> Sequence[IcebergFile]:
        """Return the files with the rows that a version adds. Raises ``JobError``."""
        if version == _NO_SNAPSHOT:
            return []
        with named_errors(f"Cannot read snapshot {version} of {self._name}", self._options):
            snapshot = self._table.snapshot_by_id(version)
            if snapshot is None:
                raise self._missing(version)
            summary = snapshot.summary
            operation = Operation.OVERWRITE if summary is None else summary.operation
            if operation is Operation.REPLACE or (summary is not None and only_merges_files(summary)):
                return []
            if operation is Operation.APPEND:
                before = snapshot.parent_snapshot_id
                if before is not None and self._table.snapshot_by_id(before) is None:
                    before = None  # it expired, and this is the oldest one
                scan = self._table.incremental_append_scan(
                    from_snapshot_id_exclusive=before, to_snapshot_id_inclusive=version
                )
                return _files(scan.plan_files())
        if self._skip_changes:
            return []
        raise JobError(
            f"Snapshot {version} of {self._name} deletes or replaces rows. IcebergSource reads rows that are added. "
            f"Pass skip_changes=True to leave out such snapshots."
        )

    def _missing(self, version: int) -> JobError:
        return JobError(
            f"The table {self._name} has no snapshot {version} any more. It expired, or the table was rolled back, "
            f"before the job had read it and what follows. Start the job with a new checkpoint_location."
        )


def _files(tasks: Iterable[FileScanTask]) -> list[IcebergFile]:
    files = (IcebergFile(task.file.file_path, task.file.file_size_in_bytes, task) for task in tasks)
    return sorted(files, key=lambda file: file.path)
