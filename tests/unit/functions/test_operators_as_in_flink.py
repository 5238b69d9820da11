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
from dsv2.testing import ManualClock, OneInputHarness, StampedRecord
from tests.durations import ms
from tests.support import one_input


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
