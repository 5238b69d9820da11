"""Sending columns: a channel collects small batches and keeps their order among records and signals."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.arrow import records_of, schema_of
from dsv2.arrow.records import ArrowWholeNumbers, table_of
from dsv2.base.columnar import Columnar, WholeNumbers
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.edges import new_edge
from dsv2.runtime.exchange.frames import COLUMNAR_FRAME_RECORDS, ChannelWriter, Frame
from tests.support import elements, local_environment, one_input, operator_named, unpacked, watermark


class Click(NamedTuple):
    """A record."""

    user: str
    time: int


class View(NamedTuple):
    """Another record with the same columns."""

    user: str
    time: int


def columns(count: int, kind: type = Click, user: str = "ada", first: int = 0) -> Columnar[Any]:
    """A batch of ``count`` records."""
    return records_of(pa.table([pa.repeat(user, count), np.arange(first, first + count)], schema_of(kind)), kind)


def frames_of(writer: ChannelWriter) -> list[Frame]:
    frames = list[Frame]()
    writer.flush(frames.append)
    return frames


RUNS = st.lists(st.sampled_from([Click("ada", 1), Click("ben", 2), View("ada", 3)]), min_size=1, max_size=4)
STAMPS = st.sampled_from([None, "list", "column"])
ALIKE = RUNS.map(lambda run: [record for record in run if type(record) is type(run[0])])
ACTIONS = st.one_of(
    st.tuples(st.just("columns"), ALIKE, STAMPS),
    st.tuples(st.just("list"), RUNS, st.sampled_from([None, "list"])),
    st.tuples(st.just("append"), st.just([Click("eve", 9)]), st.sampled_from([None, "list"])),
    st.tuples(st.just("control"), st.integers(0, 3), st.none()),
    st.tuples(st.just("flush"), st.booleans(), st.none()),
)


@given(st.lists(ACTIONS, max_size=12))
def test_elements_keep_order_and_timestamps(actions: list[tuple[str, Any, str | None]]) -> None:
    writer, frames, expected = ChannelWriter(3, 1, 2), list[Frame](), list[Any]()
    for action, what, stamped in actions:
        if action == "control":
            writer.control(*watermark(what))
            expected.append(watermark(what))
            continue
        if action == "flush":
            (writer.flush_whole if what else writer.flush)(frames.append)
            continue
        first = len(expected)
        times: list[int | None] | None = None if stamped is None else list(range(first, first + len(what)))
        stamps = times or [None] * len(what)
        expected.extend(zip(map(type, what), what, stamps, strict=True))
        if action == "append":
            writer.append(what[0]) if times is None else writer.append_stamped(what[0], times[0])
        elif action == "list":
            writer.extend(RecordBatch(what, times))
        else:
            kind = type(what[0])
            column = ArrowWholeNumbers(pa.array(times, pa.int64())) if stamped == "column" else times
            writer.extend(RecordBatch(records_of(table_of(what, kind), kind), column))
    assert writer.count + len(writer.records) == sum(isinstance(element[0], type) for element in expected)
    writer.flush(frames.append)
    assert [element for frame in frames for element in stamped_elements(frame)] == expected


def stamped_elements(frame: Frame) -> list[Any]:
    return unpacked([(type(record), record, timestamp) for record, timestamp in frame.batch.pairs()], frame.controls)


def test_small_batches_share_a_frame() -> None:
    writer = ChannelWriter(0, 0, 0)
    writer.control(*watermark(1))
    for first in range(0, 50, 10):
        records = columns(10, first=first)
        writer.extend(RecordBatch(records, records.whole_numbers("time")))
    writer.control(*watermark(2))
    (frame,) = frames_of(writer)
    assert isinstance(frame.batch.records, Columnar)
    assert isinstance(frame.batch.timestamps, WholeNumbers)
    assert list(frame.batch.timestamps) == list(range(50))
    assert elements([frame]) == [watermark(1), *columns(50), watermark(2)]


@pytest.mark.parametrize(
    ("sizes", "frames"),
    [
        ([COLUMNAR_FRAME_RECORDS - 1, 1], [COLUMNAR_FRAME_RECORDS]),
        ([COLUMNAR_FRAME_RECORDS, 1], [COLUMNAR_FRAME_RECORDS, 1]),
        ([1, 2 * COLUMNAR_FRAME_RECORDS + 5], [1, COLUMNAR_FRAME_RECORDS, COLUMNAR_FRAME_RECORDS, 5]),
    ],
)
def test_columnar_frames_respect_their_limit(sizes: Sequence[int], frames: Sequence[int]) -> None:
    writer = ChannelWriter(0, 0, 0)
    for size in sizes:
        writer.extend(RecordBatch(columns(size)))
    assert [len(frame.batch.records) for frame in frames_of(writer)] == frames


def test_large_records_fill_a_frame_early() -> None:
    writer = ChannelWriter(0, 0, 0)
    for _ in range(5):
        writer.extend(RecordBatch(columns(1, user="x" * 600_000)))
    assert [len(frame.batch.records) for frame in frames_of(writer)] == [2, 2, 1]


def test_small_slices_do_not_keep_large_tables() -> None:
    writer = ChannelWriter(0, 0, 0)
    for _ in range(3):
        writer.extend(RecordBatch(columns(100_000)[:1]))
    assert [len(frame.batch.records) for frame in frames_of(writer)] == [1, 1, 1]


def test_full_frames_are_sent_and_small_ones_wait() -> None:
    env, frames = local_environment(parallelism=2), list[Frame]()
    env.from_collection(list[Any]()).key_by(attrgetter("user")).process(one_input()).with_uid("f")
    plan = env.build_plan()
    (edge,) = plan.edges_into[operator_named(plan, "f").id]
    output = new_edge(plan, edge, 0)
    for size in (COLUMNAR_FRAME_RECORDS - 1, 10, 20):
        output.emit_batch(RecordBatch(columns(size)))
        output.flush(frames.append, at_least=1)
    assert [len(frame.batch.records) for frame in frames] == [COLUMNAR_FRAME_RECORDS - 1]
    output.flush(frames.append)
    assert [len(frame.batch.records) for frame in frames] == [COLUMNAR_FRAME_RECORDS - 1, 30]
    assert output.records_sent == COLUMNAR_FRAME_RECORDS + 29
