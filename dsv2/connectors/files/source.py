"""``FilesSource``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.record_position import SplitName
from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import check_at_least_one
from dsv2.connectors.files.directory import FileLocation
from dsv2.connectors.files.discovery import FilesDiscovery, FileSplit
from dsv2.connectors.files.format import FileFormat
from dsv2.errors import ConfigurationError
from dsv2.model.record_batch import RecordBatch
from dsv2.sources import (
    AssignmentState,
    DataclassSerializer,
    RoundRobinSplitAssigner,
    SplitBatch,
    SplitEnumeratorContext,
)
from dsv2.sources.assignment import ReadingSource
from dsv2.sources.shared_parts import FollowingSource

if TYPE_CHECKING:
    import pyarrow.fs as pafs


_BYTES_PER_BATCH = 128 << 20
_LEAST_BYTES = 64 << 10


class FilesSource(FollowingSource, ReadingSource[T_co, FileSplit], Generic[T_co]):
    """Reads the files of a directory, in the order of their names.

    Files are assigned gradually, so the event time of a bounded source advances from file to file.

    Source: Flink ``FileSource``.
    """

    split_serializer = DataclassSerializer(FileSplit)
    assigner = RoundRobinSplitAssigner()

    def __init__(
        self,
        directory: str | PathLike[str],
        file_format: FileFormat[T_co],
        *,
        pattern: str = "*",
        discovery_interval: timedelta | None = None,
        bytes_per_batch: int | None = None,
        files_per_batch: int | None = None,
        filesystem: pafs.FileSystem | None = None,
    ) -> None:
        """Create the source.

        Every offset holds the names of the files that were read, as long as they are in the directory. Move files away
        before there are tens of thousands. A file that is missing when the job restarts is not read further.

        Args:
            directory: A path or a URI, such as ``s3://bucket/folder``, that is valid on the driver and on all workers.
            file_format: ``json_lines(...)``, ``text_lines(...)``, ``csv_rows(...)`` or ``parquet_rows(...)``; for
                columns of records ``csv_records(...)``, ``parquet_records(...)``, or ``json_records(...)`` of
                ``dsv2.connectors.formats``. Text files whose names end with ``.gz``, ``.bz2`` or ``.zst`` are
                decompressed.
            pattern: A glob pattern for file names; ``"**"`` and ``"**/*.json"`` include subdirectories. Names that
                begin with a dot or an underscore are ignored.
            discovery_interval: How often to look for new files. None: the source is bounded and reads the files that
                exist when the job first starts.
            bytes_per_batch: The approximate size of a micro-batch in bytes (default: 128 MiB).
            files_per_batch: The number of files in a micro-batch, instead of ``bytes_per_batch``.
            filesystem: Arrow's file system that reads ``directory``, which is then a path within it. None (default):
                the local disk, or the file system of the URI. It is sent to the workers with what it contains, such as
                credentials.

        Raises:
            ConfigurationError: An argument is invalid, or both limits are given. Also if Arrow does not support the
                file system of ``directory``.
        """
        check_at_least_one(bytes_per_batch=bytes_per_batch, files_per_batch=files_per_batch)
        super().__init__(discovery_interval)
        if bytes_per_batch is not None and files_per_batch is not None:
            raise ConfigurationError("FilesSource accepts bytes_per_batch or files_per_batch, not both.")
        self._location = FileLocation(directory, filesystem, "FilesSource")
        self._format = file_format
        self.dsv2_record_type = file_format.record_type
        self._pattern = pattern
        self._by_files = files_per_batch is not None
        self.limit_per_batch = files_per_batch or bytes_per_batch or _BYTES_PER_BATCH
        self.least_per_batch = 1 if self._by_files else _LEAST_BYTES

    @property
    def dsv2_why_rows(self) -> str | None:
        return self._format.why_rows

    def create_discovery(
        self, ctx: SplitEnumeratorContext[FileSplit], restored: AssignmentState[FileSplit] | None, /
    ) -> FilesDiscovery:
        return FilesDiscovery(self._location.open(), self._format, self._pattern, by_files=self._by_files)

    def decode_again(self, value: Any, split: SplitName, /) -> SplitBatch[T_co]:
        return self._format.decode_again(self._location.open().file(str(split)), value)

    def read(self, start: FileSplit, stop: FileSplit, /) -> Iterator[RecordBatch[T_co]]:
        return self._format.read(self._location.open().file(start.name), start.position, stop.position)
