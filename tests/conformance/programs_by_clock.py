"""Programs in which event time is the wall clock, and the temporal join that waits for it (FLIP-326)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from dsv2 import Collector, KeyedPartitionStream, PartitionedContext, RuntimeContext
from dsv2.extension.event_time import EventTimeExtension, EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult
from tests.conformance.functions import NUMBERS, PassEither, Stamped, mod3, parity
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.timing import END_OF_TIME, per_event

BY_CLOCK = EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION
LONG_AGO, FAR_AWAY = 1, 10**15
THIS_CENTURY = range(946_684_800_000, 4_102_444_800_000)


class Alarms(OneInputEventTimeStreamProcessFunction[int, Any]):
    """Registers event timers, one that is due and one that never is. Emits the current time."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        self.event_time.register_timer(LONG_AGO)
        self.event_time.register_timer(FAR_AWAY)

    def on_event_timer(self, timestamp: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(("timer", ctx.state_manager.current_key, timestamp))

    def on_event_time_watermark(self, timestamp: int, output: Collector[Any], ctx: Any) -> None:
        by_clock = self.event_time.uses_processing_time()
        output.collect(("time", ctx.task_info.index_of_this_subtask, timestamp, by_clock))


class WatermarkRecorder(OneInputStreamProcessFunction[Any, tuple[int, str, int | bool]]):
    """Emits each watermark."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect((ctx.task_info.index_of_this_subtask, watermark.identifier, watermark.value))
        return WatermarkHandlingResult.PEEK


class ByTheClock(Program):
    """Event timers fire by the wall clock downstream of generators without watermarks, two inputs and a shuffle."""

    def build(self, p: Pipeline) -> None:
        builder = EventTimeExtension.new_watermark_generator_builder(mod3).no_watermark()
        live, other = (p.source(NUMBERS).process(builder.build_as_process_function()) for _ in range(2))
        both = live.connect_and_process(other.shuffle(), PassEither())
        p.collect(both.key_by(parity).process(Alarms()))
        p.collect(both.shuffle().process(WatermarkRecorder()), "heard")

    def check(self, run: Run) -> None:
        timers = [event[1:] for event in run.out() if event[0] == "timer"]
        assert {key for key, timestamp in timers if timestamp == LONG_AGO} == {0, 1}
        assert sorted(key for key, timestamp in timers if timestamp == FAR_AWAY) == [0, 1], "when all has ended"
        for subtask in range(run.parallelism):
            *times, end = [event[2:] for event in run.out() if event[:2] == ("time", subtask)]
            assert times, "the flag came before the end"
            assert times == sorted(set(times))
            assert all(timestamp in THIS_CENTURY and by_clock for timestamp, by_clock in times)
            assert end == (END_OF_TIME, True)
        flag = [event for event in run.out("heard") if event[1] == BY_CLOCK.identifier]
        assert sorted(flag) == [(subtask, BY_CLOCK.identifier, True) for subtask in range(run.parallelism)]


class Sale(NamedTuple):
    """A record of the probe side."""

    article: int
    number: int


class Price(NamedTuple):
    """A record of the build side. Below 0 the article is no longer sold. Article -1 marks the end of the snapshot."""

    article: int
    cents: int


SALES: Sequence[Sale] = [Sale(number % 5, number) for number in range(24)]
SNAPSHOT: Sequence[Price] = [Price(0, 10), Price(1, 20), Price(1, 30), Price(2, 40), Price(2, -1), Price(3, 50)]
CHANGES: Sequence[Price] = [Price(0, 11), Price(3, 51), Price(0, 12)]
PRICES: Sequence[Price] = [*SNAPSHOT, Price(-1, 0), *CHANGES]
IN_SNAPSHOT = {0: 10, 1: 30, 3: 50}
AT_THE_END = {0: 12, 1: 30, 3: 51}


class UntilTheMark(OneInputStreamProcessFunction[Price, Price]):
    """Declares the end of the snapshot at its mark."""

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [BY_CLOCK]

    def process_record(self, record: Price, output: Collector[Price], ctx: PartitionedContext[Price]) -> None:
        if record.article < 0:
            ctx.non_partitioned_context.watermark_manager.emit_watermark(BY_CLOCK.new_watermark(True))
        else:
            output.collect(record)


def article_of(record: Sale | Price) -> int:
    """A key selector."""
    return record.article


def is_gone(price: Price) -> bool:
    """Return whether a row deletes one."""
    return price.cents < 0


def priced(sale: Sale, price: Price | None, output: Collector[tuple[Sale, int | None]], ctx: RuntimeContext) -> None:
    """The join function."""
    output.collect((sale, None if price is None else price.cents))


@dataclass(frozen=True)
class TemporalJoinOf(Program):
    """No sale misses the snapshot, which ends with the table, or before the changes (``marked``)."""

    join_type: Literal[JoinType.INNER, JoinType.LEFT]
    marked: bool

    @property
    def name(self) -> str:
        return f"temporal-join-{self.join_type.value}{'-marked' if self.marked else ''}"

    def build(self, p: Pipeline) -> None:
        any_join: Any = join
        function = any_join(priced, JoinMode.temporal(), self.join_type, is_deletion=is_gone)
        joined: Any = self.sales(p).connect_and_process(self.prices(p), function).with_uid(p.uid("join"))
        p.collect(joined.process(Stamped()))

    def sales(self, p: Pipeline) -> KeyedPartitionStream[int, Sale]:
        return p.source(SALES).process(per_event(number_of)).key_by(article_of)

    def prices(self, p: Pipeline) -> KeyedPartitionStream[int, Price]:
        if self.marked:
            marked = p.source(PRICES, parallelism=1).process(UntilTheMark()).with_parallelism(1)
            return marked.key_by(article_of)
        return p.source([*SNAPSHOT, *CHANGES], parallelism=1).key_by(article_of)

    def check(self, run: Run) -> None:
        left = self.join_type is JoinType.LEFT
        wanted = [sale for sale in sorted(SALES) if left or sale.article in IN_SNAPSHOT]
        results = sorted(run.out(), key=lambda result: result[0][0])
        assert [(sale, timestamp) for (sale, _), timestamp in results] == [(sale, sale.number) for sale in wanted]
        for (sale, cents), _ in results:
            row = IN_SNAPSHOT.get(sale.article)
            later = [price.cents for price in CHANGES if price.article == sale.article] if self.marked else []
            assert cents in ([row, *later] if self.marked else [AT_THE_END.get(sale.article)])
        assert run.progress("join").counters == {"probe_records_waiting": 0}


class PricedSale(NamedTuple):
    """A sale with a price."""

    article: int
    number: int
    cents: int | None


class TemporalJoinOnColumns(Program):
    """Sales with the latest price of their article, or without one, as columns."""

    def build(self, p: Pipeline) -> None:
        sales = p.source(SALES).process(per_event(number_of)).key_by(attrgetter("article"))
        prices = p.source([*SNAPSHOT, *CHANGES], parallelism=1).key_by(attrgetter("article"))
        declared = join(PricedSale, JoinMode.temporal(), JoinType.LEFT, left_records=Sale, right_records=Price)
        p.collect(sales.connect_and_process(prices, declared).process(Stamped()))

    def check(self, run: Run) -> None:
        latest = {price.article: price.cents for price in [*SNAPSHOT, *CHANGES]}
        run.expect_all(*((PricedSale(*sale, latest.get(sale.article)), sale.number) for sale in SALES))


@dataclass(frozen=True)
class TemporalJoinOfSeveralRows(Program):
    """A sale is joined with all prices of its article, whose tens are their keys."""

    join_type: Literal[JoinType.INNER, JoinType.LEFT]

    @property
    def name(self) -> str:
        return f"temporal-join-{self.join_type.value}-rows"

    def build(self, p: Pipeline) -> None:
        any_join: Any = join
        function = any_join(priced, JoinMode.temporal(), self.join_type, is_deletion=is_gone, row_key=tens_of)
        sales = p.source(SALES).process(per_event(number_of)).key_by(article_of)
        prices = p.source([*SNAPSHOT, *CHANGES], parallelism=1).key_by(article_of)
        joined: Any = sales.connect_and_process(prices, function)
        p.collect(joined.process(Stamped()))

    def check(self, run: Run) -> None:
        alone: list[int | None] = [None] if self.join_type is JoinType.LEFT else []
        at_the_end: dict[int, list[int | None]] = {0: [12], 1: [20, 30], 2: [40], 3: [51], 4: alone}
        run.expect_all(*(((sale, cents), sale.number) for sale in SALES for cents in at_the_end[sale.article]))


def tens_of(price: Price) -> int:
    """The key of a row."""
    return price.cents // 10


def number_of(sale: Sale) -> int:
    """An event time."""
    return sale.number


TYPES: Sequence[Literal[JoinType.INNER, JoinType.LEFT]] = (JoinType.INNER, JoinType.LEFT)
PROGRAMS: tuple[Program, ...] = (
    ByTheClock(),
    *(TemporalJoinOf(join_type, marked) for join_type in TYPES for marked in (False, True)),
    *(TemporalJoinOfSeveralRows(join_type) for join_type in TYPES),
    TemporalJoinOnColumns(),
)
