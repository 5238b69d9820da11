"""The source of a lakehouse table: it reads a version as a whole, and then the rows that later versions add."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol

from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import check_at_least_one, check_whole_number
from dsv2.connectors.files.record_decoder import RecordDecoder
from dsv2.errors import SchemaError
from dsv2.model.record_batch import RecordBatch
from dsv2.sources import (
    AssignmentState,
    DataclassSerializer,
    Portion,
    RoundRobinSplitAssigner,
    SplitDiscovery,
    SplitEnumeratorContext,
)
from dsv2.sources.assignment import ReadingSource
from dsv2.sources.shared_parts import FollowingSource

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_PER_BATCH = 128 << 20
_LEAST_BYTES = 64 << 10


class TableHistory(Protocol):
    """The versions of a table, which are numbers. Its files have a ``path`` and a ``size`` in bytes."""

    def refresh(self) -> None:
        """Look for new versions."""

    def last(self) -> int:
        """Return the last version; that before the first one if there is none."""

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""

    def has_zone(self, column: str) -> bool:
        """Return whether a column has instants: timestamps with a time zone."""

    def after(self, version: int) -> int | None:
        """Return the version that follows; None if there is none. Raises ``JobError`` if ``version`` is not known."""

    def rows(self, version: int) -> Sequence[Any]:
        """Return the files with all rows of a version."""

    def new_rows(self, version: int) -> Sequence[Any]:
        """Return the files with the rows that a version adds. Raises ``JobError``."""

    def batches(self, file: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""


@dataclass(frozen=True)
class TableSplit:
    """Every ``of``-th file of each version of a table, and how far they have been read.

    Attributes:
        number: The first of these files in a version.
        of: The number of splits.
        version: The version that is being read.
        files: How many of its files have been read.
        whole: The version whose rows are all read. Of others, those that they add are read.
        last: The version with which a bounded source ends.
    """

    number: int
    of: int
    version: int
    files: int = 0
    whole: int | None = None
    last: int | None = None

    @property
    def split_id(self) -> str:
        """The number of the split, and that of all."""
        return f"{self.number}/{self.of}"

    def files_of(self, history: TableHistory, version: int) -> Sequence[Any]:
        """Return the files of the split in a version."""
        files = history.rows(version) if version == self.whole else history.new_rows(version)
        return files[self.number :: self.of]


class TableDiscovery(SplitDiscovery[TableSplit]):
    """Plans how far the splits of a table are read.

    Args:
        history: The table.
        count: The number of splits.
        starting_version: The first version whose new rows are read. None: the last version is read as a whole.
        bounded: Whether reading ends with the version that is the last one now.
    """

    def __init__(self, history: TableHistory, count: int, starting_version: int | None, *, bounded: bool) -> None:
        self._history = history
        self._count = count
        self._starting_version = starting_version
        self._bounded = bounded

    def refresh(self) -> None:
        self._history.refresh()

    def discover(self) -> list[TableSplit]:
        last = self._history.last()
        first, whole = (last, last) if self._starting_version is None else (self._starting_version, None)
        end = last if self._bounded else None
        return [TableSplit(number, self._count, first, 0, whole, end) for number in range(self._count)]

    def advance(self, split: TableSplit, limit: int | None, /) -> Portion[TableSplit] | None:
        version, files, size = split.version, split.files, 0
        while True:
            following = None if version == split.last else self._history.after(version)
            own = split.files_of(self._history, version)
            while files < len(own) and (limit is None or size < limit):
                size += own[files].size
                files += 1
            if files < len(own) or following is None or (limit is not None and size >= limit):
                break
            version, files = following, 0
        stop, is_last = replace(split, version=version, files=files), version == split.last and files == len(own)
        return None if stop == split and not is_last else Portion(stop, max(size, 1), is_last)


class LakehouseSource(FollowingSource, ReadingSource[T_co, TableSplit], Generic[T_co]):
    """Base class of the sources of lakehouse tables."""

    split_serializer = DataclassSerializer(TableSplit)
    assigner = RoundRobinSplitAssigner()
    least_per_batch = _LEAST_BYTES

    def __init__(
        self,
        record_type: type[T_co],
        starting_version: int | None,
        discovery_interval: timedelta | None,
        bytes_per_batch: int | None,
    ) -> None:
        """Check the arguments. Raises ``ConfigurationError`` or ``SchemaError``."""
        if starting_version is not None:
            check_whole_number(starting_version, "starting_version", at_least=0)
        super().__init__(discovery_interval)
        check_at_least_one(bytes_per_batch=bytes_per_batch)
        self._record_type = self.dsv2_record_type = record_type
        schema = import_module("dsv2.arrow").schema_of(record_type)
        self._columns: Sequence[str] = schema.names
        self._has_times = any(str(kind).startswith("timestamp") for kind in schema.types)
        self._starting_version = starting_version
        self.limit_per_batch = bytes_per_batch or _BYTES_PER_BATCH

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open table. Each copy of the source opens its own."""
        return {name: value for name, value in vars(self).items() if name != "_history"}

    @abstractmethod
    def open_history(self) -> TableHistory:
        """Open the table. Raises ``JobError``."""

    @property
    def dsv2_why_rows(self) -> str | None:
        return "a datetime may have a time zone, which columns do not have" if self._has_times else ""

    @cached_property
    def _history(self) -> TableHistory:
        return self.open_history()

    def create_discovery(
        self, ctx: SplitEnumeratorContext[TableSplit], restored: AssignmentState[TableSplit] | None, /
    ) -> TableDiscovery:
        vars(self).pop("_history", None)  # of an earlier run
        if unknown := set(self._columns).difference(self._history.columns()):
            raise SchemaError(
                f"{self}: the table has no column {min(unknown)!r}. It has {', '.join(self._history.columns())}."
            )
        known = [] if restored is None else [*restored.unfinished, *map(_id_of, sum(restored.pending.values(), ()))]
        count = int(known[0].partition("/")[2]) if known else ctx.parallelism
        return TableDiscovery(self._history, count, self._starting_version, bounded=self.bounded)

    @property
    def _zoned(self) -> list[str]:
        return [name for name in self._columns if self._history.has_zone(name)]

    def read(self, start: TableSplit, stop: TableSplit, /) -> Iterator[RecordBatch[T_co]]:
        history, decoder = self._history, RecordDecoder(self._record_type, self._zoned)
        if history.last() != stop.version:
            history.refresh()
        version: int | None = start.version
        first = start.files
        while version is not None:
            own = start.files_of(history, version)
            for file in own[first : stop.files if version == stop.version else None]:
                done = 0
                for batch in history.batches(file, self._columns):
                    numbers, done = range(done + 1, done + 1 + len(batch)), done + len(batch)
                    yield decoder.batch(batch, numbers, partial(_offsets, file.path, numbers))
            version, first = (None if version == stop.version else history.after(version)), 0


def _offsets(path: str, numbers: range) -> list[str]:
    return [f"{path}:{number}" for number in numbers]


def _id_of(split: TableSplit) -> str:
    return split.split_id
