"""Windows: their order over keys, calls for each record, errors, and the end of time.

tests/property/test_windows_compared.py compares contents, firing and removal in every strategy with a model.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dsv2.errors import ConfigurationError, PlanError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import (
    CountEvictor,
    TimeEvictor,
    TimeType,
    WindowAssigner,
    WindowEvictor,
    WindowStrategy,
)
from dsv2.extension.window.process_functions import reduced, windowed
from dsv2.sinks import CollectSink
from dsv2.watermark.event_time import LONG_MAX
from tests.durations import ms
from tests.support import local_environment
from tests.windows import Event, TwoInputWindowRecorder, WindowDriver, WindowRecorder, key_of


def over(strategy: WindowStrategy, of_records: bool = False, **options: Any) -> WindowDriver:
    return WindowDriver(windowed(strategy, WindowRecorder(of_records)), **options)


def test_size_of_cumulating_windows_is_a_multiple_of_the_step() -> None:
    with pytest.raises(ConfigurationError, match=r"must be a multiple of their step, not 0:00:00\.010000"):
        WindowStrategy.cumulate(ms(3), ms(10))


def fired(key: str, start: int, end: int, *records: str) -> Event:
    return ("trigger", key, start, end, records)


def cleared(key: str, start: int, end: int) -> Event:
    return ("clear", key, start, end)


def late(record: str) -> Event:
    return ("late", record[0], record)


class TestTumbling:
    def test_each_key_has_its_own_windows(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10))).record("a1", 3).record("b1", 5).record("a2", 9).record("a3", 10)
        driver.event_time(9)
        assert driver.out() == [
            fired("a", 0, 10, "a1", "a2"),
            cleared("a", 0, 10),
            fired("b", 0, 10, "b1"),
            cleared("b", 0, 10),
        ]
        driver.event_time(19)
        assert driver.out()[4:] == [fired("a", 10, 20, "a3"), cleared("a", 10, 20)]

    @pytest.mark.parametrize(
        ("offset", "window_of_14"), [(0, (10, 20)), (3, (13, 23)), (5, (5, 15)), (15, (5, 15)), (-5, (5, 15))]
    )
    def test_offset_shifts_the_windows(self, offset: int, window_of_14: tuple[int, int]) -> None:
        # Flink's DataStream V2 has no offset.
        driver = over(WindowStrategy.tumbling(ms(10), offset=ms(offset))).record("a1", 14).end()
        assert driver.out() == [fired("a", *window_of_14, "a1"), cleared("a", *window_of_14)]

    def test_durations_are_timedeltas(self) -> None:
        strategy = WindowStrategy.tumbling(timedelta(seconds=1), offset=timedelta(milliseconds=-1))
        assert strategy == WindowStrategy.tumbling(ms(1000), TimeType.EVENT, offset=ms(999))

    def test_results_have_the_window_end_as_timestamp(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10)).with_allowed_lateness(ms(5)), of_records=True)
        driver.record("a1", 3).event_time(9).record("a2", 4).event_time(14).record("a3", 2)
        assert driver.stamped() == [
            (("record", "a", 0, 10, "a1"), 3),
            (fired("a", 0, 10, "a1"), 9),
            (("record", "a", 0, 10, "a2"), 4),
            (fired("a", 0, 10, "a1", "a2"), 9),
            (cleared("a", 0, 10), 9),
            (late("a3"), 2),
        ]


class TestSliding:
    def test_record_is_in_every_window_of_its_time(self) -> None:
        driver = over(WindowStrategy.sliding(ms(10), ms(5)), of_records=True).record("a1", 7).record("a2", 12).end()
        assert driver.out() == [
            ("record", "a", 5, 15, "a1"),
            ("record", "a", 0, 10, "a1"),
            ("record", "a", 10, 20, "a2"),
            ("record", "a", 5, 15, "a2"),
            fired("a", 0, 10, "a1"),
            cleared("a", 0, 10),
            fired("a", 5, 15, "a1", "a2"),
            cleared("a", 5, 15),
            fired("a", 10, 20, "a2"),
            cleared("a", 10, 20),
        ]


class TestSessions:
    def test_on_record_sees_the_session_of_its_record(self) -> None:
        # As in Flink: windows are merged after on_record.
        driver = over(WindowStrategy.session(ms(10)), of_records=True).record("a1", 1).record("a2", 5).end()
        assert driver.out() == [
            ("record", "a", 1, 11, "a1"),
            ("record", "a", 5, 15, "a2"),
            fired("a", 1, 15, "a1", "a2"),
            cleared("a", 1, 15),
        ]

    def test_record_without_timestamp_is_refused(self) -> None:
        # Flink creates a meaningless session.
        with pytest.raises(
            UserFunctionError, match="ContractError: Windows in event time require records with timestamps"
        ):
            over(WindowStrategy.session(ms(10))).record("a1")

    @pytest.mark.parametrize(
        ("gap", "text"), [(lambda record: 0, "at least 1 ms, not 0"), (int, "invalid literal"), (str, "not 'a1'")]
    )
    def test_wrong_gap_of_a_record(self, gap: Any, text: str) -> None:
        with pytest.raises(UserFunctionError, match=text) as caught:
            over(WindowStrategy.session(gap)).record("a1", 1)
        assert "gap" in str(caught.value)


class Broken(WindowAssigner[Any]):
    """Assigns records to a wrong window."""

    def __init__(self, *windows: Any) -> None:
        self.windows = windows

    def assign_windows(self, record: Any, timestamp: int) -> Any:
        return self.windows


class Foreign(WindowEvictor[Any]):
    """Returns what is no record."""

    def evict_after(self, records: Any, window: Any) -> Any:
        return 5


class TestAssigned:
    @pytest.mark.parametrize("window", [(5, 5), (5, None), 5, (1.0, 2)])
    def test_wrong_windows(self, window: Any) -> None:
        with pytest.raises(UserFunctionError, match=r"Broken\.assign_windows"):
            over(WindowStrategy.assigned_by(Broken(window))).record("a1", 1)

    def test_record_of_one_key_in_a_window_of_several(self) -> None:
        driver = over(WindowStrategy.assigned_by(Broken((0, 10)))).record("a1", 3).record("b1", 4).end()
        assert sorted(driver.out()) == [
            cleared("a", 0, 10), cleared("b", 0, 10), fired("a", 0, 10, "a1"), fired("b", 0, 10, "b1")
        ]  # fmt: skip


class TestEvictors:
    def test_failure_names_the_evictor(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10)).with_evictor(Foreign())).record("a1", 3)
        with pytest.raises(UserFunctionError, match=r"Foreign\.evict_after"):
            driver.end()

    def test_records_without_timestamps_stay(self) -> None:
        driver = over(WindowStrategy.count(2).with_evictor(TimeEvictor(ms(1)))).record("a1").record("a2")
        assert driver.out() == [fired("a", -1, -1, "a1", "a2"), cleared("a", -1, -1)]

    @pytest.mark.parametrize("function", [TwoInputWindowRecorder(), None])
    def test_records_of_one_input_are_required(self, function: Any) -> None:
        strategy = WindowStrategy.tumbling(ms(10)).with_evictor(CountEvictor(1))
        with pytest.raises(PlanError, match="CountEvictor requires the records of one input"):
            WindowDriver(reduced(strategy, max) if function is None else windowed(strategy, function))


class TestGlobal:
    def test_result_can_be_counted_in_event_time(self) -> None:
        """It has the greatest timestamp, as in Flink, and the last window ends before the input does."""
        env, sink = local_environment(), CollectSink[str]()
        generator = EventTimeExtension.new_watermark_generator_builder(length).per_event_watermark()
        numbers = env.from_collection(["a1", "a2", "b1"]).process(generator.build_as_process_function())
        greatest = numbers.key_by(key_of).window(WindowStrategy.global_()).reduce(max).key_by(length)
        for strategy in (WindowStrategy.tumbling(ms(7)), WindowStrategy.session(ms(7))):
            greatest.window(strategy).reduce(lambda one, other: one + other).to_sink(sink)
        env.execute("greatest")
        assert sorted(sorted(one) for one in sink.results) == [sorted("a2b1")] * 2


def length(text: str) -> int:
    return len(text)


class TestEndOfTime:
    @pytest.mark.parametrize("lateness", [0, 2000])
    def test_last_windows_end_with_event_time(self, lateness: int) -> None:
        strategy = WindowStrategy.tumbling(ms(1000)).with_allowed_lateness(ms(lateness))
        driver = WindowDriver(reduced(strategy, max)).record("a1", LONG_MAX - 1750).event_time(LONG_MAX - 700)
        assert driver.out() == ["a1"]
        driver.record("a2", LONG_MAX - 1750).record("a3", LONG_MAX).record("a4", LONG_MAX - 1)
        assert driver.end().stamped()[-1] == ("a4", LONG_MAX - 1)
        assert driver.out() == ["a1", *["a2"] * bool(lateness), "a4"]

    def test_last_session(self) -> None:
        driver = WindowDriver(reduced(WindowStrategy.session(ms(10)), max))
        driver.record("a1", LONG_MAX - 5).record("a2", LONG_MAX).end()
        assert driver.stamped() == [("a2", LONG_MAX - 1)]


class TestCount:
    """Flink's DataStream V2 has no count windows."""

    def test_complete_window_leaves_no_state(self) -> None:
        driver = over(WindowStrategy.count(2)).record("x1").record("x2")
        before = len(driver.state())
        for number in range(1000):
            driver.record(f"{chr(number + 200)}1").record(f"{chr(number + 200)}2")
        assert len(driver.state()) < before + 20  # counters have more digits


class TestFrames:
    """Batches of records take a shorter path."""

    def test_failing_record_is_named(self) -> None:
        def add(first: str, second: str) -> str:
            if second == "a4":
                raise ValueError(second)
            return first

        driver = WindowDriver(reduced(WindowStrategy.tumbling(ms(10)), add))
        with pytest.raises(UserFunctionError) as caught:
            driver.records([f"a{n}" for n in range(9)], [*range(9)])
        error = caught.value
        assert (error.callback, error.key, error.record, error.cause_type) == ("reduce", "'a'", "'a4'", "ValueError")

    @pytest.mark.parametrize(
        ("record", "timestamp", "callback", "message"),
        [
            (7, 5, "key selector", "TypeError"),
            (["a", 1], None, "process_record", "ContractError: Windows in event time require records with timestamps"),
            ([None], 5, "key selector", "InvalidKeyError"),
            ([[]], 5, "key selector", "InvalidKeyError: .*unhashable"),
        ],
    )
    def test_record_without_a_window_is_named(
        self, record: Any, timestamp: int | None, callback: str, message: str
    ) -> None:
        driver = WindowDriver(reduced(WindowStrategy.tumbling(ms(10)), max))
        with pytest.raises(UserFunctionError, match=message) as caught:
            driver.records(["a1", "a2", record, "a3"], [1, 2, timestamp, 3])
        assert (caught.value.callback, caught.value.record) == (callback, repr(record))
