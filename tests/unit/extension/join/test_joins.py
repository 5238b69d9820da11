"""Joins: errors, state, and its removal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dsv2 import Collector, ExecutionEnvironment, RuntimeContext
from dsv2.errors import ConfigurationError, PlanError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinFunction, JoinMode, JoinType, PairTimes, TimedJoinFunction, join
from dsv2.extension.window import CountTrigger, WindowStrategy
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.testing import EndOfInput
from tests.durations import ms
from tests.oracles.joins import Row
from tests.property.joining import CHANNELS, Event, JoinDriver, event_time, pair
from tests.support import local_environment, two_inputs

ZERO, SECOND = timedelta(0), timedelta(seconds=1)
any_join: Any = join  # each of its overloads accepts one type

each_type = pytest.mark.parametrize("join_type", JoinType, ids=lambda join_type: join_type.value)


def first_of(record: tuple[str, int]) -> str:
    return record[0]


def late(record: Any, output: Any, ctx: Any) -> None: ...


class TestRefused:
    @each_type
    def test_join_without_windows_must_be_inner(self, join_type: JoinType) -> None:
        if join_type is JoinType.INNER:
            any_join(pair, join_type=join_type)
            return
        with pytest.raises(ConfigurationError) as refused:
            any_join(pair, join_type=join_type)
        assert f"join_type of an unbounded join must be INNER, not {join_type}, because" in str(refused.value)

    @pytest.mark.parametrize(
        ("mode", "options", "said"),
        [
            (JoinMode.unbounded(), {"on_late_left": print}, "on_late_left does not apply to an unbounded join."),
            (JoinMode.unbounded(), {"is_deletion": bool}, "is_deletion does not apply to an unbounded join."),
            (JoinMode.temporal(), {"on_late_right": print}, "on_late_right does not apply to a temporal join."),
            (JoinMode.interval(ms(0), ms(1)), {"is_deletion": bool}, "is_deletion does not apply to a join in interv"),
            (
                JoinMode.versioned(),
                {"is_deletion": "cents"},
                "is_deletion must be a callable (row) -> bool, not 'cents'.",
            ),
            (
                JoinMode.versioned(),
                {"on_late_left": 5},
                "on_late_left must be a callable (record, output, ctx), not 5.",
            ),
            (
                JoinMode.interval(ms(0), ms(1), "processing"),
                {"on_late_left": late},
                "on_late_left does not apply to an interval in processing time.",
            ),
            (ms(5), {}, "mode must be a JoinMode, such as JoinMode.interval(lower, upper), not datetime.timedelta("),
        ],
    )
    def test_options_of_other_modes(self, mode: Any, options: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigurationError) as refused:
            any_join(pair, mode, **options)
        assert str(refused.value).startswith(said)

    @pytest.mark.parametrize(
        ("function", "said"),
        [
            (JoinFunction, "takes a JoinFunction (an instance, not the class) or a callable"),
            (two_inputs(), "takes a JoinFunction or a callable (left, right, output, ctx), not <"),
            (7, "or a callable (left, right, output, ctx), not 7."),
        ],
    )
    @pytest.mark.parametrize(
        "make",
        [
            join,
            lambda function: any_join(function, JoinMode.interval(SECOND, SECOND)),
            lambda function: any_join(function, JoinMode.window(WindowStrategy.tumbling(SECOND))),
        ],
    )
    def test_function_that_does_not_accept_a_pair(self, make: Callable[[Any], Any], function: Any, said: str) -> None:
        with pytest.raises(ConfigurationError) as refused:
            make(function)
        assert said in str(refused.value)

    def test_invalid_windows(self) -> None:
        with pytest.raises(ConfigurationError) as refused:
            any_join(pair, JoinMode.window(10))  # type: ignore[arg-type]
        assert str(refused.value).startswith("window takes a WindowStrategy, such as")

    @pytest.mark.parametrize(
        ("lower", "upper", "said"),
        [
            (SECOND, -SECOND, "lower must not exceed upper: lower is 1000 ms and upper is -1000 ms."),
            (SECOND / 1_000_000, SECOND, "lower must be a whole number of milliseconds, not 0.001 ms."),
            (-SECOND, 5.0, "upper must be a datetime.timedelta, such as timedelta(seconds=5), not 5.0."),
            (-5, SECOND, "lower must be a datetime.timedelta, such as timedelta(seconds=5), not -5."),
        ],
    )  # fmt: skip
    def test_invalid_bounds(self, lower: Any, upper: Any, said: str) -> None:
        with pytest.raises(ConfigurationError) as refused:
            any_join(pair, JoinMode.interval(lower, upper))
        assert said in str(refused.value)

    @pytest.mark.parametrize(
        "strategy",
        [
            WindowStrategy.session(SECOND),
            WindowStrategy.global_(),
            WindowStrategy.count(3),
            WindowStrategy.tumbling(SECOND).with_allowed_lateness(SECOND),
            WindowStrategy.tumbling(SECOND).with_early_firing(SECOND),
            WindowStrategy.tumbling(SECOND).with_trigger(CountTrigger(3)),
        ],
    )
    def test_running_join_requires_windows_that_fire_once(self, strategy: WindowStrategy) -> None:
        with pytest.raises(
            ConfigurationError, match="A running join requires tumbling or sliding windows without allow"
        ):
            JoinMode.window(strategy, running=True)

    def test_interval_that_ends_with_a_field_is_in_event_time(self) -> None:
        with pytest.raises(ConfigurationError, match="An interval that ends with a field of the left records is in ev"):
            JoinMode.interval(ms(0), "expires", "processing")

    @pytest.mark.parametrize(
        ("function", "name"),
        [
            (join(pair), "A join requires two keyed streams"),
            (any_join(pair, JoinMode.interval(SECOND, SECOND)), "An interval join requires"),
            (any_join(pair, JoinMode.window(WindowStrategy.tumbling(SECOND))), "A window join requires"),
            (any_join(pair, JoinMode.versioned()), "A versioned join requires"),
            (any_join(pair, JoinMode.window(WindowStrategy.global_())), "A window join requires"),
        ],
    )
    @pytest.mark.parametrize("place", ["non-keyed", "global"])
    def test_streams_without_keys(self, place: str, function: Any, name: str) -> None:
        """Flink accepts such a join, which then never emits anything."""
        env = local_environment()
        stream: Any = env.from_collection([1])
        stream = stream.global_() if place == "global" else stream
        stream.connect_and_process(stream, function)  # refused
        with pytest.raises(PlanError) as refused:
            env.build_plan()
        assert f"{__file__}:" in str(refused.value)
        assert f"{name}" in str(refused.value)
        assert "call key_by on both before connect_and_process" in str(refused.value)


class Times(TimedJoinFunction[Row, Row, tuple[int | None, int | None]]):
    """Emits the timestamps of a pair."""

    def process_timed_record(
        self,
        left: Row | None,
        right: Row | None,
        times: PairTimes,
        output: Collector[tuple[int | None, int | None]],
        ctx: RuntimeContext,
    ) -> None:
        assert times == (left and left.timestamp, right and right.timestamp)
        output.collect(times)


@pytest.mark.parametrize(
    ("mode", "join_type", "expected"),
    [
        (JoinMode.interval(ms(-5), ms(5)), "inner", [(3, 1), (3, 8), (12, 8)]),
        (JoinMode.interval(ms(-5), ms(5)), "full", [(3, 1), (3, 8), (12, 8), (30, None), (None, 50)]),
        (JoinMode.interval(ms(-5), ms(5)), "semi", [(3, None), (12, None)]),
        (JoinMode.interval(ms(-5), ms(5)), "anti", [(30, None)]),
        (JoinMode.versioned(), "inner", [(3, 1), (12, 8), (30, 8)]),
        (JoinMode.versioned(), "left", [(0, None), (3, 1), (12, 8), (30, 8)]),
    ],
)
def test_function_receives_both_timestamps(mode: JoinMode, join_type: str, expected: list[Any]) -> None:
    driver = JoinDriver(any_join(Times(), mode, join_type))
    lefts, rights = [3, 12, 30], [8, 1, 50]
    if join_type == "left":
        lefts.append(0)
    events = [Event(0, Row("a", 0, time)) for time in lefts] + [Event(2, Row("a", 0, time)) for time in rights]
    results = [
        driver.take(event) for event in (*events, *(Event(channel, EndOfInput()) for channel in range(CHANNELS)))
    ]
    found = [times for of_event in results for times, *_ in of_event]
    assert sorted(found, key=str) == sorted(expected, key=str)


class FailingTimes(TimedJoinFunction[Row, Row, int]):
    """Fails for every pair."""

    def process_timed_record(
        self, left: Row, right: Row, times: PairTimes, output: Collector[int], ctx: RuntimeContext
    ) -> None:
        raise ValueError("on purpose")


@pytest.mark.parametrize("mode", [JoinMode.interval(ms(-5), ms(5)), JoinMode.versioned()])
def test_failed_function_with_timestamps_is_named(mode: JoinMode) -> None:
    driver = JoinDriver(any_join(FailingTimes(), mode))
    events = [Event(0, Row("a", 0, 3)), Event(2, Row("a", 1, 3)), *(Event(n, event_time(9)) for n in range(CHANNELS))]
    with pytest.raises(UserFunctionError) as failed:
        list(map(driver.take, events))
    assert (failed.value.callback, failed.value.cause_type) == ("process_timed_record", "ValueError")


@pytest.mark.parametrize("mode", [JoinMode.unbounded(), JoinMode.temporal(), JoinMode.window(WindowStrategy.global_())])
def test_modes_without_timestamps_refuse_functions_that_need_them(mode: JoinMode) -> None:
    with pytest.raises(
        ConfigurationError, match=r"Times is a TimedJoinFunction: use JoinMode.interval or JoinMode.vers"
    ):
        any_join(Times(), mode)


class TestPlaces:
    """Positions of a join in a pipeline, and its name there."""

    LEFT = (("a", 1), ("b", 2), ("a", 3))
    RIGHT = (("a", 10), ("c", 20), ("a", 30))
    PAIRS = ("a:1:10", "a:1:30", "a:3:10", "a:3:30")

    @staticmethod
    def text(left: tuple[str, int], right: tuple[str, int], output: Collector[str], ctx: RuntimeContext) -> None:
        output.collect(f"{left[0]}:{left[1]}:{right[1]}")

    def run(self, build: Callable[[Any, Any], Any]) -> list[str]:
        env = ExecutionEnvironment.get_instance(LocalRuntime(seed=3))
        sink = CollectSink[str]()
        build(env.from_collection(self.LEFT), env.from_collection(self.RIGHT)).to_sink(sink)
        env.execute()
        return sorted(sink.results)

    def test_all_forms_of_a_join(self) -> None:
        class Text(JoinFunction[tuple[str, int], tuple[str, int], str]):
            def process_record(self, left: Any, right: Any, output: Any, ctx: Any) -> None:
                output.collect(f"{left[0]}:{left[1]}:{right[1]}")

        ways: list[Callable[[Any, Any], Any]] = [
            lambda left, right: left.key_by(first_of).connect_and_process(right.key_by(first_of), join(self.text)),
            lambda left, right: left.key_by(first_of).connect_and_process(right.key_by(first_of), join(Text())),
        ]
        for way in ways:
            assert self.run(way) == list(self.PAIRS)

    def test_join_may_keep_the_key(self) -> None:
        """In Flink the key-preserving variant never emits anything."""

        def build(left: Any, right: Any) -> Any:
            keyed = left.key_by(first_of)
            joined = keyed.connect_and_process(right.key_by(first_of), join(self.text), lambda text: text[0])
            return joined.process(lambda text, output, ctx: output.collect(ctx.state_manager.current_key + text[1:]))

        assert self.run(build) == list(self.PAIRS)

    def test_kept_key_is_checked(self) -> None:
        def build(left: Any, right: Any) -> Any:
            return left.key_by(first_of).connect_and_process(right.key_by(first_of), join(self.text), lambda text: "z")

        with pytest.raises(UserFunctionError) as failed:
            self.run(build)
        assert (failed.value.cause_type, failed.value.key) == ("InvalidKeyError", "'a'")

    def test_kept_key_is_checked_in_timers_of_an_interval_join(self) -> None:
        def build(left: Any, right: Any) -> Any:
            left, right = (stream.process(generator()).key_by(first_of) for stream in (left, right))
            return left.connect_and_process(
                right, any_join(pair, JoinMode.interval(ZERO, ZERO), JoinType.LEFT), lambda joined: "z"
            )

        with pytest.raises(UserFunctionError) as failed:
            self.run(build)
        assert (failed.value.cause_type, failed.value.callback) == ("InvalidKeyError", "process_record")


class Numbering(JoinFunction[Row, Row, int]):
    """Counts its pairs in a field."""

    def __init__(self) -> None:
        self.pairs = 0

    def process_record(self, left: Row, right: Row, output: Collector[int], ctx: RuntimeContext) -> None:
        self.pairs += 1
        output.collect(self.pairs)


class TestFunction:
    @pytest.mark.parametrize("make", [join, lambda function: any_join(function, JoinMode.interval(ms(-5), ms(5)))])
    def test_fields_are_checkpointed(self, make: Callable[[Any], Any]) -> None:
        driver = JoinDriver(make(Numbering()))
        driver.take(Event(0, Row("a", 0, 1)))
        counts = [driver.take(Event(2, Row("a", n, 1), restart=True))[0][0] for n in range(3)]
        assert counts == [1, 2, 3]

    def test_fields_of_a_window_join_are_checkpointed(self) -> None:
        driver = JoinDriver(
            any_join(Numbering(), JoinMode.window(WindowStrategy.tumbling(ms(10)).with_allowed_lateness(ms(10))))
        )
        driver.take(Event(0, Row("a", 0, 1)))
        move(driver, 9)
        late = [driver.take(Event(2, Row("a", n, 1), restart=True)) for n in range(3)]
        assert [[count for count, *_ in results] for results in late] == [[1], [2, 3], [4, 5, 6]]

    def test_partners_come_in_timestamp_order(self) -> None:
        driver = JoinDriver(any_join(pair, JoinMode.interval(-SECOND, SECOND)))
        for timestamp in (5, 2, 9, 2):
            driver.take(Event(2, Row("a", timestamp, timestamp)))
        results = driver.take(Event(0, Row("a", 0, 4)))
        assert [(right.timestamp, timestamp) for (_, right), timestamp, _ in results] == [
            (2, 4),
            (2, 4),
            (5, 5),
            (9, 9),
        ]

    @pytest.mark.parametrize(("channel", "name"), [(0, "on_late_left"), (2, "on_late_right")])
    @pytest.mark.parametrize("kind", ["interval", "window"])
    def test_failure_on_a_late_record_is_named(self, kind: str, channel: int, name: str) -> None:
        def late(row: Row, output: Any, ctx: Any) -> None:
            raise ValueError("too late")

        if kind == "interval":
            driver = JoinDriver(any_join(pair, JoinMode.interval(ms(0), ms(0)), **{name: late}))
        else:
            driver = JoinDriver(any_join(pair, JoinMode.window(WindowStrategy.tumbling(ms(10))), **{name: late}))
        move(driver, 20)
        with pytest.raises(UserFunctionError) as failed:
            driver.take(Event(channel, Row("a", 1, 5)))
        assert (failed.value.callback, failed.value.cause_message) == (name, "too late")
        assert failed.value.record == "Row(key='a', number=1, timestamp=5)"

    def test_interval_join_requires_timestamps(self) -> None:
        env = local_environment()
        keyed = env.from_collection([("a", 1)]).key_by(first_of)
        keyed.connect_and_process(keyed, any_join(pair, JoinMode.interval(ZERO, ZERO))).to_sink(CollectSink())
        with pytest.raises(UserFunctionError) as failed:
            env.execute()
        assert failed.value.cause_type == "ContractError"
        assert failed.value.cause_message.startswith("An interval join requires records with timestamps, but this")
        assert failed.value.record == "('a', 1)"


class TestState:
    ROWS = 1000

    def fill(self, driver: JoinDriver) -> None:
        """Push rows of 499 keys on either side, with timestamps from 0 to 99. Some have no partners."""
        for number in range(self.ROWS):
            row = Row(f"key {number % 499}", number, number * 37 % 100)
            driver.take(Event(number % CHANNELS, row))

    @each_type
    @pytest.mark.parametrize("bounds", [(-3, 5), (2, 6), (-6, -2)])
    def test_interval_join_drops_state_with_event_time(self, join_type: JoinType, bounds: tuple[int, int]) -> None:
        lower, upper = (timedelta(milliseconds=bound) for bound in bounds)
        driver, unused = (JoinDriver(any_join(pair, JoinMode.interval(lower, upper), join_type)) for _ in range(2))
        self.fill(driver)
        full = driver.state_size()
        assert full > 5 * self.ROWS
        move(driver, 50)
        half = driver.state_size()
        assert 0.3 * full < half < 0.8 * full
        longest = 99 + max(upper, -lower, ZERO) // timedelta(milliseconds=1)
        move(driver, longest - 1)
        assert driver.state_size() < 0.2 * full
        for each in (driver, unused):
            move(each, longest)
        assert abs(driver.state_size() - unused.state_size()) < 10, "a few digits in counts of records"

    @pytest.mark.parametrize(("join_type", "alone"), [(JoinType.INNER, []), (JoinType.LEFT, [0, 1])])
    def test_interval_join_state_fits_other_bounds(self, join_type: JoinType, alone: list[int]) -> None:
        """Rows buffered under the bounds of one program are found under those of the next."""
        driver = JoinDriver(any_join(pair, JoinMode.interval(ms(0), ms(3)), join_type))
        for number in range(4):
            driver.take(Event(0, Row("a", number, 10 * number)))
        later = JoinDriver(
            any_join(pair, JoinMode.interval(ms(0), ms(12)), join_type), snapshot=driver.harness.snapshot()
        )
        met = later.take(Event(2, Row("a", 9, 31)))
        assert [(left.number, timestamp) for (left, _), timestamp, _ in met] == [(2, 31), (3, 31)]
        left_over = [result for channel in range(CHANNELS) for result in later.take(Event(channel, event_time(50)))]
        assert [left.number for (left, _), *_ in left_over] == alone
        assert not later.harness.keys

    @each_type
    def test_row_without_possible_partners_is_not_kept(self, join_type: JoinType) -> None:
        """If all partners come before a row or after it, there may be nothing for the row to wait for."""
        lower, upper = timedelta(milliseconds=-20), timedelta(milliseconds=-10)
        driver, unused = (JoinDriver(any_join(pair, JoinMode.interval(lower, upper), join_type)) for _ in range(2))
        for each in (driver, unused):
            move(each, 100)
        for number in range(100):
            driver.take(Event(0, Row(f"key {number}", number, 105)))
        assert abs(driver.state_size() - unused.state_size()) < 10

    @each_type
    @pytest.mark.parametrize(
        ("strategy", "gone"),
        [
            (WindowStrategy.tumbling(ms(10)), 99),
            (WindowStrategy.tumbling(ms(10)).with_allowed_lateness(ms(20)), 119),
            (WindowStrategy.sliding(ms(20), ms(5)), 114),
            (WindowStrategy.session(ms(2)), 100),
        ],
        ids=["tumbling", "late", "sliding", "session"],
    )
    def test_window_join_drops_state_with_event_time(
        self, join_type: JoinType, strategy: WindowStrategy, gone: int
    ) -> None:
        driver, unused = (JoinDriver(any_join(pair, JoinMode.window(strategy), join_type)) for _ in range(2))
        self.fill(driver)
        assert driver.state_size() > 5 * self.ROWS
        move(driver, gone - 1)
        assert driver.state_size() > unused.state_size() + 100
        for each in (driver, unused):
            move(each, gone)
        assert abs(driver.state_size() - unused.state_size()) < 10, "a few digits in counts of records"

    @pytest.mark.parametrize("join_type", [JoinType.SEMI, JoinType.ANTI])
    def test_semi_and_anti_joins_keep_no_partners(self, join_type: JoinType) -> None:
        driver = JoinDriver(any_join(pair, JoinMode.interval(-SECOND, SECOND), join_type))
        for number in range(500):
            driver.take(Event(2, Row("a", number, 5)))
        assert driver.state_size() < 3_000


def move(driver: JoinDriver, time: int) -> None:
    """Advance event time to ``time``."""
    for channel in range(CHANNELS):
        driver.take(Event(channel, event_time(time)))


def generator() -> Any:
    """Assigns the second value of each record as its timestamp."""
    builder: Any = EventTimeExtension.new_watermark_generator_builder(lambda record: record[1])
    return builder.per_event_watermark().build_as_process_function()
