"""From one offset of a source with splits to the next."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from dsv2.errors import ContractError, JobError
from dsv2.graph import Operator
from dsv2.model import RecordBatch
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, NOTHING_SENT, SourceOffset, WatermarkOrder, orders
from dsv2.runtime.sources.readers import Readers
from dsv2.sinks import CollectSink
from dsv2.sources import (
    DataclassSerializer,
    Portion,
    ReaderInfo,
    RoundRobinSplitAssigner,
    Serializer,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from dsv2.sources.serializers import JsonValue
from dsv2.testing import ManualClock
from dsv2.watermark import LongWatermark, new_builder
from tests.durations import ms
from tests.spans import Span, Spans
from tests.support import local_environment, operator_named


def operator_of(source: Source[Any, Any, Any], parallelism: int) -> Operator:
    env = local_environment(parallelism)
    env.from_source(source).with_uid("in").to_sink(CollectSink())
    return operator_named(env.build_plan(), "in")


def coordinator(source: Source[Any, Any, Any], parallelism: int = 2) -> SourceCoordinator:
    return SourceCoordinator(source, operator_of(source, parallelism), ManualClock())


def spans(ends: dict[str, int], **options: Any) -> Spans:
    return Spans(ends, **{"assigner": RoundRobinSplitAssigner(), **options})


def logged(offset: SourceOffset) -> SourceOffset:
    """The offset as Spark's log returns it."""
    written: SourceOffset = json.loads(json.dumps(offset))
    return written


def offsets(
    driver: SourceCoordinator, limit: int | None = None, start: SourceOffset = BEFORE_START
) -> Iterator[SourceOffset]:
    """Yield the ends of micro-batches until there is no new data."""
    while (there := driver.next(start, limit)) != start:
        start = logged(there)
        yield start


def plan_of(offset: SourceOffset, source: Spans) -> dict[int, list[tuple[str, int, int]]]:
    return {
        order.subtask: [
            (portion.start.name, portion.start.position, portion.stop.position) for portion in order.portions
        ]
        for order in orders(offset, source.split_serializer)
    }


def test_without_a_limit_one_micro_batch_reads_everything() -> None:
    source = spans({"a": 5, "b": 3, "c": 4})
    (only,) = offsets(coordinator(source))
    assert plan_of(only, source) == {0: [("a", 0, 5), ("c", 0, 4)], 1: [("b", 0, 3)]}
    assert [(order.first, order.last) for order in orders(only, source.split_serializer)] == [(True, True)] * 2


def test_limit_is_shared_fairly() -> None:
    source = spans({"a": 100, "b": 2, "c": 100})
    first, second, *_ = offsets(coordinator(source), limit=30)
    assert plan_of(first, source) == {0: [("a", 0, 14), ("c", 0, 14)], 1: [("b", 0, 2)]}
    assert plan_of(second, source) == {0: [("a", 14, 29), ("c", 14, 29)]}


def test_small_limit_reaches_each_split_in_turn() -> None:
    source = spans(dict.fromkeys("abcde", 10))
    read = Counter(
        name
        for offset in islice(offsets(coordinator(source), limit=2), 5)
        for portions in plan_of(offset, source).values()
        for name, *_ in portions
    )
    assert read == dict.fromkeys("abcde", 2)


@pytest.mark.parametrize(("asked", "own"), [(4, 7), (7, 4), (None, 4), (4, None)])
def test_smaller_limit_of_job_and_source_applies(asked: int | None, own: int | None) -> None:
    source = spans({"a": 10}, limit=own)
    assert plan_of(coordinator(source, 1).next(BEFORE_START, asked), source) == {0: [("a", 0, 4)]}


def test_batch_job_ignores_the_limit_of_the_source() -> None:
    source = spans({"a": 10}, limit=4)
    driver = SourceCoordinator(source, operator_of(source, 1), ManualClock(), limited=False)
    assert plan_of(driver.next(BEFORE_START), source) == {0: [("a", 0, 10)]}


def test_source_that_has_planned_nothing_does_not_wait() -> None:
    """A run that repeats a micro-batch has not asked for one yet."""
    driver = coordinator(spans({"a": 1}))
    assert driver.wait(timedelta(days=1)) is None


def test_every_record_is_in_one_portion() -> None:
    ends = {"a": 17, "b": 0, "c": 5}
    for limit in (1, 2, 7, 100):
        source = spans(ends)
        read: list[tuple[str, int]] = []
        for offset in offsets(coordinator(source), limit):
            for portions in plan_of(offset, source).values():
                read += [(name, number) for name, start, stop in portions for number in range(start, stop)]
        assert sorted(read) == [(name, number) for name, end in ends.items() for number in range(end)]


def test_reader_ends_with_its_last_split() -> None:
    source = spans({"a": 4, "b": 2})
    driver = coordinator(source, parallelism=3)
    first, second = offsets(driver, limit=4)
    assert {order.subtask: order.last for order in orders(first, source.split_serializer)} == {
        0: False,
        1: True,
        2: True,
    }
    assert {order.subtask: order.last for order in orders(second, source.split_serializer)} == {0: True}
    assert driver.ended


def test_restart_at_any_offset_plans_the_same_rest() -> None:
    source = spans({"a": 9, "b": 4, "c": 6})
    whole = list(offsets(coordinator(source), limit=3))
    assert len(whole) > 5
    for index, offset in enumerate(whole):
        assert list(offsets(coordinator(source), 3, offset)) == whole[index + 1 :]


def test_uncommitted_offset_is_decided_again() -> None:
    source = spans({"a": 9}, bounded=False)
    driver = coordinator(source, parallelism=1)
    first = driver.next(BEFORE_START, 4)
    lost = driver.next(first, 4)
    assert plan_of(lost, source) == {0: [("a", 4, 8)]}
    assert driver.next(first, 2) != lost
    assert plan_of(driver.next(first, 4), source) == {0: [("a", 4, 8)]}


def test_offset_changes_only_with_new_data() -> None:
    source = spans({"a": 3}, bounded=False)
    driver = coordinator(source, parallelism=1)
    (first,) = offsets(driver)
    source.ends["a"] = 5
    (second,) = offsets(driver, start=first)
    assert plan_of(second, source) == {0: [("a", 3, 5)]}
    assert not driver.ended


def test_without_a_refresh_no_new_data_is_found() -> None:
    class Looking(Spans):
        seen: dict[str, int]

        def refresh(self) -> None:
            self.seen = dict(self.ends)

        def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
            end = self.seen[split.name]
            return Portion(Span(split.name, end, split.end)) if end > split.position else None

    source = Looking({"a": 3}, bounded=False)
    driver = coordinator(source, parallelism=1)
    first = driver.next(BEFORE_START, None, refresh=False)  # the first one always refreshes
    assert plan_of(first, source) == {0: [("a", 0, 3)]}
    source.ends["a"] = 5
    assert driver.next(first, None, refresh=False) == first
    assert driver.next(first, None) != first


def test_without_a_refresh_waiting_splits_are_assigned() -> None:
    class InTurn(Spans):
        def ready(self, waiting: Sequence[Span], limit: int | None, /) -> Sequence[Span]:
            return waiting[:1]

    source = InTurn({"a": 3, "b": 2}, bounded=False)
    driver = coordinator(source, parallelism=1)
    first = driver.next(BEFORE_START)
    assert plan_of(first, source) == {0: [("a", 0, 3)]}
    assert plan_of(driver.next(first, refresh=False), source) == {0: [("b", 0, 2)]}


def test_new_split_without_data_is_logged() -> None:
    source = spans({"a": 3}, bounded=False, discovery_interval=ms(1))
    clock = ManualClock(step=ms(1))
    driver = SourceCoordinator(source, operator_of(source, 1), clock)
    (first,) = offsets(driver)
    source.ends["b"] = 0
    (second,) = offsets(driver, start=first)
    assert plan_of(second, source) == {}
    assert [split["at"]["name"] for split in second["readers"][0]["splits"]] == ["a", "b"]


@pytest.mark.parametrize(("before", "now"), [(3, 6), (6, 3), (2, 1)])
def test_another_parallelism_reassigns_all_splits(before: int, now: int) -> None:
    ends = {f"s{number}": 8 for number in range(12)}
    source = spans(ends, bounded=False)
    (first,) = offsets(coordinator(source, before))
    source.ends = {f"s{number}": 10 for number in range(18)}
    (second,) = offsets(coordinator(source, now), start=first)
    plan = plan_of(second, source)
    assert [len(portions) for portions in plan.values()] == [18 // now] * now
    assert sorted(portion for portions in plan.values() for portion in portions) == sorted(
        (f"s{number}", 8 if number < 12 else 0, 10) for number in range(18)
    )


# --- Sources that decide for themselves -------------------------------------------------------------------------------


class Plain(Source[int, Span, int], Serializer[int]):
    """Its enumerator runs a script and counts the runs of the job."""

    bounded = True

    def __init__(self, script: Any) -> None:
        self.script = script
        self.infos: list[ReaderInfo[Span]] = []

    def create_enumerator(
        self, ctx: SplitEnumeratorContext[Span], restored: int | None, /
    ) -> SplitEnumerator[Span, int]:
        return _Scripted(self, ctx, 1 if restored is None else restored + 1)

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[int, Span]:
        raise AssertionError("nothing is read here")

    @property
    def split_serializer(self) -> Serializer[Span]:
        return Spans({}).split_serializer

    @property
    def enumerator_state_serializer(self) -> Serializer[int]:
        return self

    def to_json(self, value: int, /) -> JsonValue:
        return value

    def from_json(self, json: JsonValue, /) -> int:
        assert isinstance(json, int)
        return json


class _Scripted(SplitEnumerator[Span, int]):
    def __init__(self, source: Plain, ctx: SplitEnumeratorContext[Span], runs: int) -> None:
        self.source, self.ctx, self.runs = source, ctx, runs

    def add_reader(self, reader: ReaderInfo[Span], /) -> None:
        self.source.infos.append(reader)

    def add_splits_back(self, splits: Sequence[Span], subtask: int, /) -> None:
        raise AssertionError

    def refresh(self) -> None:
        if self.runs == 1:
            self.source.script(self.ctx)

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        return Portion(Span(split.name, split.position + 1, split.end)) if split.position < split.end else None

    def snapshot_state(self) -> int:
        return self.runs


def test_readers_keep_their_splits_over_a_restart() -> None:
    source = Plain(lambda ctx: ctx.assign_splits({0: [Span("a", 0, 3)], 1: [Span("b", 0, 1)]}))
    first = coordinator(source).next(BEFORE_START, None)
    source.infos.clear()
    second = coordinator(source).next(first, None)
    assert source.infos == [ReaderInfo(0), ReaderInfo(1)]
    assert second["enumerator"] == 2
    assert [[split["at"]["position"] for split in reader["splits"]] for reader in second["readers"]] == [[2], [1]]
    alone = coordinator(source, parallelism=1).next(first, None)
    assert [split["at"]["name"] for split in alone["readers"][0]["splits"]] == ["a", "b"]


def test_ended_reader_sends_nothing_more() -> None:
    looks: list[int] = []

    def script(ctx: SplitEnumeratorContext[Span]) -> None:
        looks.append(0)
        if len(looks) == 1:
            ctx.assign_splits({1: [Span("a", 0, 3)]})
            ctx.signal_no_more_splits(0)
        else:
            ctx.emit_watermark(LongWatermark(5, "w"))

    source = Plain(script)
    driver = coordinator(source)
    first = driver.next(BEFORE_START)
    assert [order.last for order in orders(first, source.split_serializer)] == [True, False]
    (order,) = orders(driver.next(first), source.split_serializer)
    assert (order.subtask, order.steps[0]) == (1, WatermarkOrder("w", 5))


def test_enumerator_cannot_emit_a_watermark_about_one_key() -> None:
    watermark = new_builder("w").type_long().per_key(int).build().new_watermark(5, key=7)
    with pytest.raises(JobError, match="An enumerator cannot emit the per-key watermark 'w'"):
        coordinator(Plain(lambda ctx: ctx.emit_watermark(watermark))).next(BEFORE_START)


def test_kept_splits_are_distributed_over_fewer_readers() -> None:
    source = Plain(lambda ctx: ctx.assign_splits({number: [Span(f"s{number}", 0, 3)] for number in range(5)}))
    five = coordinator(source, 5).next(BEFORE_START, None)
    two = coordinator(source, 2).next(five, None)
    assert [[split["at"]["name"] for split in reader["splits"]] for reader in two["readers"]] == [
        ["s0", "s2", "s4"],
        ["s1", "s3"],
    ]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_ended_source_stays_ended(parallelism: int) -> None:
    source = spans({"a": 4, "b": 2})
    *_, last = offsets(coordinator(source))
    again = coordinator(source, parallelism)
    there = again.next(last, None)
    assert again.ended
    assert orders(there, source.split_serializer) == [] or there == last


def test_ended_reader_gets_no_splits_in_a_later_run() -> None:
    """Its downstream functions are closed."""
    ended = {"splits": [], "ended": 3, "idle": False, "sent": None, "sender": NOTHING_SENT}
    readers = Readers(1, ManualClock(), DataclassSerializer(Span), [ended])
    readers.registered_readers[0] = ReaderInfo(0)
    with pytest.raises(ContractError, match="Split 'a' cannot be assigned to reader 0, which has ended"):
        readers.assign_splits({0: [Span("a", 0, 1)]})


# fmt: off
MISTAKES = [
    (lambda ctx: ctx.assign_splits({2: [Span("a", 0, 1)]}),
     "in refresh: Splits cannot be assigned to reader 2, which is not registered"),
    (lambda ctx: ctx.assign_splits({0: [Span("a", 0, 1)], 1: [Span("a", 0, 1)]}), "Split 'a' is assigned to reader 0"),
    (lambda ctx: (ctx.signal_no_more_splits(0), ctx.assign_splits({0: [Span("a", 0, 1)]})),
     "Split 'a' cannot be assigned to reader 0 after signal_no_more"),
    (lambda ctx: 1 / 0, "in refresh: ZeroDivisionError: division by zero\nTraceback"),
]
# fmt: on


@pytest.mark.parametrize(("script", "message"), MISTAKES)
def test_mistakes_of_an_enumerator_name_the_source(script: Any, message: str) -> None:
    with pytest.raises(JobError, match=r"The source Source \(uid 'in'\), defined at .*py:\d+, failed on the") as caught:
        coordinator(Plain(script)).next(BEFORE_START, None)
    assert message in str(caught.value)


def test_advance_must_return_the_same_split() -> None:
    class Confused(Spans):
        def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
            return Portion(Span("other", 1, 1))

    with pytest.raises(JobError, match=r"in advance: .*advance must return a position of the same split"):
        coordinator(Confused({"a": 1})).next(BEFORE_START, None)


def test_enumerator_is_closed() -> None:
    class Closing(Spans):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    source = Closing({"a": 1})
    driver = coordinator(source)
    driver.close()
    assert source.closed == 0  # no enumerator exists yet
    driver.next(BEFORE_START, None)
    driver.close()
    driver.close()
    assert source.closed == 1


def test_read_returns_record_batches() -> None:
    assert list(Spans({}, run=2).read(Span("a", 0, 9), Span("a", 3, 9))) == [
        RecordBatch([("a", 0), ("a", 1)]),
        RecordBatch([("a", 2)]),
    ]
