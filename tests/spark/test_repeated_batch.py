"""A micro-batch that is repeated by another program: its state is that of the second attempt."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment
from dsv2.errors import UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.model.context import Collector, PartitionedContext
from dsv2.sinks import CollectSink
from dsv2.testing import Stop, TestSource
from runtime_spark import SparkRuntime, StateLayout


class Total(OneInputStreamProcessFunction[int, int]):
    """Adds ``step`` for each record, in a field."""

    def __init__(self, step: int) -> None:
        self.total = 0
        self._step = step

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        self.total += self._step
        output.collect(self.total)


def run(spark: SparkSession, checkpoint: str, layout: StateLayout, step: int, *, fails: bool = False) -> list[int]:
    """Continue to the next stop: a micro-batch of two records."""
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=layout))
    numbers = env.from_source(TestSource[int]([1, 2, Stop(), 3, 4, Stop(), 5, 6])).with_uid("numbers")
    totals = numbers.key_by(bool).process(Total(step)).with_uid("total").with_parallelism(1)

    def check(total: int) -> int:
        if fails:
            raise ValueError("not this time")
        return total

    sink = CollectSink[int]()
    totals.shuffle().map(check).with_uid("check").to_sink(sink)
    env.execute("repeated", checkpoint_location=checkpoint)
    return sink.results


@pytest.mark.parametrize("layout", StateLayout)
def test_repeated_batch_has_the_state_of_the_second_attempt(
    spark: SparkSession, tmp_path: Path, layout: StateLayout
) -> None:
    checkpoint = str(tmp_path)
    assert run(spark, checkpoint, layout, 1) == [1, 2]
    with pytest.raises(UserFunctionError, match="not this time"):
        run(spark, checkpoint, layout, 10, fails=True)  # the level before has already written its state
    assert run(spark, checkpoint, layout, 100) == [102, 202]
    assert run(spark, checkpoint, layout, 1) == [203, 204]
