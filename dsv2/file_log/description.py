"""Describes the files of a sink to its readers and to later runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dsv2.base.folders import Folder, ReadableFolder
from dsv2.checks.json_documents import write_document
from dsv2.errors import ConfigurationError
from dsv2.file_log.names import DESCRIPTION
from dsv2.file_log.state import read_part


@dataclass(frozen=True, slots=True)
class Description:
    """The files of a sink.

    Attributes:
        format: ``"parquet"``, ``"json"`` or ``"csv"``.
        partition_by: The columns whose values are folders, in order.
        schemas: The schemas of the records, as Spark writes them in JSON. A ``DataFile`` refers to one by index.
    """

    format: str
    partition_by: tuple[str, ...]
    schemas: tuple[dict[str, Any], ...]

    @staticmethod
    def read(folder: ReadableFolder) -> Description | None:
        """Read the description in the folder of a sink; None if there is none. Raises ``CorruptDataError``."""
        return read_part(folder, DESCRIPTION, Description)

    @staticmethod
    def update(folder: Folder, format: str, partition_by: Sequence[str], schema: dict[str, Any]) -> int:
        """Add a schema to the description of a sink, and return its index.

        Raises:
            ConfigurationError: Earlier files have another format or partitioning.
            CorruptDataError: The description is damaged.
        """
        found = Description.read(folder)
        if found is None:
            found = Description(format, tuple(partition_by), ())
        found.check(folder, format, partition_by)
        if schema in found.schemas:
            return found.schemas.index(schema)
        write_document(folder, DESCRIPTION, replace(found, schemas=(*found.schemas, schema)))
        return len(found.schemas)

    def check(self, folder: Folder, format: str, partition_by: Sequence[str]) -> None:
        """Raise ``ConfigurationError`` if the files in ``folder`` have another format or partitioning."""
        for what, theirs, ours in (
            ("the format", self.format, format),
            ("partition_by", list(self.partition_by), list(partition_by)),
        ):
            if theirs != ours:
                raise ConfigurationError(
                    f"{folder.path} has files with {what} {theirs!r}, but the sink has {ours!r}. Choose another path."
                )
