"""Window functions: states, aggregation, late output, early firing, and lifecycle callbacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

import pytest

from dsv2 import OutputTag
from dsv2.errors import (
    ConfigurationError,
    IllegalRedistributionModeError,
    PlanError,
    SerializationError,
    StateDeclarationError,
    UserFunctionError,
)
from dsv2.extension.window import (
    CountEvictor,
    CountTrigger,
    OneInputWindowStreamProcessFunction,
    TimeType,
    TwoOutputWindowStreamProcessFunction,
    WindowStrategy,
)
from dsv2.extension.window.process_functions import reduced, windowed
from dsv2.functions import no_output_until_end_of_input
from dsv2.sinks import CollectSink
from dsv2.state import (
    RedistributionMode,
    StateDeclaration,
    StateDeclarations,
    StateTtl,
    ValueStateDeclaration,
    aggregate_of,
)
from dsv2.testing import OneInputHarness, TwoInputNonBroadcastHarness, TwoOutputHarness
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from tests.durations import ms
from tests.support import local_environment, one_input, our_files, watermark
from tests.windows import (
    CountLetters,
    FlinkGenerator,
    Tally,
    TwoInputWindowRecorder,
    TwoOutputWindowRecorder,
    WindowDriver,
    WindowRecorder,
    key_of,
)

TEN = WindowStrategy.tumbling(ms(10))
LATE = OutputTag("late", str)


SUM = StateDeclarations.value_state("sum", int, 0)
SEEN = StateDeclarations.list_state("seen", str)
COUNTS = StateDeclarations.map_state("counts", str, int)
LONGEST = StateDeclarations.reducing_state("longest", str, lambda a, b: max(a, b, key=len))
LETTERS = StateDeclarations.aggregating_state("letters", Tally, CountLetters())
OF_KEY = StateDeclarations.value_state("sum", int, 0)


class Summing(OneInputWindowStreamProcessFunction[str, Any]):
    """Keeps no records, but states of each window, and a state of the key with the same name as one of them."""

    def __init__(self, *others: StateDeclaration) -> None:
        self.states = (SUM, SEEN, COUNTS, LONGEST, LETTERS, *others)

    def uses_states(self) -> Collection[StateDeclaration]:
        return (OF_KEY,)

    def use_window_states(self) -> Collection[StateDeclaration]:
        return self.states

    def on_record(self, record: str, output: Any, ctx: Any, window: Any) -> None:
        for total in (window.get_window_state(SUM), ctx.state_manager.get_state(OF_KEY)):
            total.update(total.value() + int(record[1:]))
        window.get_window_state(SEEN).add(record)
        window.get_window_state(COUNTS).put(record, window.start_time)
        window.get_window_state(LONGEST).add(record)
        window.get_window_state(LETTERS).add(record)

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        states = (SUM, SEEN, COUNTS, LONGEST, LETTERS)
        total, seen, counts, longest, letters = (window.get_window_state(state) for state in states)
        assert window.get_all_records() == []
        output.collect((total.value(), seen.get(), counts.items(), longest.get(), letters.get()))

    def on_clear(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect((window.get_window_state(SUM).value(), ctx.state_manager.get_state(OF_KEY).value()))


class TestWindowStates:
    def test_each_window_has_its_own_states(self) -> None:
        driver = WindowDriver(windowed(WindowStrategy.sliding(ms(20), ms(10)), Summing())).record("a5", 12).restart()
        driver.record("a37", 21).event_time(19)
        assert driver.out() == [(5, ["a5"], [("a5", 0)], "a5", "1: 5"), (5, 84)]
        both = ["a5", "a37"]
        assert driver.restart().end().out()[2:] == [
            (42, both, [(record, 10) for record in both], "a37", "2: 53"),
            # They exist in on_clear, and are removed afterwards. In Flink they stay forever unless on_clear clears
            # them.
            (42, 84),
            (37, ["a37"], [("a37", 20)], "a37", "1: 3"),
            (37, 84),
        ]

    def test_removed_windows_leave_no_state(self) -> None:
        class Count(Summing):
            def on_record(self, record: str, output: Any, ctx: Any, window: Any) -> None:
                window.get_window_state(SUM).update(1)

        driver = WindowDriver(windowed(TEN, Count()))
        before = len(driver.state())
        for number in range(500):
            driver.record(chr(number + 200), number)
        assert len(driver.state()) > before + 5000
        assert len(driver.event_time(1000).state()) < before + 120  # event time and counters have more digits

    def test_undeclared_window_state_is_refused(self) -> None:
        # Flink warns and finds nothing.
        class Other(WindowRecorder):
            def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
                window.get_window_state(SUM)

        driver = WindowDriver(windowed(TEN, Other())).record("a1", 3)
        with pytest.raises(UserFunctionError, match=r"UndeclaredStateError: Value.* 'sum' is not declared") as caught:
            driver.end()
        assert caught.value.callback == "on_trigger"

    def test_late_record_has_no_window(self) -> None:
        class Keeping(Summing):
            handle: Any = None

            def on_record(self, record: str, output: Any, ctx: Any, window: Any) -> None:
                type(self).handle = window.get_window_state(SUM)

            def on_late_record(self, record: str, output: Any, ctx: Any) -> None:
                self.handle.update(1)

        driver = WindowDriver(windowed(TEN, Keeping())).record("a1", 3).event_time(9)
        with pytest.raises(UserFunctionError, match="There is no current window") as caught:
            driver.record("a2", 3)
        assert caught.value.callback == "on_late_record"

    @pytest.mark.parametrize(
        ("state", "error", "message"),
        [
            (
                StateDeclarations.list_state_builder("x", int)
                .redistribute_with_mode(RedistributionMode.REDISTRIBUTABLE)
                .build(),
                IllegalRedistributionModeError,
                "List.* 'x' cannot be a window state: .* its mode is REDISTRIBUTABLE",
            ),
            (
                ValueStateDeclaration("x", int, ttl=StateTtl(ms(5))),
                StateDeclarationError,
                "'x' cannot be a window state: window states are removed with",
            ),
            (StateDeclarations.value_state("sum", str), StateDeclarationError, "Window state 'sum' has two different"),
            (SUM.name, StateDeclarationError, "use_window_states returned 'sum', which is not a state declaration"),
        ],
    )
    def test_unsupported_window_states_are_refused_by_the_plan(
        self, state: Any, error: type[Exception], message: str
    ) -> None:
        # Flink fails when the state is accessed.
        with pytest.raises(error, match=message):
            WindowDriver(windowed(TEN, Summing(state)))

    def test_no_collection_of_window_states_is_refused(self) -> None:
        class Nothing(WindowRecorder):
            def use_window_states(self) -> Any:
                return None

        with pytest.raises(StateDeclarationError, match="use_window_states returned None, not a collection of decl"):
            WindowDriver(windowed(TEN, Nothing()))

    def test_sessions_have_no_states(self) -> None:
        with pytest.raises(StateDeclarationError, match="cannot be a state of sessions, because sessions merge"):
            WindowDriver(windowed(WindowStrategy.session(ms(10)), Summing()))


class TestEarlyFiring:
    """Flink's DataStream V2 has no early firing."""

    def test_processing_time_windows_cannot_fire_in_event_time(self) -> None:
        with pytest.raises(ConfigurationError, match="Windows in processing time cannot fire early in event time"):
            WindowStrategy.tumbling(ms(10), TimeType.PROCESSING).with_early_firing(ms(5), TimeType.EVENT)


SIGNAL = new_builder("signal").type_long().build()


class Hooked(WindowRecorder):
    """Uses every callback and service that is not specific to windows."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.is_even: Callable[[int], bool] = lambda number: number % 2 == 0  # cannot be checkpointed, and need not be

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return (SIGNAL,)

    def open(self, ctx: Any) -> None:
        self.notes.append("open")

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        # Flink's wrapper does not forward declare_watermarks, so this fails in Flink.
        ctx.non_partitioned_context.watermark_manager.emit_watermark(SIGNAL.new_watermark(window.end_time))

    def on_clear(self, output: Any, ctx: Any, window: Any) -> None: ...

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(watermark.value)
        return WatermarkHandlingResult.POLL

    def end_input(self, ctx: Any) -> None:
        self.notes.append("end" if self.is_even(2) else "odd")
        ctx.apply_to_all_partitions(lambda output, partition: output.collect("a key is left"))

    def close(self) -> None:
        # Flink does not forward close either.
        CLOSED.append(self.notes)


CLOSED: list[list[str]] = []


class TestHooks:
    @pytest.mark.parametrize("late_apart", [False, True])
    def test_lifecycle_callbacks_are_forwarded(self, late_apart: bool) -> None:
        class OneOutput(Hooked):
            on_late_record = OneInputWindowStreamProcessFunction.on_late_record

        CLOSED.clear()
        tags = [LATE] if late_apart else []
        driver = WindowDriver(windowed(TEN, OneOutput(), tags)).record("a1", 3).restart()
        driver._driver.send(watermark(7, "signal"))
        driver.event_time(9)
        signals = [f.controls for f in driver._driver.frames if ("signal", 10) in [c[2:] for c in f.controls]]
        assert len(signals) == 1 + late_apart
        assert driver.end().out() == [7]
        assert CLOSED == [["open", "end"]]

    def test_callbacks_of_two_inputs_are_forwarded(self) -> None:
        calls: list[Any] = []

        class Recorder(TwoInputWindowRecorder):
            def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
                return (SIGNAL,)

            def open(self, ctx: Any) -> None:
                calls.append("open")

            def on_watermark_from_first_input(self, watermark: Watermark, *args: Any) -> WatermarkHandlingResult:
                calls.append(("first", watermark.value))
                return WatermarkHandlingResult.POLL

            def on_watermark_from_second_input(self, watermark: Watermark, *args: Any) -> WatermarkHandlingResult:
                calls.append(("second", watermark.value))
                return WatermarkHandlingResult.PEEK

            def end_first_input(self, ctx: Any) -> None:
                calls.append("end of first")

            def end_second_input(self, ctx: Any) -> None:
                calls.append("end of second")

            def close(self) -> None:
                calls.append("close")

        function = windowed(TEN, Recorder())
        harness = TwoInputNonBroadcastHarness[str, str, Any](function, first_key=key_of, second_key=key_of)
        for number, one in enumerate((harness.first_input, harness.second_input)):
            one.push_watermark(SIGNAL.new_watermark(number))
        harness.end()
        assert calls == ["open", ("first", 0), ("second", 1), "end of first", "end of second", "close"]
        assert harness.output.watermarks == [SIGNAL.new_watermark(1)]

    def test_callbacks_with_two_outputs_reach_both(self) -> None:
        calls: list[Any] = []

        class Recorder(TwoOutputWindowStreamProcessFunction[str, Any, Any]):
            def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
                return (SIGNAL,)

            def open(self, ctx: Any) -> None:
                ctx.watermark_manager.emit_watermark(SIGNAL.new_watermark(5))

            def on_trigger(self, *args: Any) -> None: ...

            def on_watermark(
                self, watermark: Watermark, first_output: Any, second_output: Any, ctx: Any
            ) -> WatermarkHandlingResult:
                first_output.collect("first")
                second_output.collect("second")
                return WatermarkHandlingResult.POLL

            def end_input(self, ctx: Any) -> None:
                calls.append("end")

            def close(self) -> None:
                calls.append("close")

        harness = TwoOutputHarness[str, Any, Any](windowed(TEN, Recorder()), key=key_of)
        harness.input.push_watermark(SIGNAL.new_watermark(1))
        harness.end()
        assert calls == ["end", "close"]
        for name, output in (("first", harness.first_output), ("second", harness.second_output)):
            assert (output.watermarks, output.records) == ([SIGNAL.new_watermark(5)], [name])

    def test_overridden_on_record_may_call_the_default(self) -> None:
        class Once(WindowRecorder):
            def on_record(self, *args: Any) -> None:
                if args[0] != "a1":
                    super().on_record(*args)

        class OnceOfTwo(TwoInputWindowRecorder):
            def on_record1(self, *args: Any) -> None:
                super().on_record1(*args)

            def on_record2(self, *args: Any) -> None:
                super().on_record2(*args)

        class OnceTwice(TwoOutputWindowRecorder):
            def on_record(self, *args: Any) -> None:
                super().on_record(*args)

        driver = WindowDriver(windowed(TEN, Once())).record("a1", 3).record("a2", 3).event_time(9)
        assert driver.out()[0] == ("trigger", "a", 0, 10, ("a2",))
        driver = both(WindowDriver(windowed(TEN, OnceOfTwo()))).event_time(9, 0).event_time(9, 1)
        assert driver.out()[0] == ("trigger", "a", 0, 10, ("a1",), ("a2",))
        driver = WindowDriver(windowed(TEN, OnceTwice())).record("a1", 3).event_time(9)
        assert driver.out()[0] == ("trigger", "a", 0, 10, ("a1",))

    def test_watermarks_pass_by_default(self) -> None:
        one = OneInputHarness[str, Any](windowed(TEN, WindowRecorder()), key=key_of, declarations=[SIGNAL])
        two = TwoInputNonBroadcastHarness[str, str, Any](
            windowed(TEN, TwoInputWindowRecorder()), first_key=key_of, second_key=key_of, declarations=[SIGNAL]
        )
        twice = TwoOutputHarness[str, Any, Any](
            windowed(TEN, TwoOutputWindowRecorder()), key=key_of, declarations=[SIGNAL]
        )
        for number, side in enumerate((one.input, two.first_input, two.second_input, twice.input)):
            side.push_watermark(SIGNAL.new_watermark(number))
        assert one.output.watermarks == [SIGNAL.new_watermark(0)]
        assert two.output.watermarks == [SIGNAL.new_watermark(1), SIGNAL.new_watermark(2)]
        assert twice.second_output.watermarks == [SIGNAL.new_watermark(3)]

    def test_timers_are_refused(self) -> None:
        class Timing(WindowRecorder):
            def on_record(self, record: Any, output: Any, ctx: Any, window: Any) -> None:
                assert ctx.processing_time_manager.current_time() == 5
                ctx.processing_time_manager.register_timer(10)

        with pytest.raises(UserFunctionError, match="Window functions cannot register timers") as caught:
            WindowDriver(windowed(TEN, Timing())).clock(5).record("a1", 3)
        assert caught.value.callback == "on_record"

    def test_no_output_until_end_is_enforced_in_windows(self) -> None:
        @no_output_until_end_of_input
        class Silent(WindowRecorder):
            pass

        driver = WindowDriver(windowed(TEN, Silent())).record("a1", 3)
        with pytest.raises(UserFunctionError, match="no_output_until_end_of_input"):
            driver.event_time(9)
        assert WindowDriver(windowed(WindowStrategy.global_(), Silent())).record("a1", 3).end().out()

    @pytest.mark.parametrize("callback", ["on_record", "on_trigger", "on_clear", "on_late_record"])
    def test_failing_callback_is_named(self, callback: str) -> None:
        def fail(*args: Any) -> None:
            raise ValueError(callback)

        driver = WindowDriver(windowed(TEN, type("Failing", (WindowRecorder,), {callback: fail})()))
        with pytest.raises(UserFunctionError) as caught:
            driver.record("a1", 3).event_time(9).record("a2", 4)
        error = caught.value
        assert (error.callback, error.cause_type, error.key) == (callback, "ValueError", "'a'")
        assert not our_files(error.traceback_text)

    @pytest.mark.parametrize("strategy", [TEN, WindowStrategy.count(3)], ids=lambda strategy: strategy.layout)
    def test_unserializable_record_is_named_with_its_key(self, strategy: WindowStrategy) -> None:
        driver = WindowDriver(windowed(strategy, WindowRecorder()), key=lambda record: record[0]).record(("a", 1), 3)
        with pytest.raises(SerializationError) as refused:
            driver.record(("b", sys.stdout), 3).restart()
        assert ", subtask 0, key 'b': " in str(refused.value)
        assert "cannot be checkpointed" in str(refused.value)

    @pytest.mark.parametrize("callback", ["on_record1", "on_record2", "on_late_record1", "on_late_record2"])
    def test_failing_callback_of_two_inputs_is_named(self, callback: str) -> None:
        def fail(*args: Any) -> None:
            raise ValueError(callback)

        driver = WindowDriver(windowed(TEN, type("Failing", (TwoInputWindowRecorder,), {callback: fail})()))
        with pytest.raises(UserFunctionError) as caught:
            both(both(driver).event_time(9, 0).event_time(9, 1))
        assert caught.value.callback == callback


def both(driver: WindowDriver) -> WindowDriver:
    return driver.record("a1", 3, 0).record("a2", 3, 1)


def with_number(number: int, numbers: list[int]) -> list[int]:
    return [*numbers, number]


class TestPositions:
    def test_global_streams_support_all_windows(self) -> None:
        driver = WindowDriver(reduced(TEN, lambda first, second: first + second), key=None)
        driver.record("a1", 3).restart().record("b1", 4).record("a2", 14)
        assert driver.end().stamped() == [("a1b1", 9), ("a2", 19)]

    @pytest.mark.parametrize("strategy", [TEN, WindowStrategy.session(ms(5)), WindowStrategy.count(5)])
    def test_non_keyed_streams_support_only_global_windows(self, strategy: Any) -> None:
        env = local_environment()
        env.from_collection(["a"]).window(strategy).process(WindowRecorder()).with_uid("w")
        with pytest.raises(
            PlanError, match=r"Process at .*test_window_functions.py:\d+: WindowRecorder runs in .* require a keyed"
        ):
            env.build_plan()

    def test_each_subtask_of_a_non_keyed_stream_has_a_window(self) -> None:
        env = local_environment(2)
        sink = CollectSink[list[int]]()
        numbers = aggregate_of(list[int], with_number, sorted)
        env.from_collection(range(6)).window(WindowStrategy.global_()).aggregate(numbers).to_sink(sink)
        env.execute("global")
        assert sorted(sink.results) == [[0, 2, 4], [1, 3, 5]]

    def test_kept_key_is_checked_in_windows(self) -> None:
        # Flink skips the check in windows, and with two inputs it emits nothing.
        env = local_environment()
        stream = env.from_collection(["a1", "b1"]).process(FlinkGenerator[str](len)).key_by(key_of)
        stream.window(TEN).reduce(max, new_key_selector=key_of).process(one_input())
        stream.window(TEN).reduce(max, new_key_selector=lambda record: "z").with_uid("bad").process(one_input())
        with pytest.raises(UserFunctionError, match="The output key must equal the input key") as caught:
            env.execute("keys")
        assert "bad" in caught.value.operator

    def test_unwrapped_window_function_is_refused(self) -> None:
        stream: Any = local_environment().from_collection(["a"]).key_by(key_of)
        with pytest.raises(PlanError, match=r"A window function requires windows: window\(strategy\)\.process"):
            stream.process(WindowRecorder())
        with pytest.raises(PlanError, match="takes a TwoInputNonBroadcastStreamProcessFunction"):
            stream.connect_and_process(stream, TwoInputWindowRecorder())


class TestRefusedArguments:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda w: w.tumbling(ms(0)), "size must be at least 1 ms, not 0 ms"),
            (lambda w: w.sliding(ms(0), ms(5)), "size must be at least 1 ms, not 0 ms"),
            (lambda w: w.sliding(ms(5), ms(-1)), "slide must be at least 1 ms, not -1 ms"),
            (lambda w: w.tumbling(ms(1.5)), "size must be a whole number of milliseconds, not 1.5 ms"),
            (lambda w: w.tumbling(60_000), "size must be a datetime.timedelta, such as .* not 60000"),
            (lambda w: w.tumbling(ms(5), "EVENT"), "time_type must be one of 'event', 'processing', .* not 'EVENT'"),
            (
                lambda w: w.tumbling(ms(5)).with_allowed_lateness(ms(-1)),
                "allowed_lateness must be 0 or more, not -1 ms",
            ),
            (lambda w: w.tumbling(ms(5), "processing").with_allowed_lateness(ms(1)), "in processing time have no late"),
            (lambda w: w.tumbling(ms(5), offset="1h"), "offset must be a datetime.timedelta, such as .* not '1h'"),
            (lambda w: w.session(ms(0)), "gap must be at least 1 ms"),
            (lambda w: w.session(lambda: 5), "gap must be a datetime.timedelta"),
            (
                lambda w: w.tumbling(ms(5), "processing").with_timestamps("latest"),
                "in processing time have the timestamp",
            ),
            (lambda w: w.assigned_by(len), "takes a WindowAssigner .an instance., not <built-in"),
            (lambda w: w.count(2).with_evictor(2), "takes a WindowEvictor .an instance., not 2"),
            (lambda w: w.of_records(ms(-1)), "difference must be 0 or more"),
            (lambda w: w.of_records(ms(1)).with_trigger(CountTrigger(1)), "records cannot have a trigger"),
            (lambda w: w.of_records(ms(1)).with_evictor(CountEvictor(1)), "records cannot have an evictor"),
            (lambda w: w.count(0), "The size of count windows must be a number of records, not 0"),
            (lambda w: w.count(5, 1.0), "The slide of count windows must be a number of records, not 1.0"),
            (lambda w: w.global_().with_early_firing(ms(0)), "interval must be at least 1 ms"),
        ],
    )
    def test_strategies(self, call: Any, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            call(WindowStrategy)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda s: s.window(10), "window at .* takes a WindowStrategy, such as .* not 10"),
            (lambda s: s.window(TEN).process(WindowRecorder), "takes a window function .an instance. .*not <class"),
            (lambda s: s.window(TEN).process(one_input()), "process at .* takes a window function"),
            (lambda s: s.window(TEN).process(TwoInputWindowRecorder()), "Use connect_and_process"),
            (lambda s: s.window(TEN).connect_and_process(s, WindowRecorder()), "takes a TwoInputNonBroadcast"),
            (
                lambda s: s.window(TEN).aggregate(CountLetters),
                "aggregate at .* takes an AggregateFunction .an instance",
            ),
            (lambda s: s.window(TEN).aggregate(CountLetters(), 7), "emit must be a callable .result, window, ctx. .*7"),
            (lambda s: s.window(TEN).reduce("sum"), "reduce at .* takes a callable .record, record. -> record, not 's"),
            (lambda s: s.window(TEN).with_trigger(1), "It is a property of the windows: window.strategy.with_trigger"),
            (
                lambda s: s.window(TEN).with_late_output(LATE).process(WindowRecorder()),
                "WindowRecorder defines on_late",
            ),
            (lambda s: s.window(TEN).with_late_output(LATE, LATE).reduce(max), "takes an OutputTag for each input"),
            (lambda s: s.window(TEN).with_late_output("late").reduce(max), "takes an OutputTag for each input"),
        ],
    )
    def test_functions(self, call: Any, message: str) -> None:
        with pytest.raises(PlanError, match=message):
            call(local_environment().from_collection(["a"]).key_by(key_of))
