"""A source that follows the output of a ``FileSink``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import check_whole_number
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.files.directory import FileLocation
from dsv2.connectors.files.python_values import python_rows
from dsv2.connectors.files.sink_output import WrittenFiles
from dsv2.errors import JobError
from dsv2.file_log import read_log
from dsv2.sources import DataclassSerializer, Portion, SplitBatch, SplitSource
from dsv2.sources.shared_parts import DecodingSource, FollowingSource

if TYPE_CHECKING:
    import pyarrow.fs as pafs


@dataclass(frozen=True)
class MicroBatches:
    """The micro-batches of a sink up to ``position``, which have been read. ``last``: where a bounded source ends."""

    position: int = -1
    last: int | None = None

    @property
    def split_id(self) -> str:
        """The same for all, because a sink has one sequence of micro-batches."""
        return "micro-batches"


class FileSinkSource(DecodingSource[T_co], FollowingSource, SplitSource[T_co, MicroBatches], Generic[T_co]):
    """Reads the output of a ``FileSink``, also of another job that is running: each record exactly once.

    The position is a micro-batch of the sink, so it remains valid when files are merged. In errors the offset of a
    record is ``"3-7:42"``: number 42, from 0, of the records of micro-batches 3 to 7, which were read together. One
    subtask reads; distribute the records behind the source with ``shuffle`` or ``key_by``.
    """

    split_serializer = DataclassSerializer(MicroBatches)
    least_per_batch = 1

    def __init__(
        self,
        path: str | PathLike[str],
        decode: Callable[[dict[str, Any]], T_co],
        *,
        discovery_interval: timedelta | None = None,
        micro_batches_per_batch: int = 100,
        filesystem: pafs.FileSystem | None = None,
    ) -> None:
        """Create the source.

        Args:
            path: The folder of the sink, a path or a URI such as ``s3://bucket/folder``. It must be valid on the driver
                and on all workers, and need not exist yet.
            decode: Creates the record from a row, a dict by column name.
            discovery_interval: None: the source is bounded, and reads what was written when the job first starts.
                Otherwise it is unbounded. It looks for new micro-batches before each of its own.
            micro_batches_per_batch: How many micro-batches of the sink are read in one.
            filesystem: Arrow's file system that reads ``path``, as for ``FilesSource``.

        Raises:
            ConfigurationError: An argument is invalid, or pyarrow is not installed.
        """
        require_client_library("pyarrow", "files", "FileSinkSource")
        check_whole_number(micro_batches_per_batch, "micro_batches_per_batch")
        super().__init__(discovery_interval)
        self._location = FileLocation(path, filesystem, "FileSinkSource")
        self._decode = decode
        self.limit_per_batch = micro_batches_per_batch
        self._available = -1

    def refresh(self) -> None:
        self._available = read_log(self._location.open()).last_batch

    def discover(self) -> list[MicroBatches]:
        return [MicroBatches(last=self._available if self.bounded else None)]

    def advance(self, split: MicroBatches, limit: int | None, /) -> Portion[MicroBatches] | None:
        end = self._available if split.last is None else split.last
        if self._available < (split.position if split.last is None else split.last):
            raise JobError(
                f"{self._location.path} ends with micro-batch {self._available}, before position {split.position}: it "
                f"was replaced by other output. Start the job with a new checkpoint_location."
            )
        stop = end if limit is None else min(end, split.position + limit)
        if stop <= split.position and split.last is None:
            return None
        return Portion(replace(split, position=stop), max(stop - split.position, 1), stop == split.last)

    def read(self, start: MicroBatches, stop: MicroBatches, /) -> Iterator[SplitBatch[T_co]]:
        if stop.position <= start.position:
            return
        done = 0
        place = f"{start.position + 1}-{stop.position}"
        written = WrittenFiles(self._location.path, start.position, stop.position, self._location.filesystem)
        for batch in written.batches():
            offsets = [f"{place}:{number}" for number in range(done, done + batch.num_rows)]
            yield SplitBatch(python_rows(batch), self._decode, offsets=lambda offsets=offsets: offsets)  # type: ignore[misc]
            done += batch.num_rows
