"""Programs for sources that have no data for some time: through two operators with two inputs each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from dsv2 import NonKeyedPartitionStream, RuntimeExecutionMode
from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sources import Portion, RoundRobinSplitAssigner, SplitEnumerator, SplitEnumeratorContext
from dsv2.watermark import WatermarkDeclaration, new_builder
from tests.conformance.functions import PassEither
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.timing import END_OF_TIME, TimeRecorder
from tests.conformance.watermarks import TwoInputRecorder
from tests.spans import Item, Span, Spans, number_of

_IDLE_MS = 40
_LOOKS = 10


class Pausing(Spans):
    """Pauses after the first ``before`` numbers, and returns its second split only afterwards. The pause is long enough
    to become idle: ten polls after twice the timeout."""

    def __init__(self, ends: Mapping[str, int], before: int, limit: int | None) -> None:
        super().__init__(ends, limit=limit, assigner=RoundRobinSplitAssigner())
        self.before = before
        self.clock: Any = None
        self.silent_since: int | None = None
        self.looks = 0

    def create_enumerator(self, ctx: SplitEnumeratorContext[Span], restored: Any, /) -> SplitEnumerator[Span, Any]:
        self.clock = ctx.clock
        return super().create_enumerator(ctx, restored)

    def refresh(self) -> None:
        if self.silent_since is not None and self.clock.now_ms() - self.silent_since >= 2 * _IDLE_MS:
            self.looks += 1

    def ready(self, waiting: Sequence[Span], limit: int | None, /) -> Sequence[Span]:
        return [span for span in waiting if span.name == min(self.ends) or self.looks > _LOOKS]

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        if self.looks > _LOOKS:
            return super().advance(split, limit)
        stop = self.before if limit is None else min(self.before, split.position + limit)
        if stop == split.position:
            return None
        if stop == self.before:
            self.silent_since = self.clock.now_ms()
        return Portion(Span(split.name, stop, split.end), stop - split.position)


def read(p: Pipeline, ends: Mapping[str, int], before: int, *, falls_idle: bool) -> NonKeyedPartitionStream[Item]:
    """Records of a pausing source, with all of its readers upstream of each subtask."""
    builder = EventTimeExtension.new_watermark_generator_builder(number_of)
    if falls_idle:
        builder.with_idleness(timedelta(milliseconds=_IDLE_MS))
    source = Pausing(ends, before, p.records_per_batch(sum(ends.values())))
    return p.env.from_source(source, watermarks=builder.build_as_watermark_strategy()).shuffle()


def heard(run: Run, what: str) -> list[list[Any]]:
    """Output of one kind by subtask."""
    return [[value for index, kind, value in run.out() if (index, kind) == (n, what)] for n in range(run.parallelism)]


class NobodyWaitsForIdleSplits(Program):
    """Splits without data and readers without splits hold nothing back. Becoming active does not lose records."""

    def build(self, p: Pipeline) -> None:
        quiet = read(p, {"a": 4, "b": 2}, 2, falls_idle=True)
        steady = read(p, {"c": 20}, 10, falls_idle=False)
        third = read(p, {"d": 30}, 15, falls_idle=False)
        first = quiet.connect_and_process(steady, PassEither())
        p.collect(first.shuffle().connect_and_process(third, PassEither()).process(TimeRecorder()))

    def check(self, run: Run) -> None:
        for times in heard(run, "time"):
            assert times == sorted(set(times))
            assert times[-1] == END_OF_TIME
            assert run.setting.mode is RuntimeExecutionMode.BATCH or 8 in times  # from the steady split, while it waits
        assert heard(run, "idle") == [[]] * run.parallelism


class AllAreIdle(Program):
    """If all inputs are idle, the downstream operators are idle too. They become active with the first active input."""

    def build(self, p: Pipeline) -> None:
        first, second, third = (read(p, {"a": 4, "b": 2}, 2, falls_idle=True) for _ in range(3))
        both = first.connect_and_process(second, PassEither())
        p.collect(both.shuffle().connect_and_process(third, PassEither()).process(TimeRecorder()))

    def check(self, run: Run) -> None:
        for statuses in heard(run, "idle"):
            # Inputs that end before others are active again leave these alone for a moment.
            assert statuses == [number % 2 == 0 for number in range(len(statuses))]
            assert run.setting.mode is RuntimeExecutionMode.BATCH or len(statuses) >= 2
        assert all(times[-1] == END_OF_TIME for times in heard(run, "time"))


_CUT = (
    new_builder("bounded-cut")
    .type_str()
    .barrier(timeout=timedelta(milliseconds=_IDLE_MS), when_exceeded="proceed")
    .build()
)


class CutAfter(OneInputStreamProcessFunction[Item, Item]):
    """Sends a barrier after the item with a number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [_CUT]

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        output.collect(record)
        if record.number == self.number:
            ctx.non_partitioned_context.watermark_manager.emit_watermark(_CUT.new_watermark("day 1"))


class BarrierDoesNotWaitForever(Program):
    """A barrier is delivered although a source pauses, without any input. What comes later is counted as late."""

    def build(self, p: Pipeline) -> None:
        quiet, steady = (
            p.env.from_source(Pausing(ends, 2, p.records_per_batch(sum(ends.values()))))
            .process(CutAfter(number))
            .shuffle()
            for ends, number in (({"a": 4}, 3), ({"c": 2}, 1))
        )
        p.collect(steady.connect_and_process(quiet, TwoInputRecorder(_CUT)).with_uid(p.uid("both")))

    def check(self, run: Run) -> None:
        for subtask in range(run.parallelism):
            received = [element for index, element in run.out() if index == subtask]
            assert [one.value for one in received if not isinstance(one, Item)] == ["day 1"]
        assert run.progress("both").counters == {
            "barriers_without_all_channels": run.parallelism,
            "late_barriers": run.parallelism,
            "records_late_for_barrier": 2,
        }


PROGRAMS = (NobodyWaitsForIdleSplits(), AllAreIdle(), BarrierDoesNotWaitForever())
