"""Random graphs that are stopped with savepoints and continued at other parallelisms lose and repeat nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment, JobStatus
from dsv2.local import LocalRuntime
from tests.profiles import examples, factor
from tests.property.graphs import Graph, Port, build, graphs
from tests.property.model import Bag, expected_bags

pytestmark = pytest.mark.timeout(1200 * factor())


def at(graph: Graph, parallelisms: list[int]) -> Graph:
    """The graph with other parallelisms, in order of its nodes. Global steps keep theirs."""
    nodes = [
        node if getattr(node, "kind", "") == "global" else replace(node, parallelism=number)
        for node, number in zip(graph.nodes, parallelisms, strict=False)
    ]
    return replace(graph, nodes=(*nodes, *graph.nodes[len(nodes) :]))


def bags_of_any_parallelism(graph: Graph) -> dict[Port, Bag]:
    """The records of each port that do not depend on the parallelism."""
    two, three = (expected_bags(at(graph, [number] * len(graph.nodes))) for number in (2, 3))
    return {port: bag for port, bag in two.items() if three.get(port) == bag}


def run(graph: Graph, folder: Path, number: int, stop: int | None, seed: int, batch: int) -> dict[Port, list[Any]]:
    """One generation of the job: from the savepoint of the previous one, to ``stop`` or the end."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=seed, batches=[batch]))
    sinks = build(env, graph, "g", folder, stop=stop)
    job = env.execute_async("graph", savepoint=folder / f"savepoint-{number - 1}" if number else None)
    job.await_termination()
    if stop is not None:
        assert job.status is JobStatus.STOPPED
        job.stop_with_savepoint(folder / f"savepoint-{number}")
    return {port: sink.results for port, sink in sinks.items()}


PARALLELISMS = st.lists(st.integers(1, 4), min_size=3, max_size=9)


@settings(examples(30), suppress_health_check=[HealthCheck.too_slow])
@given(
    graphs(),
    st.lists(st.tuples(st.integers(0, 24), PARALLELISMS), min_size=1, max_size=3),
    PARALLELISMS,
    st.integers(0, 99),
    st.integers(1, 4),
)
def test_graphs_continue_at_other_parallelisms(
    graph: Graph, cuts: list[tuple[int, list[int]]], last: list[int], seed: int, batch: int
) -> None:
    stops = sorted({min(stop, len(graph.nodes[0].items)) for stop, _ in cuts})  # type: ignore[union-attr]
    generations = [(stop, parallelisms) for stop, (_, parallelisms) in zip(stops, cuts, strict=False)]
    results: dict[Port, list[Any]] = {}
    with TemporaryDirectory() as folder:
        for number, (stop, parallelisms) in enumerate([*generations, (None, last)]):
            for port, items in run(at(graph, parallelisms), Path(folder), number, stop, seed, batch).items():
                results.setdefault(port, []).extend(items)
    bags = bags_of_any_parallelism(graph)
    for port, items in results.items():
        if port in bags:
            assert Counter((key, number) for key, number, _ in items) == bags[port], port
