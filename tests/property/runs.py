"""Runs of random graphs, and the facts that hold for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dsv2 import ExecutionEnvironment, RuntimeExecutionMode
from dsv2.jobs.handle import JobRuntime
from tests.property.graphs import Graph, Step, build
from tests.property.legality import Outcome, check_legal
from tests.property.model import expected_bags


@contextmanager
def outcomes_of(
    several: Sequence[Graph],
    runtime: JobRuntime,
    mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING,
    records_per_batch: int | None = None,
    needs_checkpoint: bool = False,
) -> Iterator[list[Outcome]]:
    """Run the graphs side by side in one job. Their logs exist until the end of the block."""
    with TemporaryDirectory() as folder:
        env = ExecutionEnvironment.get_instance(runtime)
        env.set_execution_mode(mode)
        sinks = [
            build(env, graph, f"g{number}", Path(folder), records_per_batch) for number, graph in enumerate(several)
        ]
        plan = env.build_plan()
        checkpoint = f"{folder}/checkpoint" if needs_checkpoint else None
        progress = env.execute("random graphs", checkpoint_location=checkpoint).progress.operators
        yield [
            Outcome(
                graph,
                f"g{number}",
                plan,
                Path(folder),
                {port: sink.results for port, sink in sinks[number].items()},
                progress,
            )
            for number, graph in enumerate(several)
        ]


def check(outcome: Outcome) -> None:
    """Assert the facts of every run of the graph."""
    check_legal(outcome)
    bags = expected_bags(outcome.graph)
    for port, items in outcome.results.items():
        if port in bags:
            assert Counter((key, number) for key, number, _ in items) == bags[port], port


def everything(outcome: Outcome) -> Any:
    """The complete outcome of a run, for comparison."""
    notes = [
        outcome.notes(index, subtask)
        for index, node in enumerate(outcome.graph.nodes)
        if isinstance(node, Step)
        for subtask in range(node.parallelism)
    ]
    return notes, outcome.results
