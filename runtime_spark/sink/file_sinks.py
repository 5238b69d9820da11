"""Writes the micro-batches of one job to a ``FileSink``."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from dsv2.base.clock import Clock
from dsv2.connectors.files.sink_writer import FileSinkWriter
from dsv2.graph import Operator
from dsv2.runtime.report.sink_calls import name_of
from dsv2.sinks import FileSink
from runtime_spark.checkpoint.file_merges import SparkMerger
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.schema import schema_of
from runtime_spark.frames.session import writing_parquet
from runtime_spark.platform.folders import open_folder
from runtime_spark.sink.record_frames import decoded


class SparkFileSinkWriter(FileSinkWriter):
    """Writes to the file sink ``operator``. A micro-batch is written, and published when it is committed."""

    def __init__(
        self, spark: SparkSession, operator: Operator, layout: Layout, packed: bytes, clock: Clock, run_id: str
    ) -> None:
        assert isinstance(operator.body, FileSink)
        super().__init__(operator.body, name_of(operator), clock, run_id)
        self.operator = operator
        self._spark = spark
        self._layout = layout
        self._packed = packed

    def begin(self, first_batch: int) -> None:
        """Begin to write with micro-batch ``first_batch``, and complete what an earlier run has committed.

        Raises:
            JobError: The folder cannot be used.
        """
        with self.named("cannot continue its output"):
            folder = open_folder(self._spark, self.sink.path)
            schema = schema_of(self.sink.schema).jsonValue()
            self.open(folder, schema, SparkMerger(self._spark, folder), first_batch)

    def write(self, frames: DataFrame, batch_id: int) -> None:
        """Write a micro-batch with records. Readers do not see it yet. Raises Spark's error."""
        sink = self.sink
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
