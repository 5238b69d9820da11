"""The sinks of a local run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

from dsv2.base.clock import Clock
from dsv2.base.folders import Folder
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.files.sink_writer import FileSinkWriter, SchemaCheck, named
from dsv2.connectors.files.table_files import (
    check_writable,
    encoded,
    joined,
    partitions,
    table_of_batches,
    writer_of,
)
from dsv2.errors import JobError, SchemaError
from dsv2.file_log import Merged, MergeGroup
from dsv2.file_log.description import Description
from dsv2.file_log.ownership import OutputOwner, SinkPlace
from dsv2.file_log.schema import json_schema
from dsv2.graph import Operator, OperatorKind, Plan, sink_checks
from dsv2.local.checkpoint import SinkOutput
from dsv2.local.restoration import on_disk
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.report.sink_calls import begin, name_of, write_in_task, write_on_driver
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.sinks import FileSink, ParallelSink, Sink, SinkBatch, SinkInfo, SinkRunInfo


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


def _place(operator: Operator, sink: FileSink[Any], *, durable: bool = True) -> SinkPlace:
    where = f"The sink {operator}, defined at {operator.location}: {sink.path}"
    return SinkPlace(on_disk(sink.path, durable=durable), sink.path, where)


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


class FileParts:
    """Writes the files of micro-batches of the file sink ``operator``, in the process that has their records.

    Args:
        operator: The sink.
        durable: Whether files are forced to the disk.
    """

    def __init__(self, operator: Operator, *, durable: bool) -> None:
        assert isinstance(operator.body, FileSink)
        self._sink = operator.body
        self._name = name_of(operator)
        self.place = _place(operator, operator.body, durable=durable)
        """The folder of the sink."""
        self.columns = json_schema(operator.body.schema)
        """The schema."""

    def write(self, batches: Sequence[RecordBatch[Any]], batch_id: int, staging: str, number: int = 0) -> None:
        """Write a file for each partition.

        Args:
            batches: Records of a micro-batch. They are not empty.
            batch_id: The micro-batch.
            staging: The folder for its files, relative to that of the sink.
            number: The process.

        Raises:
            SchemaError: A record does not fit.
            JobError: A file cannot be written.
        """
        with named(self._name, f"failed on batch {batch_id}"):
            name, format = self._name.rstrip(","), self._sink.format.value
            table = table_of_batches(batches, self.columns, name)
            for folder, part in partitions(table, self._sink.partition_by, name).items():
                file = "/".join(filter(None, (staging, folder, f"part-{number:05}.{format}")))
                self.place.folder.write(file, encoded(part, format))


class LocalFileSink(FileSinkWriter):
    """Writes the micro-batches of one run to the file sink ``operator``. A repeated micro-batch is written once."""

    def __init__(
        self, operator: Operator, clock: Clock, run_id: str, owner: OutputOwner | None, *, durable: bool
    ) -> None:
        """Open the folder.

        Args:
            operator: The sink.
            clock: The wall clock.
            run_id: The run.
            owner: The job and its checkpoint. None: there is no checkpoint.
            durable: Whether files are forced to the disk.
        """
        assert isinstance(operator.body, FileSink)
        super().__init__(operator.body, name_of(operator), clock, run_id)
        self._owner = owner
        self.parts = FileParts(operator, durable=durable)
        """Writes files in this process."""
        self._place = self.parts.place

    def begin(self, next_batch: int) -> None:
        """Begin to write. Raises ``JobError``.

        ``next_batch``: The first micro-batch that is not stored in the checkpoint. One before it that an earlier run
        has prepared is completed.
        """
        with self.named("cannot continue its output"):
            folder = self._place.folder
            if self._owner is not None:
                self._place.own(self._owner)
            self.open(folder, self.parts.columns, LocalMerger(folder), next_batch)

    def write(self, write_parts: Callable[[str], None] | None, batch_id: int) -> None:
        """Write and publish a micro-batch. Raises ``JobError``, or ``SchemaError`` if a record does not fit.

        ``write_parts``: Writes its files to a folder, relative to that of the sink. None: it has no records.
        """
        what = f"failed on batch {batch_id}"
        with self.named(what):
            if self._owner is not None:
                self._place.check_owned(self._owner)
            if write_parts is None or self._folder.state.last_batch >= batch_id:
                return
            staging = self._folder.stage(batch_id)
        write_parts(staging)
        with self.named(what):
            self._folder.prepare(batch_id, staging, self._schema)
            self._folder.publish()


def _content(folder: Folder, path: str) -> bytes:
    data = folder.read(path)
    if data is None:
        raise JobError(f"{folder.place(path)} is missing. It has records that the output should contain.")
    return data


class SinkWorkers(Protocol):
    """Worker processes, which write the records of a micro-batch for their subtasks of a sink."""

    def write(self, operator: Operator, info: SinkInfo, outputs: Sequence[SinkOutput], batch_id: int) -> None:
        """Write to a ``ParallelSink``. Raises ``JobError``."""

    def write_files(self, operator: Operator, outputs: Sequence[SinkOutput], batch_id: int, staging: str) -> None:
        """Write the files of a ``FileSink``. Raises ``JobError``, or ``SchemaError`` if a record does not fit.

        ``staging``: The folder for its files, relative to that of the sink.
        """


class LocalSinks:
    """Writes to the sinks of one run of the job ``job_id``."""

    def __init__(
        self,
        plan: Plan,
        job_id: str,
        run: SinkRunInfo,
        clock: Clock,
        owner: OutputOwner | None = None,
        *,
        durable: bool = False,
        workers: SinkWorkers | None = None,
    ) -> None:
        """Create the writers.

        Args:
            plan: The plan.
            job_id: The job.
            run: The run.
            clock: The wall clock.
            owner: The job and its checkpoint, for files. None: there is no checkpoint.
            durable: Whether files are forced to the disk.
            workers: Write to files and parallel sinks. None: this process does.
        """
        self._workers = workers
        self._files = {
            operator.id: LocalFileSink(operator, clock, run.run_id, owner, durable=durable)
            for operator in plan.operators
            if isinstance(operator.body, FileSink)
        }
        self._sinks = [operator for operator in plan.operators if operator.kind is OperatorKind.SINK]
        self._job_id = job_id
        self._run = run
        self._begun: set[tuple[int, int]] = set()  # the sinks, and the parallelism with which they have begun

    def begin(self, next_batch: int) -> None:
        """Called before the run writes. Raises ``JobError``.

        ``next_batch``: The first micro-batch that is not stored in the checkpoint.
        """
        for sink in self._files.values():
            sink.begin(next_batch)

    def roll(self, *, at_end: bool = False) -> None:
        """Merge small files if it is time to, or if the run ends. Raises ``JobError``."""
        for sink in self._files.values():
            if at_end:
                sink.finish()
            elif sink.is_due():
                sink.roll()

    def write(self, frames: Iterable[Frame], outputs: Sequence[SinkOutput], batch_id: int) -> None:
        """Write one micro-batch to all sinks. Raises ``JobError``.

        ``outputs``: The records for sinks that worker processes write to.
        """
        by_sink: dict[int, list[tuple[int, RecordBatch[Any]]]] = {operator.id: [] for operator in self._sinks}
        for frame in frames:
            by_sink[frame.operator].append((frame.subtask, frame.batch))
        for operator in self._sinks:
            own = [output for output in outputs if output.uid == operator.uid]
            self._write(operator, by_sink[operator.id], own, operator.parallelism, batch_id)

    def write_again(self, outputs: Sequence[SinkOutput], codec: Codec, batch_id: int) -> None:
        """Write a micro-batch of an earlier run, which the sinks may have in part. Raises ``JobError``."""
        for operator in self._sinks:
            found = [output for output in outputs if output.uid == operator.uid]
            parallelism = found[0].parallelism if found else operator.parallelism
            self._write(operator, batches_of(found, codec), found, parallelism, batch_id)

    def _write(
        self,
        operator: Operator,
        records: Iterable[tuple[int, RecordBatch[Any]]],
        outputs: Sequence[SinkOutput],
        parallelism: int,
        batch_id: int,
    ) -> None:
        if (files := self._files.get(operator.id)) is not None:
            files.write(self._parts_writer(operator, files, records, outputs, batch_id), batch_id)
            return
        assert isinstance(operator.body, Sink)
        info = SinkInfo(self._job_id, operator.uid, parallelism, self._run)
        if (operator.id, parallelism) not in self._begun:
            begin(operator.body, info, batch_id, name_of(operator))
            self._begun.add((operator.id, parallelism))
        if not isinstance(operator.body, ParallelSink):
            write_on_driver(operator, info, [batch for _, batch in records], batch_id)
        elif self._workers is not None:
            self._workers.write(operator, info, outputs, batch_id)
        else:
            write_in_subtasks(operator, info, sorted(records, key=itemgetter(0)), batch_id)

    def _parts_writer(
        self,
        operator: Operator,
        files: LocalFileSink,
        records: Iterable[tuple[int, RecordBatch[Any]]],
        outputs: Sequence[SinkOutput],
        batch_id: int,
    ) -> Callable[[str], None] | None:
        if self._workers is not None:
            return partial(self._workers.write_files, operator, outputs, batch_id) if outputs else None
        batches = [batch for _, batch in records if batch]
        return partial(files.parts.write, batches, batch_id) if batches else None


def write_in_subtasks(
    operator: Operator, info: SinkInfo, records: Iterable[tuple[int, RecordBatch[Any]]], batch_id: int
) -> None:
    """Write to a ``ParallelSink`` in this process. ``records``: By subtask, in their order. Raises ``JobError``."""
    assert isinstance(operator.body, ParallelSink)
    for subtask, found in groupby(records, key=itemgetter(0)):
        batches = (batch for _, batch in found)
        write_in_task(operator.body, SinkBatch(info, subtask, batch_id, batches), name_of(operator))


class ReceivedFrame(Frame):
    """A frame for a sink that another process has encoded. ``content``: Its batch, encoded."""

    __slots__ = ("content",)

    def __init__(self, operator: Operator, subtask: int, channel: int, content: bytes, codec: Codec) -> None:
        super().__init__(operator.id, subtask, channel, _decoded(operator.uid, content, codec), [])
        self.content = content


def encoded_outputs(plan: Plan, frames: Iterable[Frame], codec: Codec) -> list[SinkOutput]:
    """Encode the frames for the sinks of ``plan``."""
    outputs = []
    for frame in frames:
        operator = plan.operators[frame.operator]
        content = frame.content if isinstance(frame, ReceivedFrame) else sealed_output(frame.batch, codec)
        outputs.append(SinkOutput(operator.uid, operator.parallelism, frame.subtask, content))
    return outputs


def sealed_output(batch: RecordBatch[Any], codec: Codec) -> bytes:
    """Encode a batch for a sink."""
    return codec.seal_columns(BlobKind.FRAME, [batch.records, batch.timestamps or ()])


def batches_of(outputs: Iterable[SinkOutput], codec: Codec) -> Iterator[tuple[int, RecordBatch[Any]]]:
    """Decode outputs one after the other. Yields their subtasks and batches."""
    for output in outputs:
        yield output.subtask, _decoded(output.uid, output.records, codec)


def _decoded(uid: str, content: bytes, codec: Codec) -> RecordBatch[Any]:
    records, timestamps = codec.unseal_columns(BlobKind.FRAME, content, f"A record for the sink {uid!r}")
    return RecordBatch(records, timestamps if len(timestamps) else None)
