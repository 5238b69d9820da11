"""End-of-day reports of three airports, with a barrier: the flights out of New York in 2013.

Each airport is a stream of its own, and they are not equally fast. Each sends the barrier "end-of-day" with the date
when its day is over. The barrier holds a fast airport back until the others have ended the same day, so a report covers
exactly the flights of that day at all airports. The reports need no event time, and keep one day in state.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from typing import NamedTuple

from dsv2 import (
    Collector,
    CollectSink,
    ExecutionEnvironment,
    NonKeyedPartitionStream,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StateDeclaration,
    StateDeclarations,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
    on,
)
from dsv2.sources import DataGeneratorSource
from examples.airport import Flight, flights_by_schedule
from examples.program import Table, execute, run_example

__all__ = ("AIRPORTS", "CarrierReports", "DayReport", "EndOfDay", "daily_reports", "flights_from", "main", "pipeline")

AIRPORTS = ("EWR", "JFK", "LGA")
NEW_YORK = timedelta(hours=5)  # behind UTC; in summer it is one hour less, so days end at one o'clock

# The id is the date, such as "2013-07-04". Dates in this form are ordered as strings.
END_OF_DAY = new_builder("end-of-day").type_str().barrier(timeout=timedelta(minutes=10)).build()


class DayReport(NamedTuple):
    """The flights of ``carrier`` on one day, at all airports.

    Attributes:
        day: The date.
        carrier: The code of the airline.
        flights: The number of flights.
        cancelled: The number of flights that never left.
        delay: The total delay, in minutes.
    """

    day: str
    carrier: str
    flights: int
    cancelled: int
    delay: int


class EndOfDay(OneInputStreamProcessFunction[Flight, Flight]):
    """Forwards the flights of one airport, which are in the order of their schedule, and says when a day is over."""

    def __init__(self) -> None:
        self.day: date | None = None

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [END_OF_DAY]

    def process_record(self, record: Flight, output: Collector[Flight], ctx: PartitionedContext[Flight]) -> None:
        day = day_of(record)
        if self.day is not None and day > self.day:
            self._end(day - timedelta(days=1), ctx.non_partitioned_context)  # also of days without flights
        self.day = day
        output.collect(record)

    def end_input(self, ctx: NonPartitionedContext[Flight]) -> None:
        if self.day is not None:
            self._end(self.day, ctx)

    def _end(self, day: date, ctx: NonPartitionedContext[Flight]) -> None:
        ctx.watermark_manager.emit_watermark(END_OF_DAY.new_watermark(day.isoformat()))


class CarrierReports(OneInputStreamProcessFunction[Flight, DayReport]):
    """Adds up the flights since the last barrier, on a stream keyed by carrier."""

    TODAY = StateDeclarations.value_state("today", tuple[int, int, int])

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.TODAY]

    def process_record(self, record: Flight, output: Collector[DayReport], ctx: PartitionedContext[DayReport]) -> None:
        today = ctx.state_manager.get_state(self.TODAY)
        flights, cancelled, delay = today.value() or (0, 0, 0)
        today.update((flights + 1, cancelled + (record.delay is None), delay + (record.delay or 0)))

    @on(END_OF_DAY)
    def end_day(
        self, watermark: Watermark[str], output: Collector[DayReport], ctx: NonPartitionedContext[DayReport]
    ) -> WatermarkHandlingResult:
        ctx.apply_to_all_partitions(partial(self._report, watermark.value))
        return WatermarkHandlingResult.PEEK

    def _report(self, day: str, output: Collector[DayReport], ctx: PartitionedContext[DayReport]) -> None:
        carrier, today = ctx.state_manager.key_as(str), ctx.state_manager.get_state(self.TODAY)
        if (counts := today.value()) is not None:
            output.collect(DayReport(day, carrier, *counts))
            today.clear()


def daily_reports(
    airports: Mapping[str, NonKeyedPartitionStream[Flight]],
) -> NonKeyedPartitionStream[DayReport]:
    """Report each carrier and day. Each of the ``airports`` must be one channel in the order of the schedule."""
    first, *others = (
        flights.process(EndOfDay()).with_uid(f"days of {airport}").with_parallelism(1)
        for airport, flights in airports.items()
    )
    together = first.union(*others).with_uid("airports")
    return together.key_by(lambda flight: flight.carrier).process(CarrierReports()).with_uid("reports")


@cache
def flights_from(airport: str) -> list[Flight]:
    """The flights of one airport in the order of their schedule."""
    return [flight for flight in flights_by_schedule() if flight.origin == airport]


def flight_from(airport: str, number: int) -> Flight:
    """The flight with this number in ``flights_from(airport)``."""
    return flights_from(airport)[number]


def day_of(flight: Flight) -> date:
    """Return the date in New York on which a flight is scheduled to leave."""
    return (datetime.fromtimestamp(flight.scheduled / 1000, UTC) - NEW_YORK).date()


def pipeline(env: ExecutionEnvironment) -> NonKeyedPartitionStream[DayReport]:
    """Build the pipeline. The airports are read at different speeds."""
    airports = {
        airport: env.from_source(
            DataGeneratorSource(
                partial(flight_from, airport), count=len(flights_from(airport)), records_per_batch=size
            ),
            name=airport,
        ).with_parallelism(1)
        for airport, size in zip(AIRPORTS, (60_000, 40_000, 20_000), strict=True)
    }
    return daily_reports(airports)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("end_of_day", "Reports of flights by carrier, at the end of each day.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    sink = CollectSink[DayReport]()
    pipeline(env).to_sink(sink)
    execute(env, "end of day", options)
    days: dict[str, list[DayReport]] = {}
    for report in sink.results:
        days.setdefault(report.day, []).append(report)
    rows = [
        (day, len(own), sum(one.flights for one in own), sum(one.cancelled for one in own),
         round(sum(one.delay for one in own) / 60))
        for day, own in days.items()
    ]  # fmt: skip
    worst = sorted(rows, key=lambda row: row[-1], reverse=True)[:10]
    return Table("The days with most delay", ("day", "carriers", "flights", "cancelled", "hours of delay"), worst)


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import end_of_day

    sys.exit(end_of_day.main())
