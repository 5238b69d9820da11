"""Random graphs that are stopped with savepoints and continued elsewhere lose and repeat nothing.

They continue at other parallelisms: always in the local runtime, or on Spark in both layouts and locally in turn.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment, JobStatus
from dsv2.jobs.handle import JobRuntime
from dsv2.local import LocalRuntime
from tests.profiles import examples, factor
from tests.property.graphs import Graph, Port, build, graphs
from tests.property.model import Bag, expected_bags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@examples(15)
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


def lost_or_repeated(several: list[Graph], results: dict[tuple[int, Port], list[Any]]) -> list[tuple[int, Port]]:
    """The ports, by the number of their graph, with other records than those of an uninterrupted run."""
    return [
        (number, port)
        for number, graph in enumerate(several)
        for port, bag in bags_of_any_parallelism(graph).items()
        if (number, port) in results and Counter((key, n) for key, n, _ in results[number, port]) != bag
    ]


def continued(
    several: list[Graph], runtime: JobRuntime, folder: Path, number: int, stop: int | None, batch: int
) -> dict[tuple[int, Port], list[Any]]:
    """One generation of a job with several graphs. It ends at the position ``stop`` of the first graph."""
    env = ExecutionEnvironment.get_instance(runtime)
    sinks = {
        (index, port): sink
        for index, graph in enumerate(several)
        for port, sink in build(env, graph, f"g{index}", folder, batch, stop=None if index else stop).items()
    }
    job = env.execute_async(
        "graphs",
        savepoint=folder / f"savepoint-{number - 1}" if number else None,
        checkpoint_location=None if isinstance(runtime, LocalRuntime) else folder / f"checkpoint-{number}",
    )
    job.await_termination()
    if stop is not None:
        job.savepoint(folder / f"savepoint-{number}")
    return {port: sink.results for port, sink in sinks.items()}


RUNTIMES = st.permutations(["blob", "local", "map"])


def test_graphs_continue_in_other_runtimes_and_layouts(spark: SparkSession) -> None:
    from runtime_spark import SparkRuntime, StateLayout

    # A draw takes two jobs on Spark. Examples are not shrunk, and the first one, the smallest, does not count.
    @settings(examples(1), phases=[Phase.explicit, Phase.reuse, Phase.generate], suppress_health_check=[*HealthCheck])
    @given(
        st.lists(graphs(most_sources=2), min_size=2, max_size=2),
        RUNTIMES,
        st.lists(PARALLELISMS, min_size=3, max_size=3),
        st.lists(st.integers(0, 100), min_size=2, max_size=2, unique=True).map(sorted),
        st.integers(2, 6),
    )
    def run(
        several: list[Graph], runtimes: list[str], parallelisms: list[list[int]], percent: list[int], batch: int
    ) -> None:
        records = len(several[0].nodes[0].items)  # type: ignore[union-attr]
        stops = [records * share // 100 for share in percent]
        assume(all(len(graph.nodes) > 2 for graph in several) and stops[0] < stops[1])
        note(f"{runtimes}: {several}")
        results: dict[tuple[int, Port], list[Any]] = {}
        with TemporaryDirectory() as folder:
            for number, (name, others, stop) in enumerate(zip(runtimes, parallelisms, [*stops, None], strict=True)):
                runtime = LocalRuntime() if name == "local" else SparkRuntime(spark, state_layout=StateLayout(name))
                there = [at(graph, others) for graph in several]
                for port, items in continued(there, runtime, Path(folder), number, stop, batch).items():
                    results.setdefault(port, []).extend(items)
        assert lost_or_repeated(several, results) == []

    run()
