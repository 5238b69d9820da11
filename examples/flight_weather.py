"""Delays by visibility: flights out of New York in 2013, joined with the weather at their origin.

The weather of each airport is observed every hour. A flight is joined with the observation made at most an hour before
its scheduled departure. This is a left outer interval join on event time: if the observation is missing, the flight is
joined with None. State holds about an hour of flights and weather, however long the job runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, TypeVar

from dsv2 import (
    Collector,
    CollectSink,
    ExecutionEnvironment,
    NonKeyedPartitionStream,
    OneInputStreamProcessFunction,
    RuntimeContext,
)
from dsv2.extension.event_time import EventTimeExtension, EventTimeExtractor
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.extension.window import WindowStrategy
from dsv2.sources import DataGeneratorSource
from examples.airport import Flight, Weather, flight_by_schedule, flights_by_schedule, observation, observations
from examples.program import Table, execute, run_example

__all__ = ("FlightInWeather", "InWeather", "by_visibility", "in_weather", "main")

T = TypeVar("T")

HOUR, MILLISECOND = timedelta(hours=1), timedelta(milliseconds=1)


class FlightInWeather(NamedTuple):
    """A flight and the visibility in miles; None if it was not observed."""

    flight: Flight
    visibility: float | None


class InWeather(NamedTuple):
    """Statistics of the flights from ``origin`` by visibility.

    Attributes:
        origin: The airport of departure.
        sight: The range of the visibility.
        flights: The number of flights.
        cancelled: The number of flights that never left.
        delay: The total delay, in minutes.
    """

    origin: str
    sight: str
    flights: int
    cancelled: int
    delay: int


def in_weather(
    flights: NonKeyedPartitionStream[Flight], weather: NonKeyedPartitionStream[Weather]
) -> NonKeyedPartitionStream[FlightInWeather]:
    """Join each flight with the observation that is at most an hour older than its scheduled departure."""
    flights_at = flights.process(in_order_of(lambda flight: flight.scheduled)).key_by(lambda flight: flight.origin)
    weather_at = weather.process(in_order_of(lambda observed: observed.hour)).key_by(lambda observed: observed.origin)
    latest_observation = join(with_sight, JoinMode.interval(MILLISECOND - HOUR, timedelta(0)), JoinType.LEFT)
    return flights_at.connect_and_process(weather_at, latest_observation).with_uid("in weather")


def in_order_of(time_of: EventTimeExtractor[T]) -> OneInputStreamProcessFunction[T, T]:
    """Create a watermark generator for records in the order of time."""
    return EventTimeExtension.new_watermark_generator_builder(time_of).per_event_watermark().build_as_process_function()


def with_sight(
    flight: Flight, weather: Weather | None, output: Collector[FlightInWeather], ctx: RuntimeContext
) -> None:
    """Join a flight with an observation. Called once per flight, since there is at most one observation per hour."""
    output.collect(FlightInWeather(flight, None if weather is None else weather.visibility))


def by_visibility(flights: NonKeyedPartitionStream[FlightInWeather]) -> NonKeyedPartitionStream[InWeather]:
    """Compute the delays at each airport by visibility. Emits at the end of input."""

    def add(so_far: InWeather, new: InWeather) -> InWeather:
        origin, sight, flights, cancelled, delay = so_far
        return InWeather(origin, sight, flights + new.flights, cancelled + new.cancelled, delay + new.delay)

    alone = flights.map(of_one_flight)
    by_sight = alone.key_by(lambda one: (one.origin, one.sight))
    return by_sight.window(WindowStrategy.global_()).reduce(add).with_uid("by sight")


def of_one_flight(seen: FlightInWeather) -> InWeather:
    """The statistics of a single flight."""
    flight, miles = seen
    if miles is None:
        sight = "not observed"
    elif miles < 2:
        sight = "below 2 miles"
    else:
        sight = "2 to 9 miles" if miles < 10 else "clear"
    return InWeather(flight.origin, sight, 1, int(flight.delay is None), flight.delay or 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("flight_weather", "Delays of flights by the weather at their origin.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    flights = DataGeneratorSource(flight_by_schedule, count=len(flights_by_schedule()), records_per_batch=100_000)
    weather = DataGeneratorSource(observation, count=len(observations()), records_per_batch=7_750)  # as many batches
    sink = CollectSink[InWeather]()
    seen = in_weather(
        env.from_source(flights, "flights").with_parallelism(1), env.from_source(weather, "weather").with_parallelism(1)
    )
    by_visibility(seen).to_sink(sink)
    execute(env, "flight weather", options)
    rows = [
        (origin, sight, flights, f"{cancelled / flights:.1%}", f"{delay / (flights - cancelled):.1f}")
        for origin, sight, flights, cancelled, delay in sorted(sink.results)
    ]
    return Table("Flights by visibility", ("from", "visibility", "flights", "cancelled", "mean delay (minutes)"), rows)


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import flight_weather

    sys.exit(flight_weather.main())
