"""Frames as rows for Spark: large ones are split, and a record that cannot be sent is named."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from dsv2.errors import SerializationError
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.exchange.position_tracing import TracedBatch
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink
from runtime_spark.frames import rows
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.rows import FrameEncoder
from tests.support import local_environment, one_input, operator_named, unpacked, watermark

CODEC = Codec(TypeRegistry())


def encoder_of() -> tuple[FrameEncoder, int]:
    """An encoder, and the id of an operator that receives frames."""
    env = local_environment()
    numbers = env.from_collection([1]).with_uid("numbers").shuffle()
    numbers.process(one_input()).with_uid("f").to_sink(CollectSink()).with_uid("out")
    plan = env.build_plan()
    return FrameEncoder(plan, Layout.of(plan), CODEC), operator_named(plan, "f").id


def test_large_frame_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_FRAME_BYTES", 300)
    encoder, operator = encoder_of()
    records = [f"{number:0100}" for number in range(10)]
    encoder.emit(Frame(operator, 0, 0, RecordBatch(records), [(4, *watermark(1)), (10, *watermark(2))]))
    encoder.emit(Frame(operator, 0, 0, RecordBatch(["x" * 1000]), []))  # a single record cannot be split
    size = encoder.size
    taken = encoder.take()
    assert [seq for _, _, seq, _ in taken] == [*range(len(taken))]
    assert sum(len(payload) for *_, payload in taken) == size
    assert max(len(payload) for *_, payload in taken[:-1]) <= 300
    elements: list[Any] = []
    for *_, payload in taken:
        batch, controls = decode_frame(CODEC, payload, "a frame")
        elements += unpacked(batch.records, controls)
    assert elements == [*records[:4], watermark(1), *records[4:], watermark(2), "x" * 1000]
    assert (encoder.size, encoder.take()) == (0, [])


def test_record_that_cannot_be_sent_is_named() -> None:
    encoder, operator = encoder_of()
    with pytest.raises(SerializationError) as refused:
        encoder.emit(Frame(operator, 0, 0, RecordBatch([1, sys.stdout, 2]), []))
    said = str(refused.value)
    assert "Collection Source (uid 'numbers'), defined at " in said
    assert f", emitted {sys.stdout!r}. " in said
    assert said.endswith("Records are sent between processes, so they must contain plain values only.")


def test_positions_of_traced_records_are_sent() -> None:
    encoder, operator = encoder_of()
    positions = [("numbers", "a", 3), None]
    encoder.emit(Frame(operator, 0, 0, TracedBatch([1, 2], None, positions), []))
    ((*_, payload),) = encoder.take()
    batch, _ = decode_frame(CODEC, payload, "a frame")
    assert isinstance(batch, TracedBatch)
    assert [*batch.records] == [1, 2]
    assert [None if at is None else (*at,) for at in batch.positions] == positions


def test_signal_that_cannot_be_sent_is_an_error_of_its_own() -> None:
    encoder, operator = encoder_of()
    damaged: Any = [(0, 1, sys.stdout, 0)]
    with pytest.raises(SerializationError) as refused:
        encoder.emit(Frame(operator, 0, 0, RecordBatch([1]), damaged))
    assert "emitted" not in str(refused.value)
