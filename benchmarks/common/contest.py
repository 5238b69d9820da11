"""Comparison of the times and results of several variants of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.common.measure import Sample, batch_seconds, checkpoint
from benchmarks.common.report import Report
from dsv2 import ExecutionEnvironment
from runtime_spark.job.query import StreamingJob

__all__ = ("WARM_UP", "Measured", "compare", "run_dsv2")

WARM_UP = 2  # micro-batches in which workers start and code is compiled


@dataclass(frozen=True)
class Measured:
    """The times of micro-batches after the warm-up, and the number of results of all micro-batches."""

    sample: Sample
    results: Mapping[int, int]

    @property
    def total(self) -> int:
        """The number of results of all micro-batches."""
        return sum(self.results.values())


def compare(report: Report, records: int, contestants: Mapping[str, Measured]) -> None:
    """Add a table that compares all contestants with the first one."""
    base = next(iter(contestants.values())).sample.median
    rows = [
        (
            name,
            round(records / measured.sample.median),
            round(measured.sample.median * 1000),
            measured.sample.spread,
            measured.total,
            base / measured.sample.median,
        )
        for name, measured in contestants.items()
    ]
    header = ("contestant", "records/s", "ms per batch", "spread", "results", f"of the {next(iter(contestants))}")
    report.table(f"Micro-batches of {records:,} records", header, rows)


def run_dsv2(env: ExecutionEnvironment, name: str, results: Mapping[int, int], batches: int) -> Measured:
    """Run the pipeline of ``env`` to its end. Its sink writes the number of records per micro-batch to ``results``."""
    with checkpoint() as folder:
        job = env.execute_async(name, checkpoint_location=folder)
        assert isinstance(job, StreamingJob)
        job.result()
        return Measured(Sample.of(batch_seconds(job.query, WARM_UP, batches)), results)
