"""The records that reach a sink, as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2.errors import SchemaError
from dsv2.graph import Operator
from dsv2.runtime.serde.codec import Codec
from runtime_spark.failures import marked_failures
from runtime_spark.layout import Layout
from runtime_spark.rows import decode_frame
from runtime_spark.schema import RecordWriter, schema_of
from runtime_spark.worker import load_job, patient_collector

__all__ = ("decoded",)

_LIKE_NONE = ["", "__HIVE_DEFAULT_PARTITION__"]


def decoded(
    frames: DataFrame,
    operator: Operator,
    layout: Layout,
    packed: bytes,
    schema: type | str,
    partition_by: Sequence[str] = (),
) -> DataFrame:
    """Return the records that reach the sink ``operator``, as a DataFrame of ``schema``.

    ``partition_by``: Columns whose values are to become names of folders.
    """
    struct = schema_of(schema)
    name = f"The sink {operator}, defined at {operator.location}"
    time_zone = frames.sparkSession.conf.get("spark.sql.session.timeZone")
    assert time_zone is not None  # has a default

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with marked_failures(), patient_collector():
            codec: Codec = load_job(packed).codec()
            writer = RecordWriter(struct, name, time_zone)
            for batch in batches:
                for payload in batch.column(0).to_pylist():
                    records, _ = decode_frame(codec, payload, name)
                    if records:
                        rows = writer.write(records.records)
                        _check_folder_names(rows, partition_by, name)
                        yield rows

    slots = layout.slots_of(operator)
    return frames.where(F.col("slot").isin(slots)).select("payload").mapInArrow(decode, struct)


def _check_folder_names(rows: pa.RecordBatch, columns: Sequence[str], sink: str) -> None:
    for column in columns:
        values = rows.column(column)
        if pa.types.is_string(values.type) and pc.any(pc.is_in(values, pa.array(_LIKE_NONE))).as_py():
            raise SchemaError(
                f"{sink}: a record has an empty string, or '__HIVE_DEFAULT_PARTITION__', in the column {column!r} of "
                f"partition_by. Readers could not distinguish it from None. Map it to another value."
            )
