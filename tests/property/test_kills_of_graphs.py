"""Random graphs in the local runtime that are killed at random steps give the result of an uninterrupted run."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.local import LocalRuntime
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.sinks import CollectSink
from tests.profiles import examples, factor
from tests.property.graphs import Graph, Port, build, graphs
from tests.property.model import expected_bags
from tests.property.test_savepoints_of_graphs import PARALLELISMS, at, bags_of_any_parallelism
from tests.steps import KilledError, Steps, steps_of

pytestmark = pytest.mark.timeout(600 * factor())

PHASES = ((LocalCheckpoint, "write"), (CollectSink, "write"), (LocalCheckpoint, "mark_written"))
Batches = dict[Port, dict[tuple[Any, int], list[Any]]]
"""The records of each sink, by job and micro-batch. A micro-batch that is written again replaces itself."""


def run(graph: Graph, folder: Path, seed: int, batch: int, steps: Steps, written: Batches) -> None:
    """Run until a kill, or to the end."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=seed, batches=[batch]))
    sinks = build(env, graph, "g", folder)
    try:
        with suppress(KilledError), steps_of(steps, *PHASES):
            env.execute("graph", checkpoint_location=folder / "checkpoint")
    finally:
        for port, sink in sinks.items():
            for job, batches in sink._batches.items():
                written.setdefault(port, {}).update(((job, number), records) for number, records in batches.items())


@examples(10)
@given(
    graphs(),
    st.lists(st.integers(0, 20), max_size=4),
    st.none() | st.lists(PARALLELISMS, min_size=5, max_size=5),
    st.integers(0, 99),
    st.integers(1, 4),
)
def test_kills_lose_and_repeat_nothing(
    graph: Graph, kills: list[int], parallelisms: list[list[int]] | None, seed: int, batch: int
) -> None:
    """With ``parallelisms``, each run has others, so the checkpoint is migrated."""
    written: Batches = {}
    with TemporaryDirectory() as folder:
        for number, steps in enumerate([*kills, 10**9]):
            there = graph if parallelisms is None else at(graph, parallelisms[number])
            run(there, Path(folder), seed + number, batch, Steps(steps), written)
    bags = expected_bags(graph) if parallelisms is None else bags_of_any_parallelism(graph)
    for port, bag in bags.items():
        if port in graph.leaves:
            records = [record for found in written.get(port, {}).values() for record in found]
            assert Counter((key, number) for key, number, _ in records) == bag, port
