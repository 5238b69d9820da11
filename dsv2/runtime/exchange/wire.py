"""Serialization of frames between processes."""

from __future__ import annotations

from typing import Any

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.graph import Operator, Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import Control, pack_controls, unpack_controls
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.exchange.position_tracing import TracedBatch
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import BlobKind, Codec


class Wire:
    """Serializes and deserializes frames."""

    def __init__(self, plan: Plan, codec: Codec) -> None:
        self._plan = plan
        self._codec = codec

    def send(self, frame: Frame) -> Frame:
        """Return ``frame`` as its receiver gets it. Raises ``SerializationError`` for a record that cannot be sent."""
        try:
            return self.decoded(frame.operator, frame.subtask, frame.channel, self.encoded(frame))
        except CorruptDataError:
            self._blame_record(frame)
            raise

    def encoded(self, frame: Frame) -> bytes:
        """Serialize what ``frame`` carries.

        Raises:
            SerializationError: A record cannot be sent; the message names the record and its sender.
        """
        batch = frame.batch
        columns = [batch.records, pack_controls(frame.controls), batch.timestamps or ()]
        if isinstance(batch, TracedBatch):
            columns.append(batch.positions)
        try:
            return self._codec.seal_columns(BlobKind.FRAME, columns)
        except SerializationError:
            self._blame_record(frame)
            raise

    def decoded(self, operator: int, subtask: int, channel: int, blob: bytes) -> Frame:
        """Return the frame from what it carries. Raises ``CorruptDataError``."""
        return Frame(operator, subtask, channel, *decode_frame(self._codec, blob, "A frame"))

    def _blame_record(self, frame: Frame) -> None:
        sender = self._plan.sender(frame.operator, frame.channel)
        for record in frame.batch.records:
            self._check_record(sender, record)

    def _check_record(self, sender: Operator, record: Any) -> None:
        try:
            self._codec.loads(self._codec.dumps(record), "A record")
        except (SerializationError, CorruptDataError) as error:
            raise SerializationError(
                f"{error} {sender}, defined at {sender.location}, emitted {shorten(record)}. Records are sent between "
                f"processes, so they must contain plain values only."
            ) from error


def decode_frame(codec: Codec, payload: bytes, owner: str) -> tuple[RecordBatch[Any], list[Control]]:
    """Decode the records and control elements of a frame. Raises ``CorruptDataError``, naming ``owner``."""
    records, controls, timestamps, *positions = codec.unseal_columns(BlobKind.FRAME, payload, owner)
    stamps = timestamps if len(timestamps) else None
    batch = TracedBatch(records, stamps, positions[0]) if positions else RecordBatch(records, stamps)
    return batch, unpack_controls(controls, owner)
