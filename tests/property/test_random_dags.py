"""Random graphs on random records: every run is legal, and all runs agree where there is only one answer.

Legal is judged hop by hop, from what the functions themselves have noted (``legality``), and from the sources alone
where no order matters (``model``). A failing example is printed with all that is needed to build it again, and stays
in Hypothesis' own database until it passes. ``-m slow`` runs many more graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment, RuntimeExecutionMode
from dsv2.job import JobRuntime
from dsv2.local import LocalRuntime
from tests.property.graphs import Graph, Step, build, graphs
from tests.property.legality import Outcome, check_legal
from tests.property.model import expected_bags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMING, BATCH = RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH
MODES = st.sampled_from((STREAMING, BATCH))
CUTS = st.lists(st.integers(1, 8), max_size=3)


@contextmanager
def outcomes_of(
    several: Sequence[Graph],
    runtime: JobRuntime,
    mode: RuntimeExecutionMode = STREAMING,
    records_per_batch: int | None = None,
    needs_checkpoint: bool = False,
) -> Iterator[list[Outcome]]:
    """Run the graphs side by side in one job; what they have noted is there until the end of the block."""
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
    """Assert what is true of every run of the graph."""
    check_legal(outcome)
    bags = expected_bags(outcome.graph)
    for port, items in outcome.results.items():
        if port in bags:
            assert Counter((key, number) for key, number, _ in items) == bags[port], port


def everything(outcome: Outcome) -> Any:
    """All that a run has left behind, to be compared."""
    notes = [
        outcome.notes(index, subtask)
        for index, node in enumerate(outcome.graph.nodes)
        if isinstance(node, Step)
        for subtask in range(node.parallelism)
    ]
    return notes, outcome.results


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.integers(0, 1000), CUTS, st.booleans(), MODES)
def test_every_local_run_is_legal(
    graph: Graph, seed: int, cuts: list[int], restart: bool, mode: RuntimeExecutionMode
) -> None:
    with outcomes_of([graph], LocalRuntime(seed=seed, batches=cuts, restart=restart), mode) as outcomes:
        check(outcomes[0])
