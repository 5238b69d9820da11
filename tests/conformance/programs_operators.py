"""Programs with union, deduplicate, sample, limit, and a main side that waits for its broadcast side."""

from __future__ import annotations

from typing import Any, NamedTuple

from dsv2 import StateTtl
from dsv2.aggregates import Count, Last
from dsv2.extension.event_time import OneInputEventTimeStreamProcessFunction
from dsv2.functions import OneInputStreamProcessFunction, TwoInputBroadcastStreamProcessFunction
from dsv2.streams import WaitForBroadcast
from dsv2.watermark import new_builder
from tests.conformance.functions import FEW, NUMBERS, itself, mod3, parity
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.watermarks import Recorder, SendAtEnd, values
from tests.durations import ms


class UnionOfStreams(Program):
    """Records of all streams arrive, in the order of their stream. One of them is given twice."""

    OTHERS = range(100, 120)

    def build(self, p: Pipeline) -> None:
        numbers = p.source(NUMBERS)
        united = numbers.union(p.source(self.OTHERS), numbers.map(lambda number: number + 1000), numbers)
        p.collect(united)
        p.collect(united.key_by(parity).process(Counting()), "counted")

    def check(self, run: Run) -> None:
        both = [*NUMBERS, *NUMBERS, *self.OTHERS, *(number + 1000 for number in NUMBERS)]
        run.expect_all(*both)
        run.expect_all(*((key, count + 1) for key in (0, 1) for count in range(len(both) // 2)), name="counted")
        if run.parallelism == 1:
            assert [number for number in run.out() if number in self.OTHERS] == list(self.OTHERS)


class Numbered(NamedTuple):
    number: int


class Seen(NamedTuple):
    number: int
    last: int


class OperatorsOfPartitions(Program):
    """Keyed and global streams have them as well."""

    def build(self, p: Pipeline) -> None:
        keyed = p.source(NUMBERS).key_by(mod3)
        p.collect(keyed.map(str).filter(str.isdigit).flat_map(lambda text: [int(text), -int(text)]), "keyed")
        in_one = p.source(NUMBERS).global_()
        p.collect(in_one.union(in_one.map(lambda number: -number), in_one.filter(bool)).map(abs), "global")
        pairs = in_one.flat_map(lambda number: [Numbered(1), Numbered(2)])
        p.collect(pairs.aggregate(Seen, number=Count(), last=Last("number")), "so far")

    def check(self, run: Run) -> None:
        run.expect_all(*NUMBERS, *(-number for number in NUMBERS), name="keyed")
        run.expect_all(*NUMBERS, *NUMBERS, *filter(bool, NUMBERS), name="global")
        assert run.out("so far") == [Seen(count + 1, count % 2 + 1) for count in range(2 * len(NUMBERS))]


class Counting(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Counts the records of each key in a field."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        key = parity(record)
        self.counts[key] = self.counts.get(key, 0) + 1
        output.collect((key, self.counts[key]))


class EventTimeOfUnion(Program):
    """Event time is the least of the streams, so no record is late. It ends when all have ended."""

    SLOW, FAST = range(0, 600, 20), range(500, 1_500, 100)

    def build(self, p: Pipeline) -> None:
        slow, fast = (p.timed(times, itself) for times in (self.SLOW, self.FAST))
        p.collect(slow.union(fast).process(IsLate()).with_parallelism(1))

    def check(self, run: Run) -> None:
        late = [record for record in run.out() if record[0] == "late"]
        assert late == []
        times = [time for kind, time in run.out() if kind == "time"]
        assert times == sorted(times)
        assert times[-1] == (1 << 63) - 1
        assert sum(kind == "record" for kind, _ in run.out()) == len(self.SLOW) + len(self.FAST)


class IsLate(OneInputEventTimeStreamProcessFunction[int, tuple[str, int]]):
    """Emits records and event time in the order in which it receives them."""

    def __init__(self) -> None:
        self.time = -(1 << 63)

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(("late" if record <= self.time else "record", record))

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        self.time = timestamp
        output.collect(("time", timestamp))


LEAST = new_builder("least-of-union").type_long().combine_function_min().combine_wait_for_all_channels(True).build()


class WatermarksOfUnion(Program):
    """A watermark waits for all streams, and is combined over them."""

    def build(self, p: Pipeline) -> None:
        first, second, third = (p.source(FEW).process(SendAtEnd(LEAST, value)) for value in (7, 5, 9))
        p.collect(first.union(second, third).process(Recorder()).with_parallelism(1).second)

    def check(self, run: Run) -> None:
        received = values(run, "out", 0)
        assert received[0] == 5
        assert received == sorted(received)


class Deduplicated(Program):
    """The first record of each key, from any stream."""

    def build(self, p: Pipeline) -> None:
        numbers = p.source(NUMBERS)
        p.collect(numbers.union(numbers).deduplicate(mod3, None))
        p.collect(numbers.union(numbers).deduplicate(lambda number: number, None), "all")

    def check(self, run: Run) -> None:
        assert sorted(map(mod3, run.out())) == [0, 1, 2]
        if run.parallelism == 1:
            assert run.out() == [0, 1, 2]
        run.expect_all(*NUMBERS, name="all")


class Sampled(Program):
    """About a fraction of the records, each at most once."""

    MANY = range(40)

    def build(self, p: Pipeline) -> None:
        numbers = p.source(self.MANY)
        p.collect(numbers.sample(0.5, seed=3))
        p.collect(numbers.sample(1), "all")

    def check(self, run: Run) -> None:
        assert 10 <= len(run.out()) <= 30
        assert len(set(run.out())) == len(run.out())
        run.expect_all(*self.MANY, name="all")


class Limited(Program):
    """The first records that arrive, of all subtasks together."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).limit(5))
        p.collect(p.source(FEW).limit(5), "fewer")
        p.collect(p.source(FEW).limit(0), "none")

    def check(self, run: Run) -> None:
        assert len(set(run.out())) == 5
        assert set(run.out()) <= set(NUMBERS)
        if run.parallelism == 1:
            assert run.out() == [0, 1, 2, 3, 4]
        run.expect_all(*FEW, name="fewer")
        run.expect_all(name="none")


RULES_COMPLETE = (
    new_builder("rules-complete").type_bool().combine_function_and().combine_wait_for_all_channels(True).build()
)


class WithRules(TwoInputBroadcastStreamProcessFunction[int, int, tuple[int, int]]):
    """Emits each record with the number of rules that it has seen."""

    def __init__(self) -> None:
        self.rules = 0

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect((record, self.rules))

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
        self.rules += 1


class RulesFirst(Program):
    """The main side waits for all rules, which arrive while records do, in any number of micro-batches."""

    RULES = range(20)

    def build(self, p: Pipeline) -> None:
        numbers = p.source(NUMBERS)
        rules = p.source(self.RULES)
        marked = rules.process(SendAtEnd(RULES_COMPLETE, True))
        at_end, at_watermark = WaitForBroadcast(), WaitForBroadcast(RULES_COMPLETE)
        p.collect(numbers.connect_and_process(rules.broadcast(), WithRules(), wait_for_broadcast=at_end))
        keyed = numbers.key_by(mod3)
        p.collect(keyed.connect_and_process(rules.broadcast(), WithRules(), wait_for_broadcast=at_end), "keyed")
        swapped = marked.broadcast().connect_and_process(keyed, WithRules(), wait_for_broadcast=at_watermark)
        p.collect(swapped, "at watermark")

    def check(self, run: Run) -> None:
        for name in ("out", "keyed", "at watermark"):
            run.expect_all(*((number, len(self.RULES)) for number in NUMBERS), name=name)
        run.expect_channel_order(lambda record: int(record[0]))


class ExpiresInEventTime(Program):
    """A key is forgotten by the timestamps of its records, however fast they are processed."""

    TIMES = range(0, 1_000, 40)

    def build(self, p: Pipeline) -> None:
        timed = p.timed(self.TIMES, itself)
        ttl = StateTtl(ms(100), time_characteristic="event-time")
        p.collect(timed.deduplicate(lambda number: "key", ttl).with_parallelism(1))

    def check(self, run: Run) -> None:
        # When the record of 160 arrives, event time is 119: one less than the timestamp of the record before.
        assert run.out() == list(range(0, 1_000, 160))


WITH_STATE = (Deduplicated(), RulesFirst(), ExpiresInEventTime())
OF_STREAMS = (UnionOfStreams(), OperatorsOfPartitions(), EventTimeOfUnion(), WatermarksOfUnion())
PROGRAMS = (*OF_STREAMS, *WITH_STATE, Sampled(), Limited())
