"""The delays of each carrier by day, for the flights out of New York in 2013, with a side output for late records.

A record arrives when the flight leaves. Its event time is the scheduled departure, so a delayed flight arrives out of
order, and after midnight it may be late for its day. The window of a day fires two hours after the end of the day (in
event time). Flights that arrive later are not part of the statistics and go to a side output.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from dsv2 import CollectSink, ExecutionEnvironment, NonKeyedPartitionStream, OutputTag, PartitionedContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowContext, WindowStrategy
from dsv2.sources import DataGeneratorSource
from dsv2.state import AggregateFunction
from dsv2.streams import ConfiguredStream
from examples.airport import Flight, flight_by_takeoff, flights_by_takeoff
from examples.program import Table, execute, run_example

__all__ = ("Delays", "DelaysOfDay", "daily_delays", "main")

OUT_OF_ORDER = timedelta(hours=2)
LATE = OutputTag("late", Flight)
NEW_YORK = timedelta(hours=5)  # behind UTC; in summer it is one hour less, so days end at one o'clock


class Delays(NamedTuple):
    """The number of some flights, and their total and worst delay in minutes."""

    flights: int
    total: int
    worst: int


class DelaysOfDay(NamedTuple):
    """The delays of ``carrier`` on the day that began at ``start`` (ms since the epoch)."""

    carrier: str
    start: int
    delays: Delays


class AddDelays(AggregateFunction[Flight, Delays | None, Delays]):
    """Aggregates the delays of flights that have left."""

    def create_accumulator(self) -> Delays | None:
        return None

    def add(self, value: Flight, accumulator: Delays | None) -> Delays | None:
        delay = value.delay or 0
        if accumulator is None:
            return Delays(1, delay, delay)
        flights, total, worst = accumulator
        return Delays(flights + 1, total + delay, max(worst, delay))

    def get_result(self, accumulator: Delays | None) -> Delays:
        return accumulator or Delays(0, 0, 0)


def of_day(delays: Delays, window: WindowContext, ctx: PartitionedContext[DelaysOfDay]) -> DelaysOfDay:
    """Create the result of a window."""
    return DelaysOfDay(ctx.state_manager.key_as(str), window.start_time, delays)


def daily_delays(
    flights: NonKeyedPartitionStream[Flight],
) -> ConfiguredStream[DelaysOfDay]:
    """Compute the statistics of each carrier and day. The side output ``LATE`` has the late flights.

    ``flights`` must be one channel in the order of takeoff; then the result is deterministic.
    """
    generator = (
        EventTimeExtension.new_watermark_generator_builder(schedule_of)
        .with_max_out_of_order_time(OUT_OF_ORDER)
        .per_event_watermark()
        .build_as_process_function()
    )
    days = WindowStrategy.tumbling(timedelta(days=1), offset=NEW_YORK)
    return (
        flights.process(generator)
        .with_parallelism(1)
        .key_by(lambda flight: flight.carrier)
        .window(days)
        .with_late_output(LATE)
        .aggregate(AddDelays(), of_day)
        .with_uid("delays")
    )


def schedule_of(flight: Flight) -> int:
    """Return the event time of a flight."""
    return flight.scheduled


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("flight_delays", "Delays of flights, by carrier and day.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    source = DataGeneratorSource(flight_by_takeoff, count=len(flights_by_takeoff()), records_per_batch=100_000)
    delays = daily_delays(env.from_source(source).with_parallelism(1))
    days, late = CollectSink[DelaysOfDay](), CollectSink[Flight]()
    delays.to_sink(days)
    delays.side_output(LATE).to_sink(late)
    execute(env, "flight delays", options)
    too_late = Counter(flight.carrier for flight in late.results)
    rows = [
        (carrier, sum(d.flights for d in own), round(sum(d.total for d in own) / sum(d.flights for d in own)),
         max(d.worst for d in own), too_late[carrier])
        for carrier in sorted({day.carrier for day in days.results})
        for own in [[day.delays for day in days.results if day.carrier == carrier]]
    ]  # fmt: skip
    return Table("Delays in minutes", ("carrier", "flights", "mean delay", "worst", "came too late"), rows)


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import flight_delays

    sys.exit(flight_delays.main())
