"""Sending: frames keep the order of a channel, and every kind of edge routes records to the right subtasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.errors import UserFunctionError
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange import edges
from dsv2.runtime.exchange.edges import HashEdge, new_edge
from dsv2.runtime.exchange.frames import MAX_FRAME_RECORDS, ChannelWriter, Frame
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
