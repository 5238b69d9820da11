"""Frames as rows of a DataFrame: ``slot int, channel int, seq long, payload binary``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dsv2.checkpoint.task_report import TaskReport
from dsv2.graph import OperatorKind, Plan
from dsv2.runtime.exchange.control_log import Control
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.exchange.wire import Wire
from dsv2.runtime.report.driver_limits import DriverLimits
from dsv2.runtime.serde.codec import Codec
from runtime_spark.frames.layout import REPORT_SLOT, Layout

ROW_SCHEMA = "slot int, channel int, seq long, payload binary"
COLUMNS = ("slot", "channel", "seq", "payload")
ARROW_SCHEMA = pa.schema([("slot", pa.int32()), ("channel", pa.int32()), ("seq", pa.int64()), ("payload", pa.binary())])
MAX_FRAME_BYTES = 1 << 20
"""Frames are split if they are larger."""
OUTPUT_BYTES = 16 << 20
"""Rows are passed to Spark in batches of about this size."""
ORDER_CHANNEL = -1
"""Rows of this channel carry orders: portions of a source that the subtask reads itself."""
RESTORE_CHANNEL = -2
"""Rows of this channel carry state from a savepoint, in the first micro-batch."""

Row: TypeAlias = tuple[int, int, int, bytes]


class FrameEncoder:
    """Encodes the frames of a subtask and buffers them as rows."""

    def __init__(self, plan: Plan, layout: Layout, codec: Codec, first_seq: int = 0) -> None:
        self._plan = plan
        self._slots = layout.slots
        self._wire = Wire(plan, codec)
        self._first_seq = first_seq
        self._limits = DriverLimits(plan)
        self._shared: tuple[list[Control], bytes] | None = None
        self._next_seq: dict[tuple[int, int], int] = {}  # per channel; receivers alternate between channels, by seq
        self._rows: list[Row] = []
        self.size = 0  # bytes of the buffered payloads

    def emit(self, frame: Frame) -> None:
        """Encode ``frame``. A frame that is too large is split. Sinks receive no frames without records.

        Raises:
            SerializationError: A record cannot be serialized; the message names the record and its sender.
        """
        if not frame.batch and self._plan.operators[frame.operator].kind is OperatorKind.SINK:
            return
        payload = self._wire.encoded(frame) if frame.batch else self._encoded_controls(frame)
        if len(payload) > MAX_FRAME_BYTES and len(frame.batch) > 1:
            for part in frame.split(len(frame.batch) // 2):
                self.emit(part)
            return
        if not self._limits.add(frame.operator, len(frame.batch), len(payload)):
            return  # ``take`` will raise
        slot = self._slots[frame.operator, frame.subtask]
        seq = self._next_seq.get((slot, frame.channel), self._first_seq)
        self._next_seq[slot, frame.channel] = seq + 1
        self.add((slot, frame.channel, seq, payload))

    def _encoded_controls(self, frame: Frame) -> bytes:
        """Encode a frame without records. Channels that send the same control elements share the list of them."""
        if self._shared is None or self._shared[0] is not frame.controls:
            self._shared = frame.controls, self._wire.encoded(frame)
        return self._shared[1]

    def add(self, row: Row) -> None:
        """Buffer an encoded row."""
        self._rows.append(row)
        self.size += len(row[3])

    def report(self, report: TaskReport) -> None:
        """Add a row that carries a report to the driver."""
        self.add((REPORT_SLOT, 0, 0, report.encoded()))

    def take(self) -> list[Row]:
        """Return and remove the buffered rows. Raises ``JobError`` if they exceed the limit of a sink on the driver."""
        self._limits.check()
        rows, self._rows, self.size = self._rows, [], 0
        return rows


def from_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Return the rows in Arrow batches."""
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)


def to_arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    """Convert rows to one Arrow batch."""
    columns = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)],
        schema=ARROW_SCHEMA,
    )


def literal_rows(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    """Return a DataFrame of ``rows``."""
    return spark.createDataFrame(pa.Table.from_batches([to_arrow(rows)]), ROW_SCHEMA)
