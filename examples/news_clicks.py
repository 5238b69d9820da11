"""Count the clicks on news items in their first hour, with event-time timers (Flink ``CountNewsClicks``).

News and clicks are in one stream, slightly out of order. A click that precedes its news item is buffered. The timer of
an item fires when event time reaches the end of its hour, so no click is missed within the allowed out-of-orderness.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from dsv2 import (
    Collector,
    CollectSink,
    ExecutionEnvironment,
    NonKeyedPartitionStream,
    PartitionedContext,
    StateDeclaration,
    StateDeclarations,
)
from dsv2.extension.event_time import (
    EventTimeExtension,
    EventTimeManager,
    OneInputEventTimeStreamProcessFunction,
)
from examples.program import Table, execute, run_example

__all__ = ("Click", "ClickCount", "CountNewsClicks", "News", "NewsEvent", "count_clicks", "main", "some_events")

HOUR = 60 * 60 * 1000  # milliseconds
OUT_OF_ORDER = timedelta(minutes=10)


class News(NamedTuple):
    """The publication of a news item. ``time`` is in ms since the epoch."""

    news_id: int
    time: int


class Click(NamedTuple):
    """A click on a news item. ``time`` is in ms since the epoch."""

    news_id: int
    time: int


NewsEvent: TypeAlias = News | Click


class ClickCount(NamedTuple):
    """The number of clicks on a news item in its first hour."""

    news_id: int
    clicks: int


class CountNewsClicks(OneInputEventTimeStreamProcessFunction[NewsEvent, ClickCount]):
    """Counts clicks on a stream keyed by news item. After the hour, only the time of the item is kept."""

    PUBLISHED = StateDeclarations.value_state("published", int)
    CLICKS = StateDeclarations.value_state("clicks", int, default=0)
    PENDING = StateDeclarations.list_state("pending", int)  # clicks that precede their item

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.PUBLISHED, self.CLICKS, self.PENDING]

    def process_record(
        self, record: NewsEvent, output: Collector[ClickCount], ctx: PartitionedContext[ClickCount]
    ) -> None:
        states = ctx.state_manager
        published, clicks = states.get_state(self.PUBLISHED), states.get_state(self.CLICKS)
        pending = states.get_state(self.PENDING)
        if isinstance(record, News):
            published.update(record.time)
            clicks.update(sum(record.time <= time < record.time + HOUR for time in pending.get()))
            pending.clear()
            self.event_time.register_timer(record.time + HOUR)
        elif (since := published.value()) is None:
            pending.add(record.time)
        elif since <= record.time < since + HOUR:
            clicks.update(clicks.value() + 1)

    def on_event_timer(
        self, timestamp: int, output: Collector[ClickCount], ctx: PartitionedContext[ClickCount]
    ) -> None:
        news_id = ctx.state_manager.key_as(int)
        clicks = ctx.state_manager.get_state(self.CLICKS)
        output.collect(ClickCount(news_id, clicks.value()))
        clicks.clear()


def count_clicks(events: NonKeyedPartitionStream[NewsEvent]) -> NonKeyedPartitionStream[ClickCount]:
    """Count the clicks of each news item. Emits the count at the end of its first hour."""
    generator = (
        EventTimeExtension.new_watermark_generator_builder(time_of)
        .with_max_out_of_order_time(OUT_OF_ORDER)
        .build_as_process_function()
    )
    return events.process(generator).key_by(lambda event: event.news_id).process(CountNewsClicks()).with_uid("clicks")


def time_of(event: NewsEvent) -> int:
    """Return the event time of an event."""
    return event.time


def some_events(news: int = 20, clicks: int = 2000, seed: int = 1) -> list[NewsEvent]:
    """Generate news items over six hours, with clicks up to two hours later, up to ten minutes out of order."""
    choice = random.Random(seed)
    items = [News(number, choice.randrange(6 * HOUR)) for number in range(news)]
    events: list[NewsEvent] = list(items)
    for _ in range(clicks):
        item = choice.choice(items)
        events.append(Click(item.news_id, item.time + choice.randrange(2 * HOUR)))
    slack = OUT_OF_ORDER // timedelta(milliseconds=1)
    return sorted(events, key=lambda event: event.time + choice.randrange(slack))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("news_clicks", "Counts the clicks on news items in their first hour.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    sink = CollectSink[ClickCount]()
    count_clicks(env.from_collection(some_events())).to_sink(sink)
    execute(env, "news clicks", options)
    return Table(f"{len(sink.results)} news items", ("item", "clicks"), sorted(sink.results))


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import news_clicks

    sys.exit(news_clicks.main())
