"""Writes to a ``FileSink`` without Spark: the same folder, log and formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dsv2.base.clock import Clock
from dsv2.base.folders import Folder
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.files.sink_writer import FileSinkWriter, SchemaCheck
from dsv2.connectors.files.table_files import check_writable, encoded, joined, partitions, table_of, writer_of
from dsv2.errors import JobError, SchemaError
from dsv2.file_log import Merged, MergeGroup
from dsv2.file_log.description import Description
from dsv2.file_log.ownership import OutputOwner, SinkPlace
from dsv2.file_log.schema import json_schema
from dsv2.graph import Operator, Plan, sink_checks
from dsv2.local.restoration import on_disk
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.report.sink_calls import name_of
from dsv2.sinks import FileSink


def check_file_sink(operator: Operator, sink: FileSink[Any]) -> None:
    """Check before the start that the sink ``operator`` can be written.

    Raises:
        ConfigurationError: Arrow is not installed, or the path is on another file system.
        SchemaError: The schema or the partitioning is not valid.
    """
    require_client_library("pyarrow", "files", "FileSink in the local runtime")
    on_disk(sink.path)
    try:
        check_writable(json_schema(sink.schema), sink.format.value, sink.partition_by)
    except SchemaError as error:
        raise SchemaError(f"{name_of(operator)} {error}") from error


def places_of(plan: Plan) -> Iterator[tuple[SinkPlace, FileSink[Any]]]:
    """Return the folders of the file sinks of ``plan``."""
    for operator in plan.operators:
        if isinstance(operator.body, FileSink):
            yield _place(operator, operator.body), operator.body


def _place(operator: Operator, sink: FileSink[Any]) -> SinkPlace:
    where = f"The sink {operator}, defined at {operator.location}: {sink.path}"
    return SinkPlace(on_disk(sink.path), sink.path, where)


class LocalMerger:
    """Merges the files in the folder of a sink."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def __call__(self, groups: Sequence[MergeGroup], staging: str) -> list[Merged]:
        """Merge groups; see ``Merger``."""
        description, merged = Description.read(self._folder), []
        for number, group in enumerate(groups):
            format = group.files[0].path.rpartition(".")[2] if description is None else description.format
            data, lengths = joined([_content(self._folder, file.path) for file in group.files], format)
            path = f"{staging}/{number}.{format}"
            self._folder.write(path, data)
            merged.append(Merged(path, len(data), lengths))
        return merged


def with_schema_checks(plan: Plan) -> Plan:
    """Return ``plan`` with checks of the schema before file sinks that have an error policy."""

    def check(sink: FileSink[object], name: str) -> SchemaCheck[object]:
        return SchemaCheck(writer_of(json_schema(sink.schema), name), sink.partition_by, name)

    return sink_checks.with_schema_checks(plan, check)


class LocalFileSink(FileSinkWriter):
    """Writes the micro-batches of one run to the file sink ``operator``. A repeated micro-batch is written once."""

    def __init__(self, operator: Operator, clock: Clock, run_id: str, owner: OutputOwner | None) -> None:
        """``owner``: The job and its checkpoint. None: there is no checkpoint."""
        assert isinstance(operator.body, FileSink)
        super().__init__(operator.body, name_of(operator), clock, run_id)
        self._owner = owner
        self._place = _place(operator, operator.body)
        self._columns = json_schema(operator.body.schema)

    def begin(self, next_batch: int) -> None:
        """Begin to write. Raises ``JobError``.

        ``next_batch``: The first micro-batch that is not stored in the checkpoint. One before it that an earlier run
        has prepared is completed.
        """
        with self.named("cannot continue its output"):
            folder = self._place.folder
            if self._owner is not None:
                self._place.own(self._owner)
            self.open(folder, self._columns, LocalMerger(folder), next_batch)

    def write(self, batches: Sequence[RecordBatch[Any]], batch_id: int) -> None:
        """Write and publish a micro-batch. Raises ``JobError``, or ``SchemaError`` if a record does not fit."""
        with self.named(f"failed on batch {batch_id}"):
            if self._owner is not None:
                self._place.check_owned(self._owner)
            records = [record for batch in batches for record in batch.rows()]
            if not records or self._folder.state.last_batch >= batch_id:
                return
            name, format = self._name.rstrip(","), self.sink.format.value
            table = table_of(records, self._columns, name)
            staging = self._folder.stage(batch_id)
            for folder, part in partitions(table, self.sink.partition_by, name).items():
                file = "/".join(filter(None, (staging, folder, f"part-00000.{format}")))
                self._place.folder.write(file, encoded(part, format))
            self._folder.prepare(batch_id, staging, self._schema)
            self._folder.publish()


def _content(folder: Folder, path: str) -> bytes:
    data = folder.read(path)
    if data is None:
        raise JobError(f"{folder.place(path)} is missing. It has records that the output should contain.")
    return data
