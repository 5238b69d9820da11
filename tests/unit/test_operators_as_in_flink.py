"""Flink's own tests of its operators, collectors, managers and environment, on the harnesses.

Tests of keys and partitions are in ``test_partitions``, of lifecycles in ``test_lifecycle``, and of state managers in
``test_states``.
"""

from __future__ import annotations

from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, RuntimeExecutionMode
from dsv2.errors import UserFunctionError
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.testing import (
    ManualClock,
    OneInputHarness,
    StampedRecord,
    TwoInputBroadcastHarness,
    TwoInputNonBroadcastHarness,
    TwoOutputHarness,
)
from tests.durations import ms
from tests.support import broadcast_side, local_environment, one_input, two_inputs, two_output

each_stream = pytest.mark.parametrize("key", [None, int], ids=["non-keyed", "keyed"])


def pass_on(record: Any, output: Any, ctx: Any) -> None:
    output.collect(record)


def noting(log: list[Any], *names: str) -> dict[str, Any]:
    """Callbacks of these names that only log their calls."""
    return {name: (lambda *args, name=name: log.append(name)) for name in names}


@each_stream
def test_one_input(key: Any) -> None:
    """ProcessOperatorTest and KeyedProcessOperatorTest."""
    log: list[Any] = []
    dashed = one_input(
        process_record=lambda record, output, ctx: output.collect(f"{record}-"), **noting(log, "end_input")
    )
    harness = OneInputHarness[int, str](dashed, key=key)
    harness.input.push(1, 2, 3)
    assert (harness.output.records, log) == (["1-", "2-", "3-"], [])
    harness.end()
    assert log == ["end_input"]


@each_stream
def test_two_inputs(key: Any) -> None:
    """TwoInputNonBroadcastProcessOperatorTest and KeyedTwoInputNonBroadcastProcessOperatorTest."""
    log: list[Any] = []
    merging = two_inputs(
        process_record_from_first_input=pass_on,
        process_record_from_second_input=pass_on,
        **noting(log, "end_first_input", "end_second_input"),
    )
    harness = TwoInputNonBroadcastHarness[int, int, int](merging, first_key=key, second_key=key)
    harness.first_input.push(1)
    harness.second_input.push(2, 4)
    harness.first_input.push(3)
    assert harness.output.records == [1, 2, 4, 3]
    harness.second_input.end()
    assert log == ["end_second_input"]
    harness.first_input.end()
    assert log == ["end_second_input", "end_first_input"]


@each_stream
def test_broadcast_input(key: Any) -> None:
    """TwoInputBroadcastProcessOperatorTest and KeyedTwoInputBroadcastProcessOperatorTest."""
    log: list[Any] = []
    routing = broadcast_side(
        process_record_from_non_broadcast_input=lambda record, output, ctx: log.append(("main", record)),
        process_record_from_broadcast_input=lambda record, ctx: log.append(("side", record)),
        **noting(log, "end_non_broadcast_input", "end_broadcast_input"),
    )
    harness = TwoInputBroadcastHarness[int, int, int](routing, key=key)
    harness.non_broadcast_input.push(1)
    harness.broadcast_input.push(2)
    harness.non_broadcast_input.push(3)
    harness.broadcast_input.push(4)
    assert log == [("main", 1), ("side", 2), ("main", 3), ("side", 4)]
    log.clear()
    harness.non_broadcast_input.end()
    assert log == ["end_non_broadcast_input"]
    harness.broadcast_input.end()
    assert log == ["end_non_broadcast_input", "end_broadcast_input"]


@each_stream
def test_two_outputs(key: Any) -> None:
    """TwoOutputProcessOperatorTest and KeyedTwoOutputProcessOperatorTest."""
    log: list[Any] = []
    doubling = two_output(
        process_record=lambda record, first, second, ctx: (first.collect(record), second.collect(2 * record)),
        **noting(log, "end_input"),
    )
    harness = TwoOutputHarness[int, int, int](doubling, key=key)
    harness.input.push(1, 2, 3)
    assert harness.first_output.records == [1, 2, 3]
    assert harness.second_output.records == [2, 4, 6]
    harness.end()
    assert log == ["end_input"]


@pytest.mark.parametrize("output_key", [None, int], ids=["unchecked", "checked"])
def test_collectors(output_key: Any) -> None:
    """OutputCollectorTest, and KeyCheckedOutputCollectorTest for records of the current key."""

    def process(record: int, output: Any, ctx: Any) -> None:
        output.collect(record)
        output.collect_and_overwrite_timestamp(record, 10)

    harness = OneInputHarness[int, int](one_input(process_record=process), key=int, output_key=output_key)
    harness.input.push(1, timestamp=7)
    harness.input.push(2)
    stamps = [(1, 7), (1, 10), (2, None), (2, 10)]
    assert harness.output.elements == [StampedRecord(*stamp) for stamp in stamps]


@pytest.mark.parametrize(
    "collect",
    [lambda output: output.collect(2), lambda output: output.collect_and_overwrite_timestamp(2, 10)],
    ids=["collect", "collect_and_overwrite_timestamp"],
)
@pytest.mark.parametrize("timestamp", [None, 7])
def test_checked_collector_refuses_other_keys(collect: Any, timestamp: int | None) -> None:
    """KeyCheckedOutputCollectorTest for records of another key, with and without a timestamp."""
    function = one_input(process_record=lambda record, output, ctx: collect(output))
    harness = OneInputHarness[int, int](function, key=int, output_key=int)
    with pytest.raises(UserFunctionError, match="The output key must equal the input key") as caught:
        harness.input.push(1, timestamp=timestamp)
    assert (caught.value.cause_type, caught.value.record, caught.value.key) == ("InvalidKeyError", "1", "1")
    assert harness.output.elements == []


def test_processing_time_manager() -> None:
    """DefaultProcessingTimeManagerTest."""
    harness = OneInputHarness[int, Any](one_input(), key=int, clock=ManualClock(5))
    harness.input.push(1)

    def managed(action: Any) -> Any:
        return harness.visit(lambda ctx: action(ctx.processing_time_manager), key=1)

    assert managed(lambda manager: manager.current_time()) == 5
    harness.advance_clock(ms(2))
    assert managed(lambda manager: manager.current_time()) == 7
    for _ in range(2):  # the second time it already exists, or is already deleted
        managed(lambda manager: manager.register_timer(100))
        assert harness.processing_timers(1) == [100]
    for _ in range(2):
        managed(lambda manager: manager.delete_timer(100))
        assert harness.processing_timers(1) == []


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_job_info_of_contexts(mode: RuntimeExecutionMode) -> None:
    """DefaultJobInfoTest."""
    env, sink = local_environment(), CollectSink[Any]()
    env.set_execution_mode(mode)

    def emit_job_info(record: int, output: Any, ctx: Any) -> None:
        output.collect((ctx.job_info.job_name, ctx.job_info.execution_mode.value))

    env.from_collection([1]).process(emit_job_info).to_sink(sink)
    env.execute("the job")
    assert sink.results == [("the job", mode.value)]


def test_get_instance_creates_a_new_environment() -> None:
    """ExecutionEnvironmentImplTest."""
    runtime = LocalRuntime()
    env, other = (ExecutionEnvironment.get_instance(runtime) for _ in range(2))
    assert env is not other
    other.set_execution_mode(RuntimeExecutionMode.BATCH)
    assert (env.execution_mode, other.execution_mode) == (RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH)
    numbers = env.from_collection([1], "numbers")
    numbers.process(one_input()).with_name("first")
    numbers.process(one_input()).with_name("second").to_sink(CollectSink())
    assert [operator.name for operator in env.build_plan().operators] == ["numbers", "first", "second", "Sink"]
