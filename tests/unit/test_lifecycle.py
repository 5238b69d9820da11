"""The lifecycle of a function, and what each callback may do: open, records, end of input, close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv2 import RuntimeExecutionMode
from dsv2.errors import UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink
from dsv2.watermark import WatermarkHandlingResult, new_builder
from tests.support import (
    ENDED,
    STARTED,
    Driver,
    broadcast_side,
    driven,
    local_environment,
    one_input,
    two_inputs,
    two_output,
    unpacked,
    watermark,
)

W = new_builder("w").type_long().build()


def fails(*args: Any) -> None:
    raise ValueError("on purpose")


def logging(log: list[str], name: str, **callbacks: Callable[..., Any]) -> OneInputStreamProcessFunction[Any, Any]:
    """Forwards its input and logs each call of the other callbacks."""
    noted = {what: (lambda *args, what=what: log.append(f"{what} {name}")) for what in ("open", "end_input", "close")}
    return one_input(**{**noted, "process_record": lambda record, output, ctx: output.collect(record), **callbacks})


def chain_of_three(log: list[str], **callbacks: Callable[..., Any]) -> Driver:
    """f, g and h in one subtask, not yet opened. ``callbacks`` are for g."""
    env = local_environment()
    stream = env.from_collection([1]).process(logging(log, "f")).with_uid("f")
    stream = stream.process(logging(log, "g", **callbacks)).process(logging(log, "h"))
    stream.to_sink(CollectSink()).with_uid("out")
    return Driver(env.build_plan(), "f")


def test_open_runs_upstream_and_end_runs_downstream() -> None:
    log: list[str] = []
    driver = chain_of_three(log)
    driver.open()
    driver.send(1, ENDED)
    assert log[:3] == ["open h", "open g", "open f"]
    assert log[3:6] == ["end_input f", "end_input g", "end_input h"]
    assert log[6:] == ["close h", "close g", "close f"]
    assert driver.subtask.ended
    assert driver.sent_to("out") == [1, ENDED]


def test_open_sends_a_start_signal() -> None:
    driver = driven(lambda numbers: numbers.process(one_input()).with_uid("f"))
    driver.subtask.flush()
    assert [unpacked(frame.batch.records, frame.controls) for frame in driver.frames] == [[STARTED]]


@pytest.mark.parametrize("make", [one_input, two_output, two_inputs, broadcast_side])
def test_every_kind_of_function_is_opened_and_closed(make: Callable[..., Any]) -> None:
    """ProcessFunctionTest."""
    log: list[str] = []
    function = make(open=lambda ctx: log.append("open"), close=lambda: log.append("close"))
    env = local_environment()
    numbers = env.from_collection([1])
    if make in (one_input, two_output):
        numbers.process(function).with_uid("f")
    else:
        numbers.connect_and_process(numbers if make is two_inputs else numbers.broadcast(), function).with_uid("f")
    driver = Driver(env.build_plan(), "f").open()
    driver.send(1, ENDED, channel=0)
    if make in (two_inputs, broadcast_side):
        assert log == ["open"]
        driver.send(2, ENDED, channel=1)
    assert log == ["open", "close"]


def test_failure_closes_the_chain_once() -> None:
    log: list[str] = []
    driver = chain_of_three(log, process_record=fails).open()
    with pytest.raises(UserFunctionError, match="on purpose"):
        driver.send(1)
    assert log[3:] == ["close h", "close g", "close f"]


def test_failure_in_open_closes_what_was_opened() -> None:
    log: list[str] = []
    with pytest.raises(UserFunctionError, match="on purpose"):
        chain_of_three(log, open=fails).open()
    assert log == ["open h", "close h", "close g"]


def test_failure_in_close_does_not_stop_the_others() -> None:
    log: list[str] = []
    driver = chain_of_three(log, close=fails).open()
    with pytest.raises(UserFunctionError, match="callback: close"):
        driver.send(ENDED)
    assert log[-2:] == ["close h", "close f"]


def test_first_failure_is_raised_if_close_fails_too() -> None:
    def fails_first(*args: Any) -> None:
        raise KeyError("first")

    driver = chain_of_three([], process_record=fails_first, close=fails).open()
    with pytest.raises(UserFunctionError, match="KeyError: 'first'"):
        driver.send(1)


def test_keyboard_interrupt_passes_unchanged() -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    log: list[str] = []
    driver = chain_of_three(log, process_record=interrupted).open()
    with pytest.raises(KeyboardInterrupt):
        driver.send(1)
    assert log[3:] == ["close h", "close g", "close f"]


def test_restarted_subtask_is_not_opened_again() -> None:
    """Flink opens it again, with the initial values of its fields."""
    log: list[str] = []
    driver = chain_of_three(log).open()
    driver.restart()
    driver.send(1, ENDED)
    assert log.count("open f") == log.count("close f") == 1
    driver.restart()
    assert driver.subtask.ended
    assert log.count("close f") == 1


def emits(ctx: Any, record: Any) -> None:
    """Emit without a collector."""
    ctx.apply_to_all_partitions(lambda output, ctx: output.collect(record))
    ctx.watermark_manager.emit_watermark(W.new_watermark(len(record)))


def emits_by_record(record: Any, output: Any, ctx: Any) -> None:
    output.collect(record)
    ctx.non_partitioned_context.watermark_manager.emit_watermark(W.new_watermark(record))


def emits_on_watermark(signal: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
    output.collect(f"saw {signal.value}")
    emits(ctx, "on_watermark")
    return WatermarkHandlingResult.POLL


@pytest.mark.parametrize("chained", [False, True])
def test_every_callback_but_close_may_emit(chained: bool) -> None:
    function = one_input(
        declare_watermarks=lambda: [W],
        open=lambda ctx: emits(ctx, "open"),
        process_record=emits_by_record,
        on_watermark=emits_on_watermark,
        end_input=lambda ctx: emits(ctx, "end_input"),
    )
    passing = one_input(process_record=lambda record, output, ctx: output.collect(record))

    def build(numbers: Any) -> Any:
        stream = numbers.process(function).with_uid("f")
        return stream.process(passing) if chained else stream

    driver = driven(build)
    driver.send(100, 200, watermark(300))
    driver.send(ENDED)
    records = [100, watermark(100), 200, watermark(200)]
    signal = ["saw 300", "on_watermark", watermark(12)]
    assert driver.sent_to("out") == ["open", watermark(4), *records, *signal, "end_input", watermark(9), ENDED]


def test_each_input_has_its_own_end() -> None:
    log: list[Any] = []
    function = two_inputs(
        process_record_from_first_input=lambda record, output, ctx: log.append(("first", record)),
        process_record_from_second_input=lambda record, output, ctx: log.append(("second", record)),
        end_first_input=lambda ctx: log.append("end first"),
        end_second_input=lambda ctx: log.append("end second"),
        close=lambda: log.append("close"),
    )
    driver = driven(lambda numbers: numbers.connect_and_process(numbers, function).with_uid("f"))
    driver.send(1, channel=0)
    driver.send(2, ENDED, channel=1)
    driver.send(3, channel=0)
    assert not driver.subtask.ended
    driver.send(ENDED, channel=0)
    assert log == [("first", 1), ("second", 2), "end second", ("first", 3), "end first", "close"]
    assert driver.sent_to("out") == [ENDED]


def test_broadcast_records_have_no_collector_and_no_key() -> None:
    log: list[Any] = []
    function = broadcast_side(
        process_record_from_non_broadcast_input=lambda record, output, ctx: output.collect(("main", record)),
        process_record_from_broadcast_input=lambda record, ctx: emits_side(record, ctx),
        end_non_broadcast_input=lambda ctx: log.append("end main"),
        end_broadcast_input=lambda ctx: log.append("end side"),
    )

    def emits_side(record: Any, ctx: Any) -> None:
        log.append(hasattr(ctx.state_manager, "current_key"))
        ctx.apply_to_all_partitions(lambda output, ctx: output.collect(("side", record)))

    driver = driven(lambda numbers: numbers.connect_and_process(numbers.broadcast(), function).with_uid("f"))
    driver.send(1, channel=0)
    driver.send(2, ENDED, channel=1)
    driver.send(3, ENDED, channel=0)
    assert log == [False, "end side", "end main"]
    assert driver.sent_to("out") == [("main", 1), ("side", 2), ("main", 3), ENDED]


def test_two_outputs() -> None:
    function = two_output(
        process_record=lambda record, first, second, ctx: (second if record % 2 else first).collect(record),
        end_input=lambda ctx: ctx.apply_to_all_partitions(lambda first, second, ctx: second.collect("end")),
    )
    env = local_environment()
    pair = env.from_collection([1]).process(function).with_uid("f")
    pair.first.to_sink(CollectSink()).with_uid("even")
    pair.second.to_sink(CollectSink()).with_uid("odd")
    driver = Driver(env.build_plan(), "f").open()
    driver.send(1, 2, 3, ENDED)
    assert driver.sent_to("even") == [2, ENDED]
    assert driver.sent_to("odd") == [1, 3, "end", ENDED]


def test_unread_output_costs_nothing() -> None:
    env = local_environment()
    pair = env.from_collection([1]).process(
        two_output(process_record=lambda record, first, second, ctx: [o.collect(record) for o in (first, second)])
    )
    pair.with_uid("f").first.to_sink(CollectSink()).with_uid("out")
    driver = Driver(env.build_plan(), "f").open()
    driver.send(1, ENDED)
    assert driver.sent_to("out") == [1, ENDED]


def test_job_and_task_info() -> None:
    facts: list[Any] = []

    def note(ctx: Any) -> None:
        job, task = ctx.job_info, ctx.task_info
        facts.append((job.job_name, job.execution_mode, task.task_name, task.attempt_number))
        facts.append((task.parallelism, task.max_parallelism, task.index_of_this_subtask))

    env = local_environment(parallelism=3)
    function = one_input(open=note, process_record=lambda record, output, ctx: note(ctx))
    stream = env.from_collection([1]).process(function).with_uid("f").with_name("Noting").with_max_parallelism(40)
    stream.to_sink(CollectSink())
    Driver(env.build_plan("my job"), "f", index=2).open().send("record")
    assert facts == 2 * [("my job", RuntimeExecutionMode.STREAMING, "Noting", 0), (3, 40, 2)]


def test_counters_and_gauges() -> None:
    def process(record: Any, output: Any, ctx: Any) -> None:
        ctx.metric_group.counter("seen").inc()
        ctx.metric_group.counter("sum").inc(record)
        ctx.metric_group.gauge("last", lambda: record)

    driver = driven(lambda numbers: numbers.process(one_input(process_record=process)).with_uid("f"))
    driver.send(1, 2, 3)
    progress = driver.progress("f")
    assert (progress["counters"], progress["gauges"]) == ({"seen": 3, "sum": 6}, {"last": 3})
    assert (progress["records_in"], progress["outputs"], progress["ended"]) == (3, [0], False)


@pytest.mark.parametrize("keyed", [False, True])
def test_records_are_counted_for_each_operator_of_a_chain(keyed: bool) -> None:
    doubling = one_input(process_record=lambda record, output, ctx: [output.collect(record) for _ in range(2)])

    def build(numbers: Any) -> Any:
        stream = numbers.key_by(int).process(doubling, int) if keyed else numbers.process(doubling)
        return stream.with_uid("f").process(doubling).with_uid("g")

    driver = driven(build)
    driver.send(1, 2, 3)
    driver.restart()
    driver.send(4)
    assert [report["uid"] for report in driver.subtask.progress()] == ["f", "g"]  # the first one reports the state
    counts = [(driver.progress(uid)["records_in"], *driver.progress(uid)["outputs"]) for uid in "fg"]
    assert counts == [(4, 8), (8, 16)]


class Counting(OneInputStreamProcessFunction[Any, Any]):
    """Requests its counter only once, as Flink programs do."""

    def open(self, ctx: Any) -> None:
        self.seen = ctx.metric_group.counter("seen")

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.seen.inc()


def test_counters_in_fields_survive_a_restart() -> None:
    driver = driven(lambda numbers: numbers.process(Counting()).with_uid("f"))
    for _ in range(3):
        driver.send(1, 2)
        driver.restart()
    assert driver.progress("f")["counters"] == {"seen": 6}
    assert driver.progress("f")["records_in"] == 6


def test_failing_gauge_is_named() -> None:
    def registers(ctx: Any) -> None:
        ctx.metric_group.gauge("size", fails)

    driver = driven(lambda numbers: numbers.process(one_input(open=registers)).with_uid("f"))
    with pytest.raises(UserFunctionError, match="callback: gauge 'size'"):
        driver.subtask.progress()
