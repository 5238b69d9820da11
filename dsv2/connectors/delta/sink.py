"""``DeltaSink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.secrets import ClientOptions
from dsv2.base.type_variables import T
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.lakehouse.sink import LakehouseSink
from dsv2.sinks import DriverLimit
from dsv2.sinks.paths import without_password
from dsv2.sinks.sink import MAX_BYTES, MAX_RECORDS

if TYPE_CHECKING:
    from dsv2.connectors.delta.table import OpenDeltaTable


class DeltaSink(LakehouseSink[T], Generic[T]):
    """Writes records as rows of a Delta table, exactly once.

    A micro-batch is one version of the table, committed on the driver. It also stores the number of the micro-batch, as
    a transaction of an application. A repeated micro-batch finds this number and writes nothing. Without ``key``, rows
    are inserted. With ``key``, a row replaces the existing row with the same key (``MERGE``), and of several records
    with the same key in a micro-batch the last one counts.

    Source: Delta's protocol, "Transaction Identifiers".
    """

    def __init__(
        self,
        path: str | PathLike[str],
        schema: type | str,
        *,
        partition_by: Sequence[str] = (),
        key: Sequence[str] = (),
        row: Callable[[T], Any] | None = None,
        deletes: Callable[[T], bool] | None = None,
        merge_schema: bool = False,
        compact_every: int | None = None,
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        max_records: int | None = MAX_RECORDS,
        max_bytes: int | None = MAX_BYTES,
    ) -> None:
        """Create the sink.

        Args:
            path: The table: a path, or a URI such as ``s3://bucket/table``. It is created if needed.
            schema: The columns: a dataclass or NamedTuple class, or Spark's DDL string for tuples and dicts.
            partition_by: The columns that divide the table. Empty: those of the table, if it exists.
            key: The columns that identify a row.
            row: Returns the row of a record, of ``schema``. Not needed if records are rows.
            deletes: Returns whether a record deletes the row with its key. Only the values of ``key`` are used then.
            merge_schema: Whether columns that the table does not have are added to it when the job starts.
            compact_every: Small files are merged after each so many micro-batches. Those that they replace remain until
                the table is vacuumed. None: files are not merged.
            properties: Properties of the table if the sink creates it, such as ``delta.enableChangeDataFeed``.
            storage_options: Options of deltalake for the store. Secrets among them are never shown.
            max_records: The most records that a micro-batch may contain. None: any number.
            max_bytes: The most bytes, likewise; see ``CollectSink``.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
            SchemaError: The schema, the key or the partitioning is not valid.
        """
        require_client_library("deltalake", "delta", "DeltaSink")
        require_client_library("pyarrow", "delta", "DeltaSink")
        limit = DriverLimit(max_records, max_bytes)
        super().__init__(schema, partition_by, key, row, deletes, merge_schema, compact_every, limit)
        self._path = fspath(path)
        self._properties = dict(properties or {})
        self._options = ClientOptions(storage_options or {})

    def describe_target(self) -> str:
        return without_password(self._path)

    def open_table(self) -> OpenDeltaTable:
        from dsv2.connectors.delta.table import OpenDeltaTable

        return OpenDeltaTable(self._path, self._schema, self._partition_by, self._properties, self._options)
