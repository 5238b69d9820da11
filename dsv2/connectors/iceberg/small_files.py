"""Merging of the small files of an Iceberg table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from uuid import uuid4

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table import FileScanTask, Table, TableProperties, WriteTask
from pyiceberg.table.snapshots import Summary
from pyiceberg.typedef import Record

_MERGED_FILES = "dsv2.merged-files"
_MAX_BYTES = 128 << 20  # of merged files, whose rows are in memory


def merge_small_files(table: Table) -> None:
    """Merge files of the same partition in one commit, up to the target size of the table, 128 MiB at most.

    Files with rows that other files delete, or with another partitioning than the table has now, remain. pyiceberg has
    no ``REPLACE`` operation, so the snapshot is an ``OVERWRITE`` with a property; see ``only_merges_files``.
    """
    groups = [group for group in _groups(table) if len(group) > 1]
    if not groups:
        return
    added = [file for group in groups for file in _merged(table, group)]
    merged = {_MERGED_FILES: str(sum(map(len, groups)))}
    with table.transaction() as transaction, transaction.update_snapshot(merged).overwrite() as snapshot:
        for task in (task for group in groups for task in group):
            snapshot.delete_data_file(task.file)
        for file in added:
            snapshot.append_data_file(file)


def only_merges_files(summary: Summary) -> bool:
    """Return whether a snapshot is one of ``merge_small_files``."""
    return _MERGED_FILES in summary.additional_properties


@dataclass(frozen=True)
class _PartitionOfFile(PartitionKey):
    record: Record

    @cached_property
    def partition(self) -> Record:
        return self.record


def _groups(table: Table) -> Iterator[list[FileScanTask]]:
    """Yield files that become one, from small to large.

    A file waits until those that are merged with it have half its size, so that a row is not written again each time.
    """
    name, default = TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT
    target = min(int(table.properties.get(name, default)), _MAX_BYTES)
    spec = table.spec().spec_id
    tasks = [task for task in table.scan().plan_files() if task.file.spec_id == spec and not task.delete_files]
    tasks.sort(key=lambda task: (_partition(task), task.file.file_size_in_bytes, task.file.file_path))
    for _, of_partition in groupby(tasks, _partition):
        group: list[FileScanTask] = []
        total = 0
        for task in of_partition:
            size = task.file.file_size_in_bytes
            if group and (total + size > target or size > 2 * total):
                yield group
                group, total = [], 0
            group.append(task)
            total += size
        yield group


def _partition(task: FileScanTask) -> list[str]:
    record = task.file.partition
    return [repr(record[place]) for place in range(len(record))]


def _merged(table: Table, group: list[FileScanTask]) -> Iterator[DataFile]:
    """Write the rows of files to one."""
    schema, partition = table.schema(), group[0].file.partition
    rows = ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table(group)
    key = _PartitionOfFile([], table.spec(), schema, partition) if len(partition) else None
    return write_file(
        table.io, table.metadata, iter([WriteTask(uuid4(), 0, schema, rows.to_batches(), partition_key=key)])
    )
