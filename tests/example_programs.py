"""The examples as programs that every runtime runs. Each result is compared with one computed in another way."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from examples import (
    end_of_day,
    flight_delays,
    flight_scores,
    flight_weather,
    grades,
    hot_topics,
    model_switching,
    news_clicks,
    sales,
    user_completeness,
    windowed_sales,
    word_count,
)
from examples.airport import Flight, flights_by_schedule, flights_by_takeoff, observations
from examples.orders import HOUR, some_orders
from examples.tweets import TweetGenerator
from tests.conformance.harness import Pipeline, Program, Run
from tests.oracles.flights import DAY, YEAR, daily_delays, delays_by_visibility, reports_by_day
from tests.oracles.hot_topics import expected_events


class WordCount(Program):
    """Both ways to count."""

    def build(self, p: Pipeline) -> None:
        p.collect(word_count.count_words(p.source(word_count.TEXT)), "so far")
        p.collect(word_count.count_words_with_callables(p.source(word_count.TEXT)), "at the end")

    def check(self, run: Run) -> None:
        expected = Counter(re.findall("[a-z']+", " ".join(word_count.TEXT).lower()))
        assert expected["to"] > 5
        so_far: dict[str, list[int]] = defaultdict(list)
        for word, count in run.out("so far"):
            so_far[word].append(count)
        assert so_far == {word: list(range(1, count + 1)) for word, count in expected.items()}
        run.expect_all(*map(word_count.WordCount._make, expected.items()), name="at the end")


class NewsClicks(Program):
    """Includes clicks that are late for their hour, and clicks that arrive before their item."""

    EVENTS = tuple(news_clicks.some_events())

    def build(self, p: Pipeline) -> None:
        p.collect(news_clicks.count_clicks(p.source(self.EVENTS)))

    def check(self, run: Run) -> None:
        items = [event for event in self.EVENTS if isinstance(event, news_clicks.News)]
        clicks = [event for event in self.EVENTS if isinstance(event, news_clicks.Click)]
        published = dict(items)
        first_hour = [c for c in clicks if published[c.news_id] <= c.time < published[c.news_id] + HOUR]
        assert len(items) < len(first_hour) < len(clicks)
        place = {event: number for number, event in reversed([*enumerate(self.EVENTS)])}
        assert any(place[c] < place[news_clicks.News(c.news_id, published[c.news_id])] for c in first_hour)
        expected = Counter(click.news_id for click in first_hour)
        run.expect_all(*(news_clicks.ClickCount(item.news_id, expected[item.news_id]) for item in items))


class UserCompleteness(Program):
    """Each total is emitted once, with all of its parts."""

    UPLOADS = tuple(user_completeness.some_uploads())

    def build(self, p: Pipeline) -> None:
        p.collect(user_completeness.count_steps(p.source(self.UPLOADS, parallelism=1)))

    def check(self, run: Run) -> None:
        steps = Counter[str]()
        finished: dict[str, int] = {}
        for number, upload in enumerate(self.UPLOADS):
            steps[upload.user] += upload.steps
            finished[upload.user] = number
        devices = {upload.user: upload.devices for upload in self.UPLOADS}
        assert set(devices.values()) == {1, 2, 3}
        in_order = sorted(finished, key=finished.__getitem__)
        run.expect(*(user_completeness.DailySteps(user, steps[user], devices[user]) for user in in_order))


class Sales(Program):
    """With its own watermark, and in windows."""

    def build(self, p: Pipeline) -> None:
        p.collect(sales.count_sales(p.source(some_orders())), "by hour")
        p.collect(windowed_sales.count_sales_in_windows(p.source(some_orders())), "in windows")

    def check(self, run: Run) -> None:
        sold: Counter[tuple[str, int]] = Counter()
        for product, time, quantity in some_orders():
            sold[product, time // HOUR * HOUR] += quantity
        assert len(sold) > 20
        by_hour = (sales.ProductSales(product, start + HOUR, number) for (product, start), number in sold.items())
        run.expect_all(*by_hour, name="by hour")
        windows = (windowed_sales.WindowSales(product, s, s + HOUR, number) for (product, s), number in sold.items())
        run.expect_all(*windows, name="in windows")


class Grades(Program):
    """Includes persons with two scores, without a score, and without a grade."""

    def build(self, p: Pipeline) -> None:
        p.collect(grades.join_grades(p.source(grades.GRADES), p.source(grades.SCORES)))

    def check(self, run: Run) -> None:
        expected = [("Ada", 1, 88), ("Ada", 1, 95), ("Bob", 2, 72), ("Cleo", 3, 81), ("Eve", 5, 77)]
        run.expect_all(*map(grades.Result._make, expected))


class HotTopics(Program):
    """One extractor, so each topic has one answer."""

    TWEETS = tuple(map(TweetGenerator(topics=20, interval=1000), range(2000)))

    def build(self, p: Pipeline) -> None:
        p.collect(hot_topics.build(p.source(self.TWEETS, 1), threshold=15, window=60_000))

    def check(self, run: Run) -> None:
        expected = expected_events(self.TWEETS, threshold=15, window=60_000)
        assert len(expected) > 50
        assert run.grouped(lambda event: event.topic) == {
            topic: [event for event in expected if event.topic == topic] for topic in {e.topic for e in expected}
        }


class FlightDelays(Program):
    """``span``: the scheduled times of the flights, in ms."""

    def __init__(self, span: range) -> None:
        self.span = span

    def build(self, p: Pipeline) -> None:
        flights = [flight for flight in flights_by_takeoff() if flight.scheduled in self.span]
        delays = flight_delays.daily_delays(p.source(flights, 1))
        p.collect(delays, "days")
        p.collect(delays.side_output(flight_delays.LATE), "too late")

    def check(self, run: Run) -> None:
        expected, too_late = daily_delays(self.span)
        assert 3 < len(too_late) < len(expected)
        columns = ["carrier", "origin", "scheduled", "dep_delay"]
        run.expect_all(
            *(
                flight_delays.DelaysOfDay(carrier, start, flight_delays.Delays(*delays))
                for (carrier, start), delays in expected.items()
            ),
            name="days",
        )
        late = too_late[columns].astype({"dep_delay": int}).itertuples(index=False, name=None)
        run.expect_all(*map(Flight._make, late), name="too late")


class FlightWeather(Program):
    """``span``: the scheduled times of the flights, in ms."""

    def __init__(self, span: range) -> None:
        self.span = span

    def build(self, p: Pipeline) -> None:
        flights = [flight for flight in flights_by_schedule() if flight.scheduled in self.span]
        weather = [observed for observed in observations() if observed.hour in self.span]
        p.collect(flight_weather.by_visibility(flight_weather.in_weather(p.source(flights, 1), p.source(weather, 1))))

    def check(self, run: Run) -> None:
        expected = delays_by_visibility(self.span)
        assert {"not observed", "2 to 9 miles", "clear"} <= {sight for _, sight in expected}
        run.expect_all(*(flight_weather.InWeather(*key, *counts) for key, counts in expected.items()))


class EndOfDay(Program):
    """``span``: the scheduled times of the flights, in ms."""

    def __init__(self, span: range) -> None:
        self.span = span

    def build(self, p: Pipeline) -> None:
        airports = {
            airport: p.source(
                [flight for flight in end_of_day.flights_from(airport) if flight.scheduled in self.span], 1
            )
            for airport in end_of_day.AIRPORTS
        }
        p.collect(end_of_day.daily_reports(airports))

    def check(self, run: Run) -> None:
        expected = reports_by_day(self.span)
        assert any(cancelled > 10 for _, cancelled, _ in expected.values())
        run.expect_all(*(end_of_day.DayReport(*key, *counts) for key, counts in expected.items()))
        for carrier, reports in run.grouped(lambda report: report.carrier).items():
            assert [report.day for report in reports] == sorted(day for day, own in expected if own == carrier)


class FlightScores(Program):
    """Some flights of the first days of February, with a small model."""

    TRAINED, SCORED = flight_scores.takeoffs(1)[::30], flight_scores.takeoffs(2)[:2_000]

    def build(self, p: Pipeline) -> None:
        model = p.folder / "model"
        flight_scores.train(model, self.TRAINED)
        p.collect(flight_scores.scores(p.source(self.SCORED), model))

    def check(self, run: Run) -> None:
        model = flight_scores.load_model(run.folder / "model")
        expected = model.predict(flight_scores.features(self.SCORED)).tolist()
        assert len(set(expected)) > 100
        scored = zip(self.SCORED, expected, strict=True)
        run.expect_all(
            *(flight_scores.Scored(one.carrier, one.dep_delay, one.arr_delay, delay) for one, delay in scored)
        )


class ModelSwitching(Program):
    """Every subtask switches at the same requests, although it scores only some of them."""

    REQUESTS = tuple(model_switching.some_requests())

    def build(self, p: Pipeline) -> None:
        p.collect(model_switching.score(p.source(self.REQUESTS, 1)))

    def check(self, run: Run) -> None:
        waiting, last, expected = 0.0, 0.0, list[model_switching.Scored]()
        for number, time, amount in self.REQUESTS:
            waiting, last = max(0.0, waiting - 10 * (time - last)) + 1, time
            is_behind = waiting > 20
            model = model_switching.fast_model if is_behind else model_switching.accurate_model
            expected.append(model_switching.Scored(number, model(amount), "fast" if is_behind else "accurate"))
        switches = [one.number for before, one in pairwise(expected) if one.model != before.model]
        assert len(switches) >= 4
        run.expect_all(*expected)


def days(first: int, count: int = 5) -> range:
    """A range of days of the year."""
    return range(YEAR.start + first * DAY, YEAR.start + (first + count) * DAY)


EXAMPLES: Sequence[Program] = (
    WordCount(),
    NewsClicks(),
    Sales(),
    UserCompleteness(),
    Grades(),
    HotTopics(),
    FlightDelays(days(106)),  # an airport was closed for hours: some flights leave too late for their day
    FlightWeather(days(231)),  # some hours have no weather observation
    EndOfDay(days(37)),  # a blizzard: most flights of two days are cancelled
    FlightScores(),
    ModelSwitching(),
)
