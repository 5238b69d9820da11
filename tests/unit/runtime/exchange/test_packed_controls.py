"""Control elements in transit: stored and encoded once for all channels without records, in a few bytes each."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.errors import CorruptDataError
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import END, START, STATUS, WATERMARK, Control, pack_controls, unpack_controls
from dsv2.runtime.exchange.frames import MAX_FRAME_RECORDS
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.rows import FrameEncoder
from tests.support import ENDED, STARTED, elements, watermark
from tests.unit.runtime.exchange.test_frames import Sent, pipeline

CODEC = Codec(TypeRegistry())
VALUES = st.booleans() | st.integers(-(2**63), 2**63 - 1)
CONTROLS = st.lists(
    st.tuples(
        st.integers(0, 9), st.sampled_from((WATERMARK, STATUS, END, START)), st.sampled_from("ab") | st.text(), VALUES
    )
)


@given(CONTROLS)
def test_they_are_the_same_after_transit(controls: list[Control]) -> None:
    controls.sort(key=lambda control: control[0])
    blob = CODEC.seal_columns(BlobKind.FRAME, [pack_controls(controls)])
    (column,) = CODEC.unseal_columns(BlobKind.FRAME, blob, "a frame")
    assert repr(unpack_controls(column, "a frame")) == repr(controls)  # True is not 1


def test_a_rising_watermark_takes_few_bytes() -> None:
    controls: list[Control] = [(0, WATERMARK, "newest-posting-time", 1_700_000_000_000 + 1000 * n) for n in range(100)]
    assert len(CODEC.seal_columns(BlobKind.FRAME, [pack_controls(controls)])) < 100 * 6


@pytest.mark.parametrize("column", [[1], [2, True, 1, "w", 0, 0, 0, 1], [1, True, 1, "w", 0, 9, 1]])
def test_damaged_ones_are_refused(column: list[Any]) -> None:
    with pytest.raises(CorruptDataError, match="A frame for f: the control elements are damaged"):
        unpack_controls(column, "A frame for f")


def test_channels_without_records_share_them() -> None:
    sent = Sent("hash", subtask=1)
    sent.edge.control(*STARTED)
    sent.edge.control(*watermark(1))
    sent.collect([7])
    sent.edge.control(*watermark(2))
    with_record = {place: found for place, found in sent.flush().items() if 7 in found}
    assert [*with_record.values()] == [[watermark(1), 7, watermark(2)]]
    empty = [frame for frame in sent.frames if not frame.batch]
    assert len(empty) == 3
    assert len({id(frame.controls) for frame in empty}) == 1
    assert elements(empty[:1]) == [watermark(1), watermark(2)]


@given(st.lists(st.lists(st.integers(0, 9) | st.integers(0, 3).map(watermark), max_size=9), max_size=4), st.data())
def test_every_channel_keeps_its_order(portions: list[list[Any]], data: st.DataObject) -> None:
    sent = Sent("hash", subtask=1)
    columns = data.draw(st.booleans())
    for portion in portions:
        for element in portion:
            if isinstance(element, int):
                batch = RecordBatch([element, element])
                sent.edge.emit_batch(batch) if columns else sent.collect(batch.records)
            else:
                sent.edge.control(*element)
        at_least = data.draw(st.integers(0, 3))
        sent.edge.flush(sent.frames.append, at_least)
    everything = [element for portion in portions for element in portion]
    for channel, own in sent.flush().items():
        kept = {element for element in own if isinstance(element, int)}
        sequence = [[e] * (2 if isinstance(e, int) else 1) for e in everything if e in kept or not isinstance(e, int)]
        assert own == [element for part in sequence for element in part], channel


def test_many_without_records_do_not_pile_up() -> None:
    sent = Sent("hash")
    for value in range(MAX_FRAME_RECORDS):
        sent.edge.control(*watermark(value))
    sent.edge.flush(sent.frames.append, at_least=1)
    assert [len(frame.controls) for frame in sent.frames] == [MAX_FRAME_RECORDS] * 4
    sent.edge.control(*watermark(0))
    assert {tuple(found[-1:]) for found in sent.flush().values()} == {(watermark(0),)}


def test_they_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = pipeline()
    seal = Mock(side_effect=CODEC.seal_columns)
    monkeypatch.setattr(CODEC, "seal_columns", seal)
    encoder, edge = FrameEncoder(plan, Layout.of(plan), CODEC), Sent("hash").edge
    edge.control(*watermark(5))
    edge.flush(encoder.emit)
    edge.control(*ENDED)
    edge.flush(encoder.emit)
    rows = encoder.take()
    assert (len(rows), seal.call_count) == (8, 2)
    assert {seq for _, _, seq, _ in rows} == {0, 1}
    controls = [decode_frame(CODEC, payload, "it")[1] for *_, payload in rows]
    assert controls == [[(0, *watermark(5))]] * 4 + [[(0, *ENDED)]] * 4
