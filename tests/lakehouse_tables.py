"""Lakehouse tables on the local disk, for tests of their connectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsv2.connectors.lakehouse.sink import LakehouseSink
from dsv2.connectors.lakehouse.source import LakehouseSource


class TableOnDisk(ABC):
    """A table in ``folder``, which its format's own library reads and changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def sink(self, schema: Any, **options: Any) -> LakehouseSink[Any]:
        """Create a sink for the table."""

    @abstractmethod
    def source(self, kind: type[Any], *, starting: int | None = None, **options: Any) -> LakehouseSource[Any]:
        """Create a source of the table. ``starting``: The first version whose new rows are read."""

    @abstractmethod
    def versions(self) -> list[int]:
        """Return the versions that have rows."""

    @abstractmethod
    def delete(self, condition: str) -> None:
        """Delete rows, as another writer does."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return its rows."""

    @abstractmethod
    def files(self) -> list[str]:
        """Return the paths of the files that have its rows."""

    @abstractmethod
    def commits(self) -> int:
        """Return how often rows were committed."""

    @abstractmethod
    def append(self, rows: list[dict[str, Any]]) -> None:
        """Append rows, as another writer does."""


class DeltaOnDisk(TableOnDisk):
    """A Delta table."""

    @property
    def path(self) -> str:
        """Its path."""
        return str(self.folder / "table")

    def sink(self, schema: Any, **options: Any) -> LakehouseSink[Any]:
        from dsv2.connectors.delta import DeltaSink

        return DeltaSink(self.path, schema, **options)

    def source(self, kind: type[Any], *, starting: int | None = None, **options: Any) -> LakehouseSource[Any]:
        from dsv2.connectors.delta import DeltaSource

        return DeltaSource(self.path, kind, starting_version=starting, **options)

    def versions(self) -> list[int]:
        from deltalake import DeltaTable

        return [*range(1, DeltaTable(self.path).version() + 1)]  # the first one has created it

    def delete(self, condition: str) -> None:
        from deltalake import DeltaTable

        DeltaTable(self.path).delete(condition)

    def rows(self) -> list[dict[str, Any]]:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        from dsv2.connectors.files.python_values import python_rows

        table = pa.table(QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT * FROM t"))
        schema = pa.schema(DeltaTable(self.path).schema().to_arrow())
        return [row for batch in table.cast(schema).to_batches() for row in python_rows(batch)]

    def files(self) -> list[str]:
        from deltalake import DeltaTable

        return DeltaTable(self.path).file_uris()

    def commits(self) -> int:
        from deltalake import DeltaTable

        return sum(one["operation"] in ("WRITE", "MERGE") for one in DeltaTable(self.path).history())

    def append(self, rows: list[dict[str, Any]]) -> None:
        import pyarrow as pa
        from deltalake import DeltaTable, write_deltalake

        schema = pa.schema(DeltaTable(self.path).schema().to_arrow())
        write_deltalake(self.path, pa.Table.from_pylist(rows, schema), mode="append")


class IcebergOnDisk(TableOnDisk):
    """An Iceberg table."""

    name = "shop.table"

    @property
    def options(self) -> dict[str, str]:
        """The options of its catalog."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    def table(self) -> Any:
        """Open it."""
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.options).load_table(self.name)

    def sink(self, schema: Any, **options: Any) -> LakehouseSink[Any]:
        from dsv2.connectors.iceberg import IcebergSink

        return IcebergSink(self.name, schema, catalog_options=self.options, **options)

    def source(self, kind: type[Any], *, starting: int | None = None, **options: Any) -> LakehouseSource[Any]:
        from dsv2.connectors.iceberg import IcebergSource

        return IcebergSource(self.name, kind, starting_snapshot=starting, catalog_options=self.options, **options)

    def versions(self) -> list[int]:
        return [snapshot.snapshot_id for snapshot in self.table().snapshots()]

    def delete(self, condition: str) -> None:
        self.table().delete(condition)

    def rows(self) -> list[dict[str, Any]]:
        from dsv2.connectors.files.python_values import python_rows

        return [row for batch in self.table().scan().to_arrow().to_batches() for row in python_rows(batch)]

    def files(self) -> list[str]:
        return [task.file.file_path for task in self.table().scan().plan_files()]

    def commits(self) -> int:
        return len(self.table().inspect.metadata_log_entries()) - 1  # the first one has created it

    def append(self, rows: list[dict[str, Any]]) -> None:
        import pyarrow as pa

        table = self.table()
        table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))


FORMATS: dict[str, Callable[[Path], TableOnDisk]] = {"deltalake": DeltaOnDisk, "pyiceberg": IcebergOnDisk}
