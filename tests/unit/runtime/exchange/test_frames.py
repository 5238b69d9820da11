"""Sending: frames keep the order of a channel, also of columns, and each kind of edge routes to the right subtasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from dsv2.errors import UserFunctionError
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange import edges
from dsv2.runtime.exchange.edges import HashEdge, new_edge
from dsv2.runtime.exchange.frames import COLUMNAR_FRAME_RECORDS, MAX_FRAME_RECORDS, ChannelWriter, Frame
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.sinks import CollectSink
from tests.support import (
    ENDED,
    STARTED,
    Driver,
    broadcast_side,
    elements,
    local_environment,
    one_input,
    operator_named,
    packed,
    unpacked,
    watermark,
)

SEQUENCES = st.lists(st.integers(0, 9) | st.integers(0, 3).map(watermark), max_size=12)


@given(SEQUENCES, st.data())
def test_splitting_a_frame_keeps_its_elements(sequence: list[Any], data: st.DataObject) -> None:
    frame = Frame(3, 1, 2, *packed(sequence))
    at = data.draw(st.integers(0, len(frame.batch.records)))
    first, second = frame.split(at)
    assert unpacked(first.batch.records, first.controls) + unpacked(second.batch.records, second.controls) == sequence
    assert [len(first.batch.records), len(second.batch.records)] == [at, len(frame.batch.records) - at]
    assert {(part.operator, part.subtask, part.channel) for part in (first, second)} == {(3, 1, 2)}


@given(st.lists(SEQUENCES, max_size=5))
def test_writer_keeps_the_order(parts: list[list[Any]]) -> None:
    writer, frames = ChannelWriter(3, 1, 2), list[Frame]()
    append = writer.append  # collectors keep a reference to it
    for part in parts:
        for element in part:
            append(element) if isinstance(element, int) else writer.control(*element)
        writer.flush(frames.append)
    assert elements(frames) == [element for part in parts for element in part]
    assert writer.count == sum(len(frame.batch.records) for frame in frames)
    assert len(frames) == sum(bool(part) for part in parts)


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (MAX_FRAME_RECORDS, [MAX_FRAME_RECORDS]),
        (MAX_FRAME_RECORDS + 1, [MAX_FRAME_RECORDS, 1]),
        (2 * MAX_FRAME_RECORDS + 5, [MAX_FRAME_RECORDS, MAX_FRAME_RECORDS, 5]),
    ],
)
def test_frames_respect_their_limit(count: int, sizes: list[int]) -> None:
    writer, frames = ChannelWriter(0, 0, 0), list[Frame]()
    for record in range(count):
        if record == MAX_FRAME_RECORDS:
            writer.control(*watermark(7))
        writer.append(record)
    writer.control(*ENDED)
    writer.flush(frames.append)
    assert [len(frame.batch.records) for frame in frames] == sizes
    signalled = [*range(count), ENDED]
    if count > MAX_FRAME_RECORDS:
        signalled.insert(MAX_FRAME_RECORDS, watermark(7))
    assert elements(frames) == signalled


class Sent:
    """Output of one upstream subtask over the first edge into operator ``uid``, by subtask and channel."""

    def __init__(self, uid: str, subtask: int = 0) -> None:
        plan = pipeline()
        self.edge = new_edge(plan, plan.edges_into[operator_named(plan, uid).id][-1], subtask)
        self.frames: list[Frame] = []

    def collect(self, records: Iterable[Any]) -> None:
        for record in records:
            self.edge.emit(record)

    def flush(self) -> dict[tuple[int, int], list[Any]]:
        self.edge.flush(self.frames.append)
        places = {(frame.subtask, frame.channel) for frame in self.frames}
        return {place: elements(f for f in self.frames if (f.subtask, f.channel) == place) for place in places}


def pipeline() -> Any:
    """Operators of parallelism 4 downstream of one of parallelism 3, named after the partitioning."""
    env = local_environment(parallelism=4)
    numbers = env.from_collection(list[Any]()).with_parallelism(3)
    numbers.process(one_input()).with_uid("forward").with_parallelism(3)
    numbers.process(one_input()).with_uid("round robin")
    numbers.shuffle().process(one_input()).with_uid("shuffle")
    numbers.global_().process(one_input()).with_uid("global")
    numbers.key_by(lambda number: number % 100).process(one_input()).with_uid("hash")
    numbers.key_by(lambda number: number["key"]).process(one_input()).with_uid("failing")
    numbers.connect_and_process(numbers.broadcast(), broadcast_side()).with_uid("broadcast")
    return env.build_plan()


@pytest.mark.parametrize("uid", ["round robin", "shuffle"])
def test_round_robin_starts_at_different_subtasks(uid: str) -> None:
    sent = Sent(uid, subtask=1)
    sent.collect(range(6))
    assert sent.flush() == {(1, 1): [0, 4], (2, 1): [1, 5], (3, 1): [2], (0, 1): [3]}


def test_signals_go_to_every_subtask_after_the_records() -> None:
    sent = Sent("round robin")
    sent.collect("ab")
    sent.edge.control(*watermark(5))
    sent.collect("c")
    assert sent.flush() == {
        (0, 0): ["a", watermark(5)],
        (1, 0): ["b", watermark(5)],
        (2, 0): [watermark(5), "c"],
        (3, 0): [watermark(5)],
    }


def test_flush_leaves_small_channels_alone() -> None:
    sent = Sent("forward")
    sent.collect(range(10))
    sent.edge.flush(sent.frames.append, at_least=11)
    assert sent.frames == []
    sent.edge.flush(sent.frames.append, at_least=10)
    assert elements(sent.frames) == [*range(10)]
    for value in range(MAX_FRAME_RECORDS):
        assert len(sent.frames) == 1
        sent.edge.control(*watermark(value))
        sent.edge.flush(sent.frames.append, at_least=10)
    assert len(sent.frames[1].controls) == MAX_FRAME_RECORDS


def test_round_robin_continues_after_a_restart() -> None:
    steady, first, second = Sent("round robin"), Sent("round robin"), Sent("round robin")
    steady.collect(range(7))
    first.collect(range(3))
    first.flush()
    second.edge.restore(first.edge.snapshot())
    second.collect(range(3, 7))
    assert second.edge.records_sent == steady.edge.records_sent == 7
    joined = {place: first.flush().get(place, []) + records for place, records in second.flush().items()}
    assert joined == steady.flush()


def test_source_derives_its_round_from_its_position() -> None:
    steady, sought = Sent("round robin", subtask=2), Sent("round robin", subtask=2)
    steady.collect(range(11))
    for begin, stop in ((8, 11), (0, 5), (5, 8)):
        sought.edge.seek(begin)
        sought.collect(range(begin, stop))
    assert {place: sorted(records) for place, records in sought.flush().items()} == steady.flush()


def test_source_starts_and_ends_every_downstream_subtask() -> None:
    env, frames = local_environment(parallelism=2), list[Frame]()
    numbers = env.from_collection(list[Any]()).with_uid("numbers")
    numbers.process(one_input()).with_uid("beside")
    numbers.shuffle().process(one_input()).with_uid("turns")
    plan = env.build_plan()
    task = SourceTask(plan, operator_named(plan, "numbers"), 1, frames.append, {})
    task.start()
    task.seek(3)
    task.send(RecordBatch(["a", "b", "c"]))
    task.end()
    task.flush()

    def sent_to(uid: str, subtask: int) -> list[Any]:
        operator = operator_named(plan, uid).id
        whole = [frame for frame in frames if (frame.operator, frame.subtask) == (operator, subtask)]
        return [element for frame in whole for element in unpacked(frame.batch.records, frame.controls)]

    assert sent_to("beside", 1) == [STARTED, "a", "b", "c", ENDED]
    assert sent_to("beside", 0) == []
    assert sent_to("turns", 0) == [STARTED, "a", "c", ENDED]
    assert sent_to("turns", 1) == [STARTED, "b", ENDED]


def test_records_are_sent_before_they_pile_up() -> None:
    """No matter how many records a source reads at once or a function emits."""
    env, frames = local_environment(), list[Frame]()
    copies = one_input(process_record=lambda record, output, ctx: [output.collect(record) for _ in range(10)])
    env.from_collection(list[Any]()).with_uid("numbers").process(copies).with_uid("f").to_sink(CollectSink())
    plan = env.build_plan()
    SourceTask(plan, operator_named(plan, "numbers"), 0, frames.append, {}).send(RecordBatch([*range(50_000)]))
    assert len(elements(frames)) > 40_000
    driver = Driver(plan, "f").open()
    driver.subtask.receive(0, RecordBatch([*range(5_000)]), [])
    assert len(elements(driver.frames)) > 40_000
    driver.subtask.receive(0, RecordBatch([5_000] * 5_000), [(5_000, *STARTED)])
    assert len(elements(driver.frames)) > 90_000
    assert elements(driver.frames) == sorted(elements(driver.frames))
    assert max(len(frame.batch.records) for frame in frames + driver.frames) == MAX_FRAME_RECORDS


def test_failing_key_selector_is_named() -> None:
    sent = Sent("failing", subtask=1)
    sent.edge.emit({"key": 1})
    with pytest.raises(UserFunctionError) as caught:
        sent.edge.emit({"clef": 1})
    error = caught.value
    assert (error.operator, error.callback, error.subtask) == ("KeyedProcess (uid 'failing')", "key selector", 1)
    assert (error.cause_type, error.cause_message, error.record) == ("KeyError", "'key'", "{'clef': 1}")
    assert 'number["key"]' in error.traceback_text


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "InvalidKeyError: The assigned key must not be None"),
        ([1], "InvalidKeyError: The key [1] is not hashable: unhashable type: 'list'."),
        (frozenset(), "InvalidKeyError: A key of type frozenset cannot be assigned to a subtask"),
    ],
)
@pytest.mark.parametrize(
    "emit",
    [
        lambda edge, record: edge.emit(record),
        lambda edge, record: edge.emit_stamped(record, 5),
        lambda edge, record: edge.emit_batch(RecordBatch([record])),
        lambda edge, record: edge.emit_batch(RecordBatch([record], [5])),
    ],
    ids=["record", "stamped", "batch", "stamped batch"],
)
def test_invalid_key_is_an_error_of_the_key_selector(emit: Any, key: Any, message: str) -> None:
    with pytest.raises(UserFunctionError) as caught:
        emit(Sent("failing").edge, {"key": key})
    assert str(caught.value).startswith(message)
    assert caught.value.callback == "key selector"


def test_routes_of_many_keys_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "_CACHED_KEYS", 3)
    sent = Sent("hash")
    edge = sent.edge
    assert isinstance(edge, HashEdge)
    for first in (0, 10, 20):
        for number in range(first, first + 10):
            edge.emit(number)
            edge.emit_stamped(number, 5)
        edge.emit_batch(RecordBatch([*range(first, first + 10)], [5] * 10))
        edge.flush(sent.frames.append)
        assert (edge._routes, edge._stamped_routes, edge._pair_routes) == ({}, {}, {})
    places = {(record, frame.subtask) for frame in sent.frames for record in frame.batch.records}
    assert places == {(number, subtask_of(number, 128, 4)) for number in range(30)}


# --- Columns ----------------------------------------------------------------------------------------------------------


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
