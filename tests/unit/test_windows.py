"""Windows of every strategy: which records they contain, when they fire, and when they are removed."""

from __future__ import annotations

from datetime import timedelta
from operator import itemgetter
from typing import Any

import pytest

from dsv2.errors import UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import TimeType, WindowStrategy, reduce, window
from dsv2.sinks import CollectSink
from dsv2.watermark.event_time import LONG_MAX
from tests.durations import ms
from tests.support import local_environment
from tests.windows import Event, Told, ToldOfTwo, WindowDriver, key_of


def over(strategy: WindowStrategy, of_records: bool = False, **options: Any) -> WindowDriver:
    return WindowDriver(window(strategy, Told(of_records)), **options)


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

    def test_window_fires_at_its_last_millisecond(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10))).record("a1", 0).event_time(8)
        assert driver.out() == []
        assert driver.event_time(9).out() == [fired("a", 0, 10, "a1"), cleared("a", 0, 10)]

    def test_time_before_the_epoch(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10))).record("a1", -1).record("a2", -10).record("a3", -11).end()
        assert driver.out()[::2] == [fired("a", -20, -10, "a3"), fired("a", -10, 0, "a1", "a2")]

    @pytest.mark.parametrize(
        ("offset", "window_of_14"), [(0, (10, 20)), (3, (13, 23)), (5, (5, 15)), (15, (5, 15)), (-5, (5, 15))]
    )
    def test_offset_shifts_the_windows(self, offset: int, window_of_14: tuple[int, int]) -> None:
        # Flink's DataStream V2 has no offset.
        driver = over(WindowStrategy.tumbling(ms(10), offset=ms(offset))).record("a1", 14).end()
        assert driver.out() == [fired("a", *window_of_14, "a1"), cleared("a", *window_of_14)]

    def test_durations_are_timedeltas(self) -> None:
        strategy = WindowStrategy.tumbling(
            timedelta(seconds=1), TimeType.EVENT, timedelta(milliseconds=5), offset=timedelta(milliseconds=-1)
        )
        assert strategy == WindowStrategy.tumbling(ms(1000), TimeType.EVENT, ms(5), offset=ms(999))

    def test_late_record_reaches_on_late_record(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10))).event_time(9).record("a1", 9).record("a2", 10)
        assert driver.out() == [late("a1")]
        assert driver.end().out()[1:] == [fired("a", 10, 20, "a2"), cleared("a", 10, 20)]

    def test_results_have_the_window_end_as_timestamp(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10), allowed_lateness=ms(5)), of_records=True)
        driver.record("a1", 3).event_time(9).record("a2", 4).event_time(14).record("a3", 2)
        assert driver.stamped() == [
            (("record", "a", 0, 10, "a1"), 3),
            (fired("a", 0, 10, "a1"), 9),
            (("record", "a", 0, 10, "a2"), 4),
            (fired("a", 0, 10, "a1", "a2"), 9),
            (cleared("a", 0, 10), 9),
            (late("a3"), 2),
        ]


class TestAllowedLateness:
    def test_each_late_record_fires_until_the_window_is_removed(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10), allowed_lateness=ms(5))).record("a1", 3).event_time(9)
        driver.record("a2", 4).record("b1", 5).event_time(13).record("a3", 6)
        assert driver.out() == [
            fired("a", 0, 10, "a1"),
            fired("a", 0, 10, "a1", "a2"),
            fired("b", 0, 10, "b1"),
            fired("a", 0, 10, "a1", "a2", "a3"),
        ]
        driver.event_time(14).record("a4", 7)
        assert driver.out()[4:] == [cleared("a", 0, 10), cleared("b", 0, 10), late("a4")]

    def test_windows_fire_and_are_removed_in_time_order(self) -> None:
        driver = (
            over(WindowStrategy.tumbling(ms(10), allowed_lateness=ms(15)))
            .record("a1", 0)
            .record("a2", 10)
            .record("a3", 29)
        )
        driver.event_time(100)
        assert driver.out() == [
            fired("a", 0, 10, "a1"),
            fired("a", 10, 20, "a2"),
            cleared("a", 0, 10),  # at 24
            fired("a", 20, 30, "a3"),
            cleared("a", 10, 20),  # at 34
            cleared("a", 20, 30),
        ]

    def test_firing_comes_before_removal_at_the_same_time(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10), allowed_lateness=ms(10))).record("a1", 0).record("a2", 10)
        assert driver.event_time(19).out() == [
            fired("a", 0, 10, "a1"),
            fired("a", 10, 20, "a2"),
            cleared("a", 0, 10),
        ]

    def test_processing_time_has_no_lateness(self) -> None:
        strategy = WindowStrategy.tumbling(ms(10), TimeType.PROCESSING, ms(50))
        assert strategy == WindowStrategy.tumbling(ms(10), TimeType.PROCESSING)


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

    def test_record_is_late_only_if_all_its_windows_are(self) -> None:
        driver = (
            over(WindowStrategy.sliding(ms(10), ms(5))).event_time(9).record("a1", 7).event_time(14).record("a2", 7)
        )
        assert driver.out() == [fired("a", 5, 15, "a1"), cleared("a", 5, 15), late("a2")]

    def test_record_between_windows_is_in_none(self) -> None:
        driver = over(WindowStrategy.sliding(ms(5), ms(8))).record("a1", 4).record("a2", 5).record("a3", 8)
        driver.event_time(6).record("a4", 7).record("a5", 6)
        # It is late if its time has passed. Otherwise it is dropped silently.
        assert driver.out() == [fired("a", 0, 5, "a1"), cleared("a", 0, 5), late("a5")]

    def test_offset_shifts_the_windows(self) -> None:
        driver = over(WindowStrategy.sliding(ms(10), ms(5), offset=ms(1))).record("a1", 5).record("a2", 6).end()
        assert driver.out()[::2] == [
            fired("a", -4, 6, "a1"),
            fired("a", 1, 11, "a1", "a2"),
            fired("a", 6, 16, "a2"),
        ]


class TestSessions:
    def test_session_ends_with_the_gap(self) -> None:
        driver = over(WindowStrategy.session(ms(10))).record("a1", 1).record("a2", 8).record("b1", 8).record("a3", 30)
        driver.event_time(17)
        assert driver.out() == [
            fired("a", 1, 18, "a1", "a2"),
            cleared("a", 1, 18),
            fired("b", 8, 18, "b1"),
            cleared("b", 8, 18),
        ]
        assert driver.end().out()[4:] == [fired("a", 30, 40, "a3"), cleared("a", 30, 40)]

    def test_adjacent_sessions_are_merged(self) -> None:
        driver = over(WindowStrategy.session(ms(10))).record("a1", 0).record("a2", 10).record("a3", 21).end()
        assert driver.out()[::2] == [fired("a", 0, 20, "a1", "a2"), fired("a", 21, 31, "a3")]

    def test_record_between_sessions_merges_them(self) -> None:
        driver = over(WindowStrategy.session(ms(10))).record("a1", 20).record("a2", 0).record("a3", 40)
        driver.record("a4", 10).record("a5", 30)
        assert driver.event_time(48).out() == []  # timers of the merged sessions are gone
        assert driver.event_time(49).out() == [
            # The records of earlier sessions come first.
            fired("a", 0, 50, "a2", "a1", "a4", "a3", "a5"),
            cleared("a", 0, 50),
        ]

    def test_on_record_sees_the_session_of_its_record(self) -> None:
        # As in Flink: windows are merged after on_record.
        driver = over(WindowStrategy.session(ms(10)), of_records=True).record("a1", 1).record("a2", 5).end()
        assert driver.out() == [
            ("record", "a", 1, 11, "a1"),
            ("record", "a", 5, 15, "a2"),
            fired("a", 1, 15, "a1", "a2"),
            cleared("a", 1, 15),
        ]

    def test_record_that_touches_a_live_session_is_not_late(self) -> None:
        driver = over(WindowStrategy.session(ms(10))).record("a1", 10).event_time(15)
        driver.record("a2", 0).record("a3", 5).record("b1", 5)
        # [0, 10) touches a live session, although it is old. The session of "b1" is over.
        assert driver.out() == [late("b1")]
        assert driver.end().out()[1:] == [fired("a", 0, 20, "a1", "a2", "a3"), cleared("a", 0, 20)]

    def test_record_without_timestamp_is_refused(self) -> None:
        # Flink creates a meaningless session.
        with pytest.raises(
            UserFunctionError, match="ContractError: Windows in event time require records with timestamps"
        ):
            over(WindowStrategy.session(ms(10))).record("a1")


class TestGlobal:
    def test_it_fires_once_at_the_end_and_is_cleared(self) -> None:
        # Flink never calls on_clear here, although its documentation says so.
        driver = over(WindowStrategy.global_()).record("a1", 5).record("b1").record("a2").event_time(10**6)
        assert driver.out() == []
        assert driver.end().stamped() == [
            (fired("a", -1, -1, "a1", "a2"), LONG_MAX),  # in Flink they have the maximum timestamp
            (cleared("a", -1, -1), LONG_MAX),
            (fired("b", -1, -1, "b1"), LONG_MAX),
            (cleared("b", -1, -1), LONG_MAX),
        ]

    def test_no_record_is_late(self) -> None:
        driver = over(WindowStrategy.global_()).event_time(10**6).record("a1", 5).end()
        assert driver.out() == [fired("a", -1, -1, "a1"), cleared("a", -1, -1)]

    def test_result_can_be_counted_in_event_time(self) -> None:
        """It has the greatest timestamp, as in Flink, and the last window ends before the input does."""
        env, sink = local_environment(), CollectSink[str]()
        generator = EventTimeExtension.new_watermark_generator_builder(length).per_event_watermark()
        numbers = env.from_collection(["a1", "a2", "b1"]).process(generator.build_as_process_function())
        greatest = numbers.key_by(key_of).process(reduce(WindowStrategy.global_(), max)).key_by(length)
        for strategy in (WindowStrategy.tumbling(ms(7)), WindowStrategy.session(ms(7))):
            greatest.process(reduce(strategy, lambda one, other: one + other)).to_sink(sink)
        env.execute("greatest")
        assert sorted(sorted(one) for one in sink.results) == [sorted("a2b1")] * 2


def length(text: str) -> int:
    return len(text)


class TestEndOfTime:
    @pytest.mark.parametrize("lateness", [0, 2000])
    def test_last_windows_end_with_event_time(self, lateness: int) -> None:
        strategy = WindowStrategy.tumbling(ms(1000), allowed_lateness=ms(lateness))
        driver = WindowDriver(reduce(strategy, max)).record("a1", LONG_MAX - 1750).event_time(LONG_MAX - 700)
        assert driver.out() == ["a1"]
        driver.record("a2", LONG_MAX - 1750).record("a3", LONG_MAX).record("a4", LONG_MAX - 1)
        assert driver.end().stamped()[-1] == ("a4", LONG_MAX - 1)
        assert driver.out() == ["a1", *["a2"] * bool(lateness), "a4"]

    def test_last_session(self) -> None:
        driver = WindowDriver(reduce(WindowStrategy.session(ms(10)), max))
        driver.record("a1", LONG_MAX - 5).record("a2", LONG_MAX).end()
        assert driver.stamped() == [("a2", LONG_MAX - 1)]


class TestCount:
    """Flink's DataStream V2 has no count windows."""

    def test_window_fires_with_its_last_record(self) -> None:
        driver = over(WindowStrategy.count(2)).record("a1", 7).record("b1").record("a2", 3).record("a3")
        assert driver.stamped() == [(fired("a", -1, -1, "a1", "a2"), 3), (cleared("a", -1, -1), 3)]
        driver.record("a4")
        assert driver.out()[2:] == [fired("a", -1, -1, "a3", "a4"), cleared("a", -1, -1)]

    def test_incomplete_window_fires_at_the_end(self) -> None:
        driver = over(WindowStrategy.count(3)).record("a1", 7).record("b1").record("a2", 8).end()
        assert driver.stamped() == [
            (fired("a", -1, -1, "a1", "a2"), LONG_MAX),
            (cleared("a", -1, -1), LONG_MAX),
            (fired("b", -1, -1, "b1"), LONG_MAX),
            (cleared("b", -1, -1), LONG_MAX),
        ]

    def test_overlapping_windows(self) -> None:
        driver = over(WindowStrategy.count(3, 2))
        for number in range(1, 7):
            driver.record(f"a{number}")
        assert driver.out()[::2] == [fired("a", -1, -1, "a1", "a2", "a3"), fired("a", -1, -1, "a3", "a4", "a5")]
        assert driver.end().out()[4::2] == [fired("a", -1, -1, "a5", "a6")]

    def test_windows_with_gaps(self) -> None:
        driver = over(WindowStrategy.count(1, 3))
        for number in range(1, 6):
            driver.record(f"a{number}").restart()
        assert driver.out()[::2] == [fired("a", -1, -1, "a1"), fired("a", -1, -1, "a4")]
        assert len(driver.end().out()) == 4

    def test_complete_window_leaves_no_state(self) -> None:
        driver = over(WindowStrategy.count(2)).record("x1").record("x2")
        before = len(driver.state())
        for number in range(1000):
            driver.record(f"{chr(number + 200)}1").record(f"{chr(number + 200)}2")
        assert len(driver.state()) < before + 20  # counters have more digits


class TestProcessingTime:
    def test_windows_follow_the_clock(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10), TimeType.PROCESSING)).clock(3).record("a1", 10**6).record("a2")
        driver.clock(8).record("a3").event_time(10**6)
        assert driver.out() == []
        driver.clock(12)
        assert driver.stamped() == [(fired("a", 0, 10, "a1", "a2", "a3"), 9), (cleared("a", 0, 10), 9)]
        driver.record("a4").restart().clock(30)
        assert driver.out()[2:] == [fired("a", 10, 20, "a4"), cleared("a", 10, 20)]

    def test_sliding(self) -> None:
        driver = (
            over(WindowStrategy.sliding(ms(10), ms(5), TimeType.PROCESSING))
            .clock(7)
            .record("a1")
            .clock(12)
            .record("a2")
        )
        driver.clock(100)
        assert driver.out()[::2] == [
            fired("a", 0, 10, "a1"),
            fired("a", 5, 15, "a1", "a2"),
            fired("a", 10, 20, "a2"),
        ]

    def test_sessions(self) -> None:
        driver = over(WindowStrategy.session(ms(10), TimeType.PROCESSING)).clock(7).record("a1").clock(12).record("a2")
        assert driver.clock(20).out() == []
        assert driver.clock(21).out() == [fired("a", 7, 22, "a1", "a2"), cleared("a", 7, 22)]

    @pytest.mark.parametrize(
        ("strategy", "start"),
        [
            (WindowStrategy.tumbling(ms(10), TimeType.PROCESSING), 0),
            (WindowStrategy.session(ms(7), TimeType.PROCESSING), 3),
        ],
    )
    def test_open_windows_fire_at_the_end_of_input(self, strategy: WindowStrategy, start: int) -> None:
        # Flink drops them.
        driver = over(strategy).clock(3).record("a1").end()
        assert driver.stamped() == [(fired("a", start, 10, "a1"), 9), (cleared("a", start, 10), 9)]


class TestTwoInputs:
    def test_records_of_both_inputs_are_separate(self) -> None:
        driver = WindowDriver(window(WindowStrategy.tumbling(ms(10)), ToldOfTwo()))
        driver.record("a1", 1, 0).record("a2", 2, 1).record("a3", 3, 0).record("b1", 12, 1)
        driver.event_time(30, 0)
        assert driver.out() == []  # event time is the minimum of both inputs
        assert driver.event_time(25, 1).out() == [
            ("trigger", "a", 0, 10, ("a1", "a3"), ("a2",)),
            cleared("a", 0, 10),
            ("trigger", "b", 10, 20, (), ("b1",)),  # in Flink the empty side is null
            cleared("b", 10, 20),
        ]

    def test_late_record_fires_with_the_other_side_of_its_window(self) -> None:
        driver = WindowDriver(window(WindowStrategy.tumbling(ms(10), allowed_lateness=ms(50)), ToldOfTwo()))
        driver.record("a1", 1, 1).record("a2", 12, 1).event_time(15, 0).event_time(15, 1)
        driver.record("a3", 2, 0)
        # Flink takes the other side from the last accessed window, and fires [0, 10) with "a2".
        assert driver.out() == [
            ("trigger", "a", 0, 10, (), ("a1",)),
            ("trigger", "a", 0, 10, ("a3",), ("a1",)),
        ]

    def test_late_records_of_either_input(self) -> None:
        driver = WindowDriver(window(WindowStrategy.tumbling(ms(10)), ToldOfTwo())).event_time(9, 0).event_time(9, 1)
        driver.record("a1", 1, 0).record("a2", 2, 1)
        assert driver.out() == [("late1", "a", "a1"), ("late2", "a", "a2")]

    def test_ended_input_is_not_waited_for(self) -> None:
        driver = WindowDriver(window(WindowStrategy.tumbling(ms(10)), ToldOfTwo())).record("a1", 1, 0).end(1)
        assert driver.event_time(9, 0).out() == [("trigger", "a", 0, 10, ("a1",), ()), cleared("a", 0, 10)]

    @pytest.mark.parametrize(
        ("strategy", "span"), [(WindowStrategy.session(ms(10)), (1, 17)), (WindowStrategy.global_(), (-1, -1))]
    )
    def test_other_windows(self, strategy: WindowStrategy, span: tuple[int, int]) -> None:
        driver = WindowDriver(window(strategy, ToldOfTwo())).record("a1", 7, 0).record("a2", 1, 1).record("a3", 3, 0)
        driver.end(0)
        assert driver.out() == []
        assert driver.end(1).out() == [("trigger", "a", *span, ("a1", "a3"), ("a2",)), cleared("a", *span)]

    def test_count_windows_count_records_of_both_inputs(self) -> None:
        driver = WindowDriver(window(WindowStrategy.count(2), ToldOfTwo())).record("a1", 1, 1).record("a2", 2, 0)
        assert driver.out() == [("trigger", "a", -1, -1, ("a2",), ("a1",)), cleared("a", -1, -1)]


class TestChannels:
    def test_event_time_is_the_minimum_of_the_channels(self) -> None:
        driver = over(WindowStrategy.tumbling(ms(10)), channels=3).record("a1", 5, 0).event_time(50, 0).event_time(8, 1)
        driver.event_time(60, 2).record("a2", 9, 1)
        assert driver.out() == []
        assert driver.event_time(9, 1).out() == [fired("a", 0, 10, "a1", "a2"), cleared("a", 0, 10)]
        assert driver.record("a3", 9, 0).out()[2:] == [late("a3")]


class TestFrames:
    """Batches of records take a shorter path."""

    def test_each_record_goes_to_its_own_window(self) -> None:
        records = ["a1", "a2", "b1", "a3", "a4", "b2"]
        driver = WindowDriver(reduce(WindowStrategy.tumbling(ms(10)), lambda first, second: first + second[1]))
        driver.records(records, [1, 2, 12, 13, 3, 14]).event_time(9).records(records, [13, 1, 9, 10, 23, 19])
        assert driver.end().out() == ["a124", "b122", "a313", "a4"]

    def test_failing_record_is_named(self) -> None:
        def add(first: str, second: str) -> str:
            if second == "a4":
                raise ValueError(second)
            return first

        driver = WindowDriver(reduce(WindowStrategy.tumbling(ms(10)), add))
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
            ([[]], 5, "key selector", "TypeError: .*unhashable"),
        ],
    )
    def test_record_without_a_window_is_named(
        self, record: Any, timestamp: int | None, callback: str, message: str
    ) -> None:
        driver = WindowDriver(reduce(WindowStrategy.tumbling(ms(10)), max))
        with pytest.raises(UserFunctionError, match=message) as caught:
            driver.records(["a1", "a2", record, "a3"], [1, 2, timestamp, 3])
        assert (caught.value.callback, caught.value.record) == (callback, repr(record))


class TestRestart:
    @pytest.mark.parametrize(
        "strategy",
        [
            WindowStrategy.tumbling(ms(10), allowed_lateness=ms(7)),
            WindowStrategy.sliding(ms(10), ms(3)),
            WindowStrategy.session(ms(4)),
            WindowStrategy.global_(),
            WindowStrategy.count(2),
            WindowStrategy.tumbling(ms(20)).with_early_firing(ms(5), TimeType.EVENT),
        ],
        ids=lambda strategy: strategy.layout,
    )
    def test_windows_are_in_the_checkpoint(self, strategy: WindowStrategy) -> None:
        records = [("a1", 3), ("b1", 7), ("a2", 1), ("a3", 15), ("b2", 12), ("a4", 14), ("a5", 2), ("b3", 40)]
        drivers = over(strategy), over(strategy)
        for record, timestamp in records:
            for driver in drivers:
                driver.record(record, timestamp).event_time(timestamp - 3)
            drivers[1].restart()
        # The order between keys is not defined.
        outputs = [sorted(driver.end().out(), key=itemgetter(1)) for driver in drivers]
        assert outputs[0] == outputs[1]
        assert any(event[0] == "trigger" for event in drivers[0].out())
