"""Writes the micro-batches of one job to a ``FileSink``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from dsv2.clock import Clock
from dsv2.errors import Dsv2Error, JobError
from dsv2.file_log import Rolling, SinkFolder
from dsv2.file_log.description import Description
from dsv2.graph import Operator
from dsv2.runtime.report.sink_calls import name_of
from dsv2.sinks import FileSink
from runtime_spark.decoded import decoded
from runtime_spark.file_merges import SparkMerger
from runtime_spark.folders import open_folder
from runtime_spark.layout import Layout
from runtime_spark.schema import schema_of
from runtime_spark.session import writing_parquet

__all__ = ("FileSinkWriter",)

_NEVER_MS = 1 << 62


class FileSinkWriter:
    """Writes to the file sink ``operator``.

    A micro-batch is written, and published when it is committed. ``write`` may run in another thread than the rest.
    """

    def __init__(
        self, spark: SparkSession, operator: Operator, layout: Layout, packed: bytes, clock: Clock, run_id: str
    ) -> None:
        sink = operator.body
        assert isinstance(sink, FileSink)
        self.operator = operator
        self._sink: FileSink[object] = sink
        self._spark = spark
        self._layout = layout
        self._packed = packed
        self._clock = clock
        self._run_id = run_id
        self._schema = 0
        self._folder: SinkFolder

    def begin(self, first_batch: int) -> None:
        """Begin to write with micro-batch ``first_batch``, and complete what an earlier run has committed.

        Raises:
            JobError: The folder cannot be used.
        """
        with self._named("cannot continue its output"):
            folder = open_folder(self._spark, self._sink.path)
            schema = schema_of(self._sink.schema).jsonValue()
            self._schema = Description.update(folder, self._sink.format.value, self._sink.partition_by, schema)
            self._merger = SparkMerger(self._spark, folder)
            self._folder = SinkFolder(
                folder,
                self._clock,
                self._run_id,
                rolling=_rolling(self._sink),
                retention_ms=self._sink.retention_ms,
                suffix=self._sink.format.value,
            )
            self._folder.begin(first_batch)

    def write(self, frames: DataFrame, batch_id: int) -> None:
        """Write a micro-batch with records. Readers do not see it yet. Raises Spark's error."""
        sink = self._sink
        format, folders = sink.format.value, sink.partition_by
        records = decoded(frames, self.operator, self._layout, self._packed, sink.schema, folders, format)
        staging = self._folder.stage(batch_id)
        writer, target = records.write.partitionBy(*folders), f"{sink.path.rstrip('/')}/{staging}"
        if format == "parquet":
            with writing_parquet(records.sparkSession):
                writer.parquet(target)
        else:
            writer.text(target, compression="none", lineSep="\n")
        self._folder.prepare(batch_id, staging, self._schema)

    def publish(self) -> None:
        """Show readers the micro-batch that was written, which is now committed. Raises ``JobError``."""
        with self._named("cannot publish a micro-batch"):
            self._folder.publish()

    def next_roll_ms(self) -> int | None:
        """Return when small files are to be merged, in ms since the epoch; None if there are none."""
        return self._folder.next_roll_ms()

    def roll(self) -> None:
        """Merge small files. Raises ``JobError``."""
        with self._named("cannot merge small files"):
            self._folder.roll(self._merger)

    def finish(self) -> None:
        """End normally: merge small files, so that all readers see all records. Raises ``JobError``."""
        self.roll()
        with self._named("cannot complete its output"):
            self._folder.close()

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except Dsv2Error as error:
            raise type(error)(f"{name_of(self.operator)} {what}: {error}") from error
        except Exception as error:
            raise JobError(f"{name_of(self.operator)} {what}: {type(error).__qualname__}: {error}") from error


def _rolling(sink: FileSink[object]) -> Rolling | None:
    if sink.roll_bytes is None:
        return None
    return Rolling(_NEVER_MS if sink.roll_ms is None else sink.roll_ms, sink.roll_bytes)
