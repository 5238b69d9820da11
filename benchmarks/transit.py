"""Watermarks in transit, and the fixed cost of a micro-batch, by parallelism.

A job has a source, functions that emit watermarks, and keyed functions that receive them: two levels with P subtasks
each, and P² channels between them.

* **in transit**, without Spark: what a micro-batch sends over the exchange (rows, control elements, bytes of payload),
  and the CPU time of both levels. Either each subtask reads 50 records with a watermark after each, or one record with
  50 watermarks after it. The functions receive the watermarks, or leave them to the framework.
* **combining**: the time per watermark that arrives, by the number of channels.
* **on Spark**: the CPU time of a micro-batch in which each subtask reads one record and sends one watermark, by P and
  by the number of partitions.

Load of the machine slows CPU time down by a few percent. Counts and bytes are exact.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.common.cpu import CpuTimes
from benchmarks.common.measure import checkpoint, spark_session
from benchmarks.common.outside import OutsideSpark
from benchmarks.common.report import Arguments, Report, conditions
from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.model.record_batch import NO_RECORDS
from dsv2.runtime.exchange.control_log import WATERMARK
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from dsv2.watermark.event_time import EVENT_TIME
from runtime_spark import SESSION_SETTINGS, SparkRuntime

__all__ = ("main",)

NAME = "transit"
SHORT: dict[str, object] = {
    "parallelism": [1, 4],
    "channels": [1, 16],
    "layouts": ["1/1", "4/2"],
    "batches": 1,
    "warm_up": 1,
}
WATERMARKS = 50
"""Watermarks of a subtask in a micro-batch."""
MOST_BYTES = 8
"""The maximum size of a control element in transit, in bytes."""
MOST_MICROSECONDS = 2.0
"""The maximum time to combine a watermark with those of 1,000 other channels."""

SIGNAL = new_builder("newest-posting-time").type_long().combine_function_max().build()
SLOWEST = new_builder("slowest").type_long().combine_function_min().combine_wait_for_all_channels(True).build()


class Emit(OneInputStreamProcessFunction[int, int]):
    """Passes records on, each with watermarks after it that rise."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.reached = 1_700_000_000_000

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [SIGNAL]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        output.collect(record)
        for _ in range(self.each):
            self.reached += 1000
            ctx.non_partitioned_context.watermark_manager.emit_watermark(SIGNAL.new_watermark(self.reached))


class Pass(OneInputStreamProcessFunction[int, int]):
    """Passes records on."""

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        output.collect(record)


class Receive(Pass):
    """Also receives watermarks."""

    def __init__(self) -> None:
        self.newest = 0

    def on_watermark(
        self, watermark: Watermark, output: Collector[int], ctx: NonPartitionedContext[int]
    ) -> WatermarkHandlingResult:
        self.newest = watermark.value
        return WatermarkHandlingResult.PEEK


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--parallelism", type=int, nargs="+", default=[1, 4, 16, 64, 256], help="subtasks (1 to 256)")
    add("--channels", type=int, nargs="+", default=[1, 16, 64, 256, 1000], help="channels combined (1 to 1,000)")
    layouts = ["1/1", "4/4", "16/16", "64/64", "64/8", "64/2"]
    add("--layouts", nargs="+", default=layouts, metavar="P/N", help="subtasks and partitions on Spark")
    add("--batches", type=int, default=8, help="measured micro-batches (8)")
    add("--warm-up", type=int, default=6, help="micro-batches for warm-up (6)")
    options = parser.parse(arguments, SHORT)
    report = Report(NAME, "Watermarks in transit", {})
    _report_transit(report, options)
    _report_combining(report, options.channels)
    with spark_session("transit benchmark", SESSION_SETTINGS) as spark:
        report.conditions = conditions(spark, NAME, arguments)
        _report_on_spark(report, spark, options)
    report.publish(options.results)
    return 0


def build(
    env: ExecutionEnvironment,
    records: int,
    each: int,
    receiver: type[Pass],
    write: Callable[[list[int], int], None],
    per_batch: int | None = None,
) -> None:
    """Build the job. ``each``: Watermarks after each of ``records`` records. ``write``: Called for each micro-batch."""
    source = DataGeneratorSource(int, count=records, records_per_batch=per_batch)
    emitted = env.from_source(source, "numbers").with_uid("numbers").process(Emit(each)).with_uid("emit")
    received = emitted.key_by(_itself).process(receiver()).with_uid("receive")
    received.to_sink(ForeachBatchSink(write)).with_uid("written")


def _itself(record: int) -> int:
    return record


def _ignore(records: list[int], batch_id: int) -> None:
    """Write nothing."""


def _report_transit(report: Report, options: argparse.Namespace) -> None:
    rows = [
        (what, parallelism, *_in_transit(parallelism, each, receiver))
        for what, each, receiver in (
            ("a watermark after each of 50 records", 1, Receive),
            ("50 watermarks after a record", WATERMARKS, Receive),
            ("the same, which nothing receives", WATERMARKS, Pass),
        )
        for parallelism in options.parallelism
    ]
    header = (
        "each subtask sends",
        "P",
        "rows",
        "control elements",
        "bytes",
        "bytes per watermark and channel",
        "CPU s, sending level",
        "CPU s, receiving level",
    )
    report.table("A micro-batch over an exchange of P subtasks", header, rows)
    most = max(options.parallelism)
    for row in rows:
        if row[1] == most:
            report.at_most(f"P = {most}, {row[0]}: bytes per watermark and channel", row[5], MOST_BYTES)


def _in_transit(parallelism: int, each: int, receiver: type[Pass]) -> tuple[int, int, int, float, float, float]:
    records = parallelism * (WATERMARKS // each)
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(parallelism)
    build(env, 2 * records, each, receiver, _ignore)
    run = OutsideSpark(env.build_plan(), in_parts=False)
    run.run_batch(records)
    run.watches.clear()
    run.run_batch(records)
    codec, slots = run.job.codec(), {slot for slot, (head, _) in run.job.layout.addresses.items()}
    payloads = [payload for slot, _, _, payload in run.sent["level 1"] if slot in slots]
    elements = sum(len(decode_frame(codec, payload, "it")[1]) for payload in payloads)
    size = sum(map(len, payloads))
    channels = parallelism**2
    seconds = [sum(run.watches[level].seconds.values()) for level in ("level 1", "level 2")]
    return len(payloads), elements, size, size / channels / WATERMARKS, seconds[0], seconds[1]


class _Nothing:
    """A listener of a gate that ignores everything."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given: None


def _report_combining(report: Report, numbers: Sequence[int]) -> None:
    kinds: dict[str, tuple[WatermarkDeclaration | str, int]] = {
        "MAX": (SIGNAL, 1),
        "MAX, 50 at once": (SIGNAL, WATERMARKS),
        "MIN, wait for all": (SLOWEST, 1),
        "MIN, wait for all, 50 at once": (SLOWEST, WATERMARKS),
        "event time": (EVENT_TIME, 1),
        "event time, 50 at once": (EVENT_TIME, WATERMARKS),
    }
    times = {
        kind: [_combining(declared, channels, at_once) for channels in numbers]
        for kind, (declared, at_once) in kinds.items()
    }
    header = ("combination", *(f"{number:,} channels" for number in numbers))
    report.table(
        "Receiving a watermark of one of several channels, µs", header, [(kind, *row) for kind, row in times.items()]
    )
    most = max(row[-1] for row in times.values())
    report.at_most(f"µs of a watermark of {numbers[-1]:,} channels", most, MOST_MICROSECONDS)


def _combining(declared: WatermarkDeclaration | str, channels: int, at_once: int) -> float:
    """Return the time for a watermark in µs: the least of several rounds."""
    identifier = declared if isinstance(declared, str) else declared.identifier
    declarations: Any = {SIGNAL.identifier: SIGNAL, SLOWEST.identifier: SLOWEST, EVENT_TIME: SIGNAL}
    gate = InputGate(0, channels, declarations, _Nothing())
    rounds = max(2, 20_000 // (channels * at_once))
    seconds = []
    value = 0
    for _ in range(4):
        controls = [
            [(0, WATERMARK, identifier, value + turn * at_once + one) for one in range(at_once)]
            for turn in range(rounds)
        ]
        value += rounds * at_once
        began = time.process_time()
        for sent in controls:
            for channel in range(channels):
                gate.receive(channel, NO_RECORDS, sent)
        seconds.append(time.process_time() - began)
    return min(seconds) / (rounds * channels * at_once) * 1e6


def _report_on_spark(report: Report, spark: Any, options: argparse.Namespace) -> None:
    rows = []
    for layout in options.layouts:
        parallelism, partitions = map(int, layout.split("/"))
        times = _on_spark(spark, parallelism, partitions, options)
        used = [statistics.median(getattr(one, kind) for one in times) for kind in ("driver", "jvm", "workers")]
        tasks = 2 * partitions + 1
        milliseconds = [1000 * seconds for seconds in used]
        rows.append((parallelism, partitions, tasks, *milliseconds, sum(milliseconds), sum(milliseconds) / tasks))
    header = ("P", "partitions", "tasks", "driver", "JVM", "workers", "all", "all per task")
    report.table("CPU time of a micro-batch on Spark, two levels, ms", header, rows)


def _on_spark(spark: Any, parallelism: int, partitions: int, options: argparse.Namespace) -> list[CpuTimes]:
    batches = options.warm_up + options.batches
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, partitions=partitions))
    env.set_parallelism(parallelism)
    times: list[CpuTimes] = []  # when the records of a micro-batch reach the sink
    build(env, parallelism * batches, 1, Receive, lambda records, batch_id: times.append(CpuTimes.now()), parallelism)
    with checkpoint() as folder:
        env.execute("transit", checkpoint_location=folder)
    return [later - earlier for earlier, later in pairwise(times[options.warm_up - 1 : batches])]


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import transit

    sys.exit(transit.main())
