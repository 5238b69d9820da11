"""Scores requests with an accurate model, and with a fast one while there is a backlog.

The function that reads the queue reports how many requests wait, as a watermark with floating-point values. It travels
between the requests, so it is known exactly which of them the switch concerns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from itertools import pairwise
from math import erf, sqrt
from typing import NamedTuple

from dsv2 import (
    Collector,
    CollectSink,
    ExecutionEnvironment,
    NonKeyedPartitionStream,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
    on,
)
from examples.program import Table, execute, run_example

__all__ = (
    "BACKLOG",
    "LIMIT",
    "Request",
    "Scored",
    "accurate_model",
    "backlog_after",
    "crosses_the_limit",
    "fast_model",
    "main",
    "score",
    "some_requests",
)

LIMIT = 20.0
"""With more waiting requests than this, the fast model is used."""
_PER_SECOND = 10.0  # requests that are served


class Request(NamedTuple):
    """A request that arrived at ``time``, in seconds."""

    number: int
    time: float
    amount: float


class Scored(NamedTuple):
    """The score of a request, and the model that computed it."""

    number: int
    score: float
    model: str


def crosses_the_limit(backlog: float, delivered: float | None) -> bool:
    """Return whether the backlog is on the other side of the limit than the one delivered last."""
    return (backlog > LIMIT) != (delivered is not None and delivered > LIMIT)


# The backlogs of all reporters are added up. The function hears of it only when it crosses the limit.
BACKLOG = new_builder("backlog").type_float().combine_function_sum().deliver_when(crosses_the_limit).build()


def backlog_after(waiting: float, seconds: float) -> float:
    """Return the number of requests that wait when one more arrives after some ``seconds``."""
    return max(0.0, waiting - seconds * _PER_SECOND) + 1


class WatchQueue(OneInputStreamProcessFunction[Request, Request]):
    """Reports the backlog before each request."""

    def __init__(self) -> None:
        self.waiting = 0.0
        self.last_time = 0.0

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [BACKLOG]

    def process_record(self, record: Request, output: Collector[Request], ctx: PartitionedContext[Request]) -> None:
        self.waiting = backlog_after(self.waiting, record.time - self.last_time)
        self.last_time = record.time
        ctx.non_partitioned_context.watermark_manager.emit_watermark(BACKLOG.new_watermark(self.waiting))
        output.collect(record)


class Score(OneInputStreamProcessFunction[Request, Scored]):
    """Scores requests with the model that the backlog permits."""

    def __init__(self) -> None:
        self.is_behind = False  # fields are state: they are part of the checkpoint

    @on(BACKLOG)
    def follow_backlog(
        self, watermark: Watermark[float], output: Collector[Scored], ctx: NonPartitionedContext[Scored]
    ) -> WatermarkHandlingResult:
        self.is_behind = watermark.value > LIMIT
        return WatermarkHandlingResult.PEEK

    def process_record(self, record: Request, output: Collector[Scored], ctx: PartitionedContext[Scored]) -> None:
        if self.is_behind:
            output.collect(Scored(record.number, fast_model(record.amount), "fast"))
        else:
            output.collect(Scored(record.number, accurate_model(record.amount), "accurate"))


def accurate_model(amount: float) -> float:
    """The share of all amounts that are smaller, under a normal distribution."""
    return round((1 + erf((amount - 50) / (15 * sqrt(2)))) / 2, 3)


def fast_model(amount: float) -> float:
    """The same as a straight line."""
    return round(min(1.0, max(0.0, 0.5 + (amount - 50) / 60)), 3)


def score(requests: NonKeyedPartitionStream[Request]) -> NonKeyedPartitionStream[Scored]:
    """Score ``requests``, which arrive in order of time."""
    watched = requests.process(WatchQueue()).with_uid("watch queue").with_parallelism(1)
    return watched.process(Score()).with_uid("score")


def some_requests() -> list[Request]:
    """Requests of a minute: four a second, and forty a second in two bursts."""
    requests, time = list[Request](), 0.0
    while time < 60:
        is_burst = 10 <= time < 12 or 30 <= time < 33
        time += 0.025 if is_burst else 0.25
        requests.append(Request(len(requests), time, float(len(requests) * 37 % 100)))
    return requests


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("model_switching", "Switches to a faster model while there is a backlog.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    sink = CollectSink[Scored]()
    requests = env.from_collection(some_requests(), "requests").with_parallelism(1)
    score(requests).to_sink(sink)
    execute(env, "model switching", options)
    return Table("Requests by model", ("from", "to", "model"), _periods(sorted(sink.results)))


def _periods(scored: Sequence[Scored]) -> list[tuple[str, str, str]]:
    """The numbers of the first and the last request of each period with one model."""
    switches = [scored[0], *(one for before, one in pairwise(scored) if one.model != before.model)]
    ends = [one.number - 1 for one in switches[1:]] + [scored[-1].number]
    return [(str(one.number), str(end), one.model) for one, end in zip(switches, ends, strict=True)]


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import model_switching

    sys.exit(model_switching.main())
