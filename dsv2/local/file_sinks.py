"""Writes to a ``FileSink`` without Spark: the same folder, log and formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar

from dsv2.clock import Clock
from dsv2.connectors.client_library import require_client_library
from dsv2.connectors.files.table_files import check_writable, encoded, joined, partitions, table_of
from dsv2.errors import Dsv2Error, JobError, SchemaError
from dsv2.file_log import Merged, MergeGroup, Rolling, SinkFolder
from dsv2.file_log.description import Description
from dsv2.file_log.ownership import OutputOwner, SinkPlace
from dsv2.file_log.schema import json_schema
from dsv2.folders import Folder
from dsv2.graph import Operator, Plan
from dsv2.graph.sink_checks import SinkCheck
from dsv2.local.beginning import on_disk
from dsv2.record_batch import RecordBatch
from dsv2.runtime.report.sink_calls import name_of
from dsv2.sinks import FileSink, Sink

__all__ = ("LocalFileSink", "LocalMerger", "check_file_sink", "places_of", "with_schema_checks")

T = TypeVar("T")

_NEVER_MS = 1 << 62


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


class _SchemaCheck(Sink[T], Generic[T]):
    """Replaces a ``FileSink`` in the check before it."""

    def __init__(self, sink: FileSink[T], name: str) -> None:
        self._schema = json_schema(sink.schema)
        self._partition_by = sink.partition_by
        self._name = name

    def check_record(self, record: T) -> None:
        partitions(table_of([record], self._schema, self._name), self._partition_by, self._name)


def with_schema_checks(plan: Plan) -> Plan:
    """Return ``plan`` with checks of the schema before file sinks that have an error policy."""

    def checked(operator: Operator) -> Operator:
        if not isinstance(operator.body, SinkCheck) or not isinstance(operator.body.sink, FileSink):
            return operator
        return replace(
            operator, body=SinkCheck(_SchemaCheck[object](operator.body.sink, name_of(operator).rstrip(",")))
        )

    return replace(plan, operators=tuple(map(checked, plan.operators)))


class LocalFileSink:
    """Writes the micro-batches of one run to the file sink ``operator``. A repeated micro-batch is written once."""

    def __init__(self, operator: Operator, clock: Clock, run_id: str, owner: OutputOwner | None) -> None:
        """``owner``: The job and its checkpoint. None: there is no checkpoint."""
        assert isinstance(operator.body, FileSink)
        self._operator = operator
        self._sink: FileSink[Any] = operator.body
        self._clock = clock
        self._run_id = run_id
        self._owner = owner
        self._place = _place(operator, operator.body)
        self._schema = json_schema(operator.body.schema)
        self._index = 0
        self._folder: SinkFolder

    def begin(self, next_batch: int) -> None:
        """Begin to write. Raises ``JobError``.

        ``next_batch``: The first micro-batch that is not stored in the checkpoint. One before it that an earlier run
        has prepared is completed.
        """
        sink = self._sink
        with self._named("cannot continue its output"):
            folder = self._place.folder
            if self._owner is not None:
                self._place.own(self._owner)
            self._index = Description.update(folder, sink.format.value, sink.partition_by, self._schema)
            rolling = None
            if sink.roll_bytes is not None:
                rolling = Rolling(_NEVER_MS if sink.roll_ms is None else sink.roll_ms, sink.roll_bytes)
            self._folder = SinkFolder(
                folder, self._clock, self._run_id, rolling=rolling, retention_ms=sink.retention_ms
            )
            self._folder.begin(next_batch)

    def write(self, batches: Sequence[RecordBatch[Any]], batch_id: int) -> None:
        """Write and publish a micro-batch. Raises ``JobError``, or ``SchemaError`` if a record does not fit."""
        with self._named(f"failed on batch {batch_id}"):
            if self._owner is not None:
                self._place.check_owned(self._owner)
            records = [record for batch in batches for record in batch.rows()]
            if not records or self._folder.state.last_batch >= batch_id:
                return
            name, format = name_of(self._operator).rstrip(","), self._sink.format.value
            table = table_of(records, self._schema, name)
            staging = self._folder.stage(batch_id)
            for folder, part in partitions(table, self._sink.partition_by, name).items():
                file = "/".join(filter(None, (staging, folder, f"part-00000.{format}")))
                self._place.folder.write(file, encoded(part, format))
            self._folder.prepare(batch_id, staging, self._index)
            self._folder.publish()

    def roll(self, *, at_end: bool = False) -> None:
        """Merge small files if it is time to. ``at_end``: Merge them all, because the run ends. Raises ``JobError``."""
        with self._named("cannot merge small files"):
            due = self._folder.next_roll_ms()
            if due is not None and (at_end or due <= self._clock.now_ms()):
                self._folder.roll(LocalMerger(self._place.folder))
            if at_end:
                self._folder.close()

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except SchemaError:
            raise
        except Dsv2Error as error:
            raise type(error)(f"{name_of(self._operator)} {what}: {error}") from error
        except Exception as error:
            raise JobError(f"{name_of(self._operator)} {what}: {type(error).__qualname__}: {error}") from error


def _content(folder: Folder, path: str) -> bytes:
    data = folder.read(path)
    if data is None:
        raise JobError(f"{folder.place(path)} is missing. It has records that the output should contain.")
    return data
