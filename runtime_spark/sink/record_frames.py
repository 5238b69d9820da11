"""The records that reach a sink, as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql import types as t

from dsv2.base.garbage_collector import patient_collector
from dsv2.connectors.files.sink_tables import table_schema
from dsv2.connectors.files.table_files import check_folder_names, lines
from dsv2.graph import Operator
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.serde.codec import Codec
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.layout import REPORT_SLOT, Layout
from runtime_spark.frames.schema import SparkRecordWriter, schema_of
from runtime_spark.frames.worker import load_job

_LINE = "dsv2_line"


def decoded(
    frames: DataFrame,
    operator: Operator,
    layout: Layout,
    packed: bytes,
    schema: type | str,
    partition_by: Sequence[str] = (),
    format: str = "parquet",
    reports: Accumulator[list[bytes]] | None = None,
) -> DataFrame:
    """Return the records that reach the sink ``operator``, as a DataFrame of ``schema``.

    Args:
        frames: The frames of the last level.
        operator: The sink.
        layout: Its slots.
        packed: The job.
        schema: The columns of the records.
        partition_by: Columns whose values are to become names of folders.
        format: ``"json"`` or ``"csv"``: the DataFrame has a line of text for each record, and the columns of
            ``partition_by``. Spark's own writers of these formats change values.
        reports: Receives the reports of subtasks among the frames. None: they are left out.
    """
    struct = schema_of(schema)
    name = f"The sink {operator}, defined at {operator.location}"
    encode = None if format == "parquet" else _LineEncoder(struct, partition_by, format)
    time_zone = frames.sparkSession.conf.get("spark.sql.session.timeZone")
    assert time_zone is not None  # has a default

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with marked_failures(), patient_collector():
            codec: Codec = load_job(packed).codec()
            writer = SparkRecordWriter(struct, name, time_zone)
            for batch in batches:
                for slot, payload in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    if reports is not None and slot == REPORT_SLOT:
                        reports.add([payload])
                        continue
                    records, _ = decode_frame(codec, payload, name)
                    if records:
                        rows = writer.write(records.records)
                        check_folder_names(rows, partition_by, name)
                        yield rows if encode is None else encode(rows)

    slots = [*layout.slots_of(operator), *([] if reports is None else [REPORT_SLOT])]
    columns = struct if encode is None else encode.schema
    return frames.where(F.col("slot").isin(slots)).select("slot", "payload").mapInArrow(decode, columns)


class _LineEncoder:
    """Encodes rows as lines of JSON or CSV, next to the columns of ``partition_by``. Sent to the tasks."""

    def __init__(self, struct: t.StructType, partition_by: Sequence[str], format: str) -> None:
        self._format = format
        self._folders = list(partition_by)
        self._fields = {**struct.jsonValue(), "fields": [f.jsonValue() for f in struct if f.name not in self._folders]}
        self.schema = t.StructType([t.StructField(_LINE, t.StringType()), *(struct[name] for name in self._folders)])

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        kinds = table_schema(self._fields)
        table = pa.Table.from_batches([rows]).select(kinds.names).cast(kinds)  # times in UTC
        folders = [rows.column(name) for name in self._folders]
        encoded = pa.array(lines(table, self._format), pa.string())
        return pa.RecordBatch.from_arrays([encoded, *folders], [_LINE, *self._folders])
