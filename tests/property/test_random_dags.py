"""Random graphs on random records: every run is legal, and all runs agree if there is only one answer.

Legality is judged hop by hop from the functions' own logs (``legality``), and from the sources alone where no order
matters (``model``). A failing example is printed with all that is needed to build it again. The profile ``nightly``
(tests/profiles.py) runs more graphs, and other ones each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from dsv2 import RuntimeExecutionMode
from dsv2.local import LocalRuntime
from tests.profiles import examples, factor
from tests.property.graphs import Graph, graphs
from tests.property.runs import check, everything, outcomes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200 * factor())

STREAMING, BATCH = RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH


@dataclass(frozen=True)
class Way:
    """One way to run a graph locally."""

    seed: int
    mode: RuntimeExecutionMode = STREAMING
    batches: tuple[int, ...] = ()
    checks: bool = False

    @property
    def runtime(self) -> LocalRuntime:
        """The runtime for it."""
        return LocalRuntime(seed=self.seed, batches=self.batches, checks=self.checks)


SEEDS = st.integers(0, 1000)
# Small micro-batches with restarts in between are where state could be lost.
RESTARTING = st.builds(
    Way, SEEDS, batches=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), checks=st.just(True)
)
WAYS = st.one_of(RESTARTING, RESTARTING, st.builds(Way, SEEDS, st.sampled_from((STREAMING, BATCH))))


@examples(30)
@given(graphs(), WAYS)
def test_every_local_run_is_legal(graph: Graph, way: Way) -> None:
    with outcomes_of([graph], way.runtime, way.mode) as outcomes:
        check(outcomes[0])


@examples(10)
@given(graphs(one_order=True), WAYS)
def test_local_runs_agree_if_there_is_one_order(graph: Graph, way: Way) -> None:
    with (
        outcomes_of([graph], LocalRuntime()) as plain,
        outcomes_of([graph], way.runtime, way.mode) as other,
    ):
        check(plain[0])
        assert everything(plain[0]) == everything(other[0])


def on_spark(
    spark: SparkSession, mode: RuntimeExecutionMode, number: int, batches: st.SearchStrategy[int | None]
) -> None:
    """Run several graphs of both kinds at a time. The results must be legal, or equal to those of the local runtime."""
    from runtime_spark import SparkRuntime

    several = st.tuples(graphs(most_sources=2), graphs(most_sources=2), graphs(one_order=True))

    # A job takes seconds: examples are not shrunk, and the error names the failing graph.
    @settings(examples(number), phases=[Phase.explicit, Phase.reuse, Phase.generate])
    @given(several, batches)
    def run(several: tuple[Graph, Graph, Graph], records_per_batch: int | None) -> None:
        with (
            outcomes_of(several, SparkRuntime(spark), mode, records_per_batch, mode is STREAMING) as outcomes,
            outcomes_of(several, LocalRuntime()) as local,
        ):
            for number, outcome in enumerate(outcomes):
                note(f"graph {number}: {outcome.graph}")
                check(outcome)
            assert everything(outcomes[-1]) == everything(local[-1])

    run()


def test_every_streaming_run_on_spark_is_legal(spark: SparkSession) -> None:
    on_spark(spark, STREAMING, 3, st.integers(4, 12))


def test_every_batch_run_on_spark_is_legal(spark: SparkSession) -> None:
    on_spark(spark, BATCH, 5, st.none())
