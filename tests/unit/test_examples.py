"""The examples on the local runtime, each held against the same answer found in another way."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from examples import flight_delays, flight_weather, grades, news_clicks, sales, windowed_sales, word_count
from examples.airport import flights_by_schedule, flights_by_takeoff, observations
from examples.orders import HOUR, some_orders
from tests.oracles.flights import daily_delays, delays_by_visibility

RUNTIMES = {
    "plain": LocalRuntime(check_mutation=True),
    "restarting": LocalRuntime(seed=1, batches=(7, 100), restart=True),
}
each_way = pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
each_parallelism = pytest.mark.parametrize("parallelism", [1, 3])


def results_of(
    build: Callable[..., Any], *collections: Sequence[Any], runtime: LocalRuntime, parallelism: int
) -> list[Any]:
    env = ExecutionEnvironment.get_instance(runtime)
    env.set_parallelism(parallelism)
    sink = CollectSink[Any]()
    build(*(env.from_collection(collection) for collection in collections)).to_sink(sink)
    env.execute()
    return sink.results


@each_way
@each_parallelism
def test_word_count(runtime: LocalRuntime, parallelism: int) -> None:
    expected = Counter(re.findall("[a-z']+", " ".join(word_count.TEXT).lower()))
    assert expected["to"] > 5
    results = results_of(word_count.count_words, word_count.TEXT, runtime=runtime, parallelism=parallelism)
    so_far: dict[str, list[int]] = defaultdict(list)
    for word, count in results:
        so_far[word].append(count)
    assert so_far == {word: list(range(1, count + 1)) for word, count in expected.items()}
    callables = word_count.count_words_with_callables
    results = results_of(callables, word_count.TEXT, runtime=runtime, parallelism=parallelism)
    assert sorted(results) == sorted(expected.items())


@each_way
@each_parallelism
def test_news_clicks(runtime: LocalRuntime, parallelism: int) -> None:
    events = news_clicks.some_events()
    published = {event.news_id: event.time for event in events if isinstance(event, news_clicks.News)}
    clicks = [event for event in events if isinstance(event, news_clicks.Click)]
    first_hour = [c for c in clicks if published[c.news_id] <= c.time < published[c.news_id] + HOUR]
    assert len(published) < len(first_hour) < len(clicks)
    shown = [event.news_id for event in events if isinstance(event, news_clicks.News)]
    assert any(events.index(c) < events.index(news_clicks.News(c.news_id, published[c.news_id])) for c in first_hour)
    expected = Counter(click.news_id for click in first_hour)
    results = results_of(news_clicks.count_clicks, events, runtime=runtime, parallelism=parallelism)
    assert sorted(results) == sorted((news_id, expected[news_id]) for news_id in shown)


def sales_by_hour() -> Counter[tuple[str, int]]:
    sold: Counter[tuple[str, int]] = Counter()
    for product, time, quantity in some_orders():
        sold[product, time // HOUR * HOUR] += quantity
    return sold


@each_way
@each_parallelism
def test_sales(runtime: LocalRuntime, parallelism: int) -> None:
    results = results_of(sales.count_sales, some_orders(), runtime=runtime, parallelism=parallelism)
    expected = [(product, start + HOUR, sold) for (product, start), sold in sales_by_hour().items()]
    assert len(expected) > 20
    assert sorted(results) == sorted(expected)


@each_way
@each_parallelism
def test_sales_in_windows(runtime: LocalRuntime, parallelism: int) -> None:
    count = windowed_sales.count_sales_in_windows
    results = results_of(count, some_orders(), runtime=runtime, parallelism=parallelism)
    expected = [(product, start, start + HOUR, sold) for (product, start), sold in sales_by_hour().items()]
    assert sorted(results) == sorted(expected)


@each_way
@each_parallelism
def test_grades(runtime: LocalRuntime, parallelism: int) -> None:
    results = results_of(grades.join_grades, grades.GRADES, grades.SCORES, runtime=runtime, parallelism=parallelism)
    assert sorted(results) == [("Ada", 1, 88), ("Ada", 1, 95), ("Bob", 2, 72), ("Cleo", 3, 81), ("Eve", 5, 77)]


def test_flight_delays() -> None:
    expected, too_late = daily_delays()
    assert len(expected) > 4000
    assert 10 < len(too_late) < 5000
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    env.set_parallelism(2)
    both = flight_delays.daily_delays(env.from_collection(flights_by_takeoff()).with_parallelism(1))
    days, late = CollectSink[flight_delays.DelaysOfDay](), CollectSink[Any]()
    both.first.to_sink(days)
    both.second.to_sink(late)
    env.execute()
    assert {(day.carrier, day.start): tuple(day.delays) for day in days.results} == expected
    assert len(days.results) == len(expected)
    assert Counter(late.results) == Counter(
        too_late[["carrier", "origin", "scheduled", "dep_delay"]].itertuples(index=False, name=None)
    )


def test_flight_weather() -> None:
    expected = delays_by_visibility()
    assert len(expected) == 12
    results = results_of(
        lambda flights, weather: flight_weather.by_visibility(flight_weather.in_weather(flights, weather)),
        flights_by_schedule(),
        observations(),
        runtime=LocalRuntime(),
        parallelism=2,
    )
    assert {(origin, sight): tuple(counts) for origin, sight, *counts in results} == expected


PROGRAMS: dict[str, tuple[Callable[[Sequence[str]], int], list[str]]] = {
    "word_count": (word_count.main, ["117 results for 73 words", "to "]),
    "news_clicks": (news_clicks.main, ["20 news items"]),
    "sales": (sales.main, ["2024-01-01 01:00  kettle"]),
    "windowed_sales": (windowed_sales.main, ["2024-01-01 00:00  2024-01-01 01:00  kettle"]),
    "grades": (grades.main, ["Ada       1     88"]),
    "flight_delays": (flight_delays.main, ["carrier"]),
    "flight_weather": (flight_weather.main, ["EWR"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main, said = PROGRAMS[name]
    assert main([]) == 0
    output = capsys.readouterr().out
    for text in said:
        assert text in output
