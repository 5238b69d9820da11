"""The sink that writes files (Flink ``FileSink``)."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from datetime import timedelta
from enum import Enum
from os import PathLike, fspath
from typing import Generic, Literal

from dsv2.base.type_variables import T
from dsv2.checks.arguments import as_choice, as_milliseconds, check_at_least_one
from dsv2.errors import ConfigurationError
from dsv2.sinks.paths import contains, normalized, without_password
from dsv2.sinks.sink import Sink

_ROLL_BYTES = 128 << 20


class FileSinkFormat(Enum):
    """The format of the files of a ``FileSink``."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"


class FileSink(Sink[T], Generic[T]):
    """Writes files to a folder, exactly once.

    The files of a micro-batch appear in ``path`` once its checkpoint is complete, and never change. Any reader that
    lists the folder, and skips names that begin with an underscore or a dot, sees each record at most once.
    ``dsv2.connectors.files.read_files`` reads whole micro-batches. A folder belongs to one sink of one job.

    By default each micro-batch leaves one file for each partition and Spark task, or local worker process. With
    ``roll_interval`` or ``roll_bytes`` these small files are hidden, and merged into few large ones.

    Args:
        path: The folder.
        format: ``"parquet"`` (default), ``"json"`` or ``"csv"``.
        schema: A dataclass or NamedTuple class, or Spark's DDL string for tuples and dicts.
        partition_by: Columns whose values become folders, such as ``day=2024-07-01``, and are not in the files. They
            have the types bool, int, str or date. None becomes the folder ``day=__HIVE_DEFAULT_PARTITION__``.
        roll_interval: Small files are merged at the latest this long after the first was written, and when a run ends.
            None (default): they are merged only because of ``roll_bytes``.
        roll_bytes: Small files are merged when they have this size together; also the approximate size of merged
            files. None (default): 128 MiB if there is a ``roll_interval``, else small files are not merged.
        retention: How long files that were merged are kept for readers that have begun to read them.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    exactly_once = True
    accepts_other_records = True

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        format: FileSinkFormat | Literal["parquet", "json", "csv"] = FileSinkFormat.PARQUET,
        schema: type[T] | str,
        partition_by: Sequence[str] = (),
        roll_interval: timedelta | None = None,
        roll_bytes: int | None = None,
        retention: timedelta = timedelta(hours=1),
    ) -> None:
        self.format = as_choice(FileSinkFormat, format, "format")
        self.path = fspath(path)
        if not self.path:
            raise ConfigurationError("FileSink requires a path.")
        self.schema: type[T] | str = schema
        if isinstance(partition_by, str | Set) or len(set(partition_by)) < len(partition_by):
            raise ConfigurationError(f"partition_by must be a list of different columns, not {partition_by!r}.")
        self.partition_by = tuple(partition_by)
        check_at_least_one(roll_bytes=roll_bytes)
        self.roll_ms = None if roll_interval is None else as_milliseconds(roll_interval, "roll_interval", at_least=1)
        self.roll_bytes = _ROLL_BYTES if roll_bytes is None and roll_interval is not None else roll_bytes
        self.retention_ms = as_milliseconds(retention, "retention", at_least=0)

    def conflict_with(self, other: Sink[T]) -> str | None:
        if not isinstance(other, FileSink):
            return None
        own, its = normalized(self.path), normalized(other.path)
        if own == its:
            return f"both write to {self.path}, and a folder belongs to one sink"
        if contains(own, its) or contains(its, own):
            return f"{self.path} and {other.path} are nested, so readers of the outer folder would read both"
        return None

    def check_record(self, record: T) -> None:
        """The runtime checks the schema instead."""

    @property
    def dsv2_takes_columns(self) -> bool:
        return True

    def describe_target(self) -> str:
        return without_password(self.path)

    @property
    def record_types(self) -> Collection[type]:
        return (self.schema,) if isinstance(self.schema, type) else ()
