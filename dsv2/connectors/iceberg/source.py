"""``IcebergSource``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Generic

from dsv2.base.secrets import ClientOptions
from dsv2.base.type_variables import T_co
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.lakehouse.source import LakehouseSource

if TYPE_CHECKING:
    from dsv2.connectors.iceberg.history import IcebergHistory


class IcebergSource(LakehouseSource[T_co], Generic[T_co]):
    """Reads an Iceberg table, and the rows that later snapshots append, as columns of records.

    Snapshots that only merge files add no rows. Snapshots that delete or replace rows fail the job, unless
    ``skip_changes`` is set.

    Source: Flink ``IcebergSource``.
    """

    def __init__(
        self,
        table: str,
        record_type: type[T_co],
        *,
        catalog: str = "default",
        starting_snapshot: int | None = None,
        skip_changes: bool = False,
        discovery_interval: timedelta | None = None,
        bytes_per_batch: int | None = None,
        catalog_options: Mapping[str, str] | None = None,
    ) -> None:
        """Create the source.

        Args:
            table: The table as ``namespace.name``.
            record_type: The class of the records, a NamedTuple class or dataclass. Its fields are columns of the table.
            catalog: The name of the catalog. Its settings are those of pyiceberg's configuration file and of
                ``catalog_options``, on the driver and on all workers.
            starting_snapshot: The id of the first snapshot whose new rows are read. None: the current snapshot at the
                first start is read as a whole.
            skip_changes: Whether snapshots that delete or replace rows are left out, with the rows that they add.
            discovery_interval: None: the source is bounded, and ends with the current snapshot at the first start.
                Otherwise it is unbounded. It looks for new snapshots before each micro-batch.
            bytes_per_batch: The approximate size of a micro-batch in bytes of files (default: 128 MiB).
            catalog_options: Options of pyiceberg for the catalog and its store. Secrets among them are never shown.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
            SchemaError: The class has no columns.
        """
        require_client_library("pyiceberg", "iceberg", "IcebergSource")
        require_client_library("pyarrow", "iceberg", "IcebergSource")
        super().__init__(record_type, starting_snapshot, discovery_interval, bytes_per_batch)
        self._name = table
        self._catalog = catalog
        self._skip_changes = skip_changes
        self._options = ClientOptions(catalog_options or {})

    def __repr__(self) -> str:
        return f"IcebergSource({self._name} of catalog {self._catalog})"

    def open_history(self) -> IcebergHistory:
        from dsv2.connectors.iceberg.history import IcebergHistory

        return IcebergHistory(self._name, self._catalog, self._options, skip_changes=self._skip_changes)
