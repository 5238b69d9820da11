"""``DeltaSource``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from os import PathLike, fspath
from typing import TYPE_CHECKING, Generic

from dsv2.base.secrets import ClientOptions
from dsv2.base.type_variables import T_co
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.lakehouse.source import LakehouseSource
from dsv2.sinks.paths import without_password

if TYPE_CHECKING:
    from dsv2.connectors.delta.history import DeltaHistory


class DeltaSource(LakehouseSource[T_co], Generic[T_co]):
    """Reads a Delta table, and the rows that later versions add, as columns of records.

    Versions that only merge files add no rows. Versions that delete or update rows fail the job, unless
    ``skip_changes`` is set.

    Source: Spark's streaming reads of Delta tables.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        record_type: type[T_co],
        *,
        starting_version: int | None = None,
        skip_changes: bool = False,
        discovery_interval: timedelta | None = None,
        bytes_per_batch: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Create the source.

        Args:
            path: The table: a path, or a URI such as ``s3://bucket/table``, valid on the driver and on all workers.
            record_type: The class of the records, a NamedTuple class or dataclass. Its fields are columns of the table.
            starting_version: The first version whose new rows are read. None: the last version at the first start is
                read as a whole.
            skip_changes: Whether versions that delete or update rows are left out, with the rows that they add.
            discovery_interval: None: the source is bounded, and ends with the last version at the first start.
                Otherwise it is unbounded. It looks for new versions before each micro-batch.
            bytes_per_batch: The approximate size of a micro-batch in bytes of files (default: 128 MiB).
            storage_options: Options of deltalake for the store. Secrets among them are never shown.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
            SchemaError: The class has no columns.
        """
        require_client_library("deltalake", "delta", "DeltaSource")
        require_client_library("pyarrow", "delta", "DeltaSource")
        super().__init__(record_type, starting_version, discovery_interval, bytes_per_batch)
        self._path = fspath(path)
        self._skip_changes = skip_changes
        self._options = ClientOptions(storage_options or {})

    def __repr__(self) -> str:
        return f"DeltaSource({without_password(self._path)})"

    def open_history(self) -> DeltaHistory:
        from dsv2.connectors.delta.history import DeltaHistory

        return DeltaHistory(self._path, self._options, skip_changes=self._skip_changes)
