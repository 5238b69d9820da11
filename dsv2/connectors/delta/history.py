"""The versions of a Delta table, as its source reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

from dsv2.base.secrets import ClientOptions
from dsv2.connectors.delta.errors import named_errors
from dsv2.connectors.files.directory import Directory, FileLocation
from dsv2.connectors.files.parquet import batches_of, open_parquet
from dsv2.errors import JobError

_CACHED_VERSIONS = 64
_PARTITION = "partition."  # before the names of columns that divide the table


class DeltaFile(NamedTuple):
    """A file with rows of a table.

    Attributes:
        path: Its path in the table.
        size: Its size in bytes.
        partition: The values of the columns that divide the table, which are not in the file.
        kept: Whether each of its rows is in the table; at its end, rows that are may be left out. Empty: all are.
    """

    path: str
    size: int
    partition: dict[str, Any]
    kept: Sequence[bool] = ()


class DeltaHistory:
    """The versions of the table at ``path`` (``TableHistory``).

    Args:
        path: The path or URI.
        options: Options for its store.
        skip_changes: Whether versions that delete or update rows are skipped.
    """

    def __init__(self, path: str, options: ClientOptions, *, skip_changes: bool) -> None:
        self._path = path
        self._options = options
        self._skip_changes = skip_changes
        self.rows = lru_cache(_CACHED_VERSIONS)(self._rows)
        self.new_rows = lru_cache(_CACHED_VERSIONS)(self._new_rows)

    @cached_property
    def _table(self) -> DeltaTable:
        table = self._opened(None)
        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            raise JobError(f"The table {self._path} maps names of columns, which DeltaSource does not support.")
        return table

    def refresh(self) -> None:
        """Look for new versions."""
        with named_errors(f"Cannot read the table {self._path}", self._options):
            self._table.update_incremental()

    def last(self) -> int:
        """Return the last version."""
        return self._table.version()

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return [field.name for field in self._schema]

    def has_zone(self, column: str) -> bool:
        """Return whether a column has instants: timestamps with a time zone."""
        kind = self._schema.field(column).type
        return bool(pa.types.is_timestamp(kind) and kind.tz is not None)

    def after(self, version: int) -> int | None:
        """Return the version that follows; None if there is none. Raises ``JobError`` if ``version`` is not known."""
        if version > self.last():
            raise JobError(
                f"The table {self._path} ends with version {self.last()}, before position {version}: it was replaced "
                f"by another table. Start the job with a new checkpoint_location."
            )
        return version + 1 if version < self.last() else None

    def batches(self, file: DeltaFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        schema = pa.schema([self._schema.field(name) for name in columns])
        try:
            source = self._directory.file(file.path)
            with open_parquet(source) as opened:
                stored = [name for name in columns if name in opened.schema_arrow.names]
                first = 0
                for group in range(opened.num_row_groups):
                    for batch in batches_of(source, opened, group, stored):
                        kept = [*file.kept[first : first + len(batch)]]
                        first += len(batch)
                        if not all(kept):
                            batch = batch.filter(pa.array(kept + [True] * (len(batch) - len(kept))))
                        yield _completed(batch, schema, file.partition)
        except FileNotFoundError as error:
            raise JobError(
                f"{self._path} has no file {file.path} any more. The table was vacuumed before the job had read it. "
                f"Start the job with a new checkpoint_location."
            ) from error

    def _rows(self, version: int) -> Sequence[DeltaFile]:
        """Return the files with all rows of a version."""
        table = self._opened(version)
        with named_errors(f"Cannot read version {version} of {self._path}", self._options):
            vectors = pa.table(table.deletion_vectors()).to_pylist()
            actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        root = unquote(table.table_uri).rstrip("/") + "/"
        kept = {unquote(one["filepath"]).removeprefix(root): one["selection_vector"] for one in vectors}
        files = [
            DeltaFile(
                unquote(one["path"]),
                one["size_bytes"],
                {name.removeprefix(_PARTITION): value for name, value in one.items() if name.startswith(_PARTITION)},
                kept.pop(unquote(one["path"]), ()),
            )
            for one in actions
        ]
        assert not kept  # a deletion vector is that of a file
        return sorted(files, key=lambda file: file.path)

    def _new_rows(self, version: int) -> Sequence[DeltaFile]:
        """Return the files with the rows that a version adds. Raises ``JobError``."""
        log = self._directory.read(f"_delta_log/{version:020}.json")
        if log is None:
            raise JobError(
                f"The log of {self._path} has no version {version} any more. It was cleaned up before the job had read "
                f"it. Start the job with a new checkpoint_location."
            )
        actions = [json.loads(line) for line in log.splitlines() if line.strip()]
        if any("remove" in one and one["remove"].get("dataChange", True) for one in actions):
            if self._skip_changes:
                return []
            raise JobError(
                f"Version {version} of {self._path} deletes or updates rows. DeltaSource reads rows that are added. "
                f"Pass skip_changes=True to leave out such versions."
            )
        added = [one["add"] for one in actions if "add" in one and one["add"].get("dataChange", True)]
        if any(one.get("deletionVector") for one in added):
            raise JobError(
                f"Version {version} of {self._path} adds files with deletion vectors, which DeltaSource only supports "
                f"in the version that it reads as a whole. Start the job with a new checkpoint_location."
            )
        return sorted(
            (DeltaFile(unquote(one["path"]), one["size"], self._partition(one)) for one in added),
            key=lambda file: file.path,
        )

    def _partition(self, added: dict[str, Any]) -> dict[str, Any]:
        return {
            name: pa.scalar(text or None, pa.string()).cast(self._schema.field(name).type).as_py()
            for name, text in added["partitionValues"].items()
        }

    def _opened(self, version: int | None) -> DeltaTable:
        with named_errors(f"Cannot open the table {self._path}", self._options):
            options = {name: str(value) for name, value in self._options.items()} or None
            return DeltaTable(self._path, version=version, storage_options=options)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    @cached_property
    def _directory(self) -> Directory:
        files = pafs.PyFileSystem(DeltaStorageHandler.from_table(self._table._table))
        return FileLocation("", files, "DeltaSource").open()


def _completed(batch: pa.RecordBatch, schema: pa.Schema, partition: dict[str, Any]) -> pa.RecordBatch:
    """Return a batch with all columns of ``schema``. Those that are not in the file have a value or are null."""
    columns = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.repeat(pa.scalar(partition.get(field.name), field.type), len(batch))
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)
