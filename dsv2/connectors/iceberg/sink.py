"""``IcebergSink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.secrets import ClientOptions
from dsv2.base.type_variables import T
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.lakehouse.sink import LakehouseSink
from dsv2.errors import ConfigurationError
from dsv2.sinks import DriverLimit
from dsv2.sinks.sink import MAX_BYTES, MAX_RECORDS

if TYPE_CHECKING:
    from dsv2.connectors.iceberg.table import OpenIcebergTable


class IcebergSink(LakehouseSink[T], Generic[T]):
    """Writes records as rows of an Iceberg table, exactly once.

    A micro-batch is one commit of the driver. It also sets the number of the micro-batch, as a property of the table. A
    repeated micro-batch finds this number and writes nothing. Without ``key``, rows are appended. With ``key``, a row
    replaces the existing row with the same key, whose file is written again, and of several records with the same key
    in a micro-batch the last one counts.

    Source: Flink ``IcebergSink``, which stores the number of its checkpoint with a snapshot.
    """

    def __init__(
        self,
        table: str,
        schema: type | str,
        *,
        catalog: str = "default",
        partition_by: Sequence[str] = (),
        key: Sequence[str] = (),
        row: Callable[[T], Any] | None = None,
        deletes: Callable[[T], bool] | None = None,
        merge_schema: bool = False,
        compact_every: int | None = None,
        properties: Mapping[str, str] | None = None,
        catalog_options: Mapping[str, str] | None = None,
        max_records: int | None = MAX_RECORDS,
        max_bytes: int | None = MAX_BYTES,
    ) -> None:
        """Create the sink.

        Args:
            table: The table as ``namespace.name``. Both are created if needed.
            schema: The columns: a dataclass or NamedTuple class, or Spark's DDL string for tuples and dicts.
            catalog: The name of the catalog. Its settings are those of pyiceberg's configuration file and of
                ``catalog_options``.
            partition_by: The columns that divide the table if the sink creates it. An existing table may be divided by
                any expression.
            key: The columns that identify a row.
            row: Returns the row of a record, of ``schema``. Not needed if records are rows.
            deletes: Returns whether a record deletes the row with its key. Only the values of ``key`` are used then.
            merge_schema: Whether columns that the table does not have are added to it when the job starts.
            compact_every: Small files are merged after each so many micro-batches, up to the target size of the table
                (``write.target-file-size-bytes``), 128 MiB at most. Those that they replace remain until
                Spark or Trino expires their snapshots. None: files are not merged.
            properties: Properties of the table if the sink creates it, such as ``write.target-file-size-bytes``.
            catalog_options: Options of pyiceberg for the catalog and its store, such as ``type`` and ``uri``. Secrets
                among them are never shown.
            max_records: The most records that a micro-batch may contain. None: any number.
            max_bytes: The most bytes, likewise; see ``CollectSink``.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
            SchemaError: The schema, the key or the partitioning is not valid.
        """
        require_client_library("pyiceberg", "iceberg", "IcebergSink")
        require_client_library("pyarrow", "iceberg", "IcebergSink")
        if not all(table.split(".")[:2]) or "." not in table:
            raise ConfigurationError(f"IcebergSink requires a table as namespace.name, not {table!r}.")
        limit = DriverLimit(max_records, max_bytes)
        super().__init__(schema, partition_by, key, row, deletes, merge_schema, compact_every, limit)
        self._name = table
        self._catalog = catalog
        self._properties = dict(properties or {})
        self._options = ClientOptions(catalog_options or {})

    def describe_target(self) -> str:
        return f"{self._name} of catalog {self._catalog}"

    def open_table(self) -> OpenIcebergTable:
        from dsv2.connectors.iceberg.table import OpenIcebergTable

        return OpenIcebergTable(
            self._name, self._catalog, self._schema, self._partition_by, self._properties, self._options
        )
