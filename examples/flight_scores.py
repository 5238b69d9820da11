"""The arrival delays of flights, predicted at takeoff by a scikit-learn model that scores Arrow batches.

The model learns from the flights of January 2013 and is saved to a file. The job scores the flights of February: each
worker process loads the file once, as a resource, and scores some thousand flights with one call.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa

from dsv2 import CollectSink, ExecutionEnvironment, NonKeyedPartitionStream, PartitionedContext, Resource
from dsv2.arrow import ArrowCollector, ArrowProcessFunction, schema_of
from dsv2.sources import DataGeneratorSource
from examples.nyc_tables import flights
from examples.program import Table, execute, run_example

__all__ = ("Score", "Scored", "Takeoff", "features", "load_model", "main", "scores", "takeoffs", "train")

FEATURES = ("dep_delay", "distance", "hour")
JANUARY, FEBRUARY = 1, 2


class Takeoff(NamedTuple):
    """A flight at takeoff: its delay in minutes, distance in miles, scheduled hour, and the delay at its arrival."""

    carrier: str
    dep_delay: int
    distance: int
    hour: int
    arr_delay: int


class Scored(NamedTuple):
    """A flight with the arrival delay that was expected at takeoff, in minutes."""

    carrier: str
    dep_delay: int
    arr_delay: int
    expected: float


class Model(Protocol):
    """The part of a scikit-learn model that the job needs."""

    def predict(self, features: np.ndarray[Any, Any], /) -> np.ndarray[Any, Any]:
        """Return a prediction for each row."""


class Score(ArrowProcessFunction[Takeoff, Scored]):
    """Emits each flight with its expected arrival delay."""

    def __init__(self, path: Path) -> None:
        self.model = Resource(partial(load_model, path))

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Scored], ctx: PartitionedContext[Scored]) -> None:
        expected = self.model.get().predict(np.column_stack([batch[name].to_numpy() for name in FEATURES]))
        columns = [batch["carrier"], batch["dep_delay"], batch["arr_delay"], pa.array(expected)]
        output.collect_batch(pa.table(columns, schema_of(Scored)))


def scores(departed: NonKeyedPartitionStream[Takeoff], path: Path) -> NonKeyedPartitionStream[Scored]:
    """Score ``departed`` with the model in the file ``path``."""
    return departed.process(Score(path)).with_uid("scores")


def load_model(path: Path) -> Model:
    """Load a model that ``train`` has saved. Loading runs code, so the file must be trusted."""
    import joblib

    return cast(Model, joblib.load(path))


def train(path: Path, rows: Sequence[Takeoff]) -> None:
    """Train a model with ``rows``, and save it."""
    import joblib
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(random_state=0, n_estimators=20)
    model.fit(features(rows), [row.arr_delay for row in rows])
    joblib.dump(model, path)


def features(rows: Sequence[Takeoff]) -> np.ndarray[Any, Any]:
    """The columns from which the model predicts."""
    return np.array([[getattr(row, name) for name in FEATURES] for row in rows])


@cache
def takeoffs(month: int) -> list[Takeoff]:
    """The flights of a month of 2013 that arrived, in the order of the table."""
    table = flights[flights["month"] == month].dropna(subset=["dep_delay", "arr_delay"])
    rows = table[list(Takeoff._fields)].astype({"dep_delay": int, "arr_delay": int})
    return [Takeoff._make(row) for row in rows.itertuples(index=False, name=None)]


def takeoff(number: int) -> Takeoff:
    """A flight of February."""
    return takeoffs(FEBRUARY)[number]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("flight_scores", "Arrival delays of flights, predicted at takeoff.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    sink = CollectSink[Scored]()
    source = DataGeneratorSource(takeoff, count=len(takeoffs(FEBRUARY)), records_per_batch=10_000)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.joblib"
        train(path, takeoffs(JANUARY))
        scores(env.from_source(source), path).to_sink(sink)
        execute(env, "flight scores", options)
    rows = [
        (carrier, len(own), _mean(own, "expected"), _mean(own, "dep_delay"))
        for carrier in sorted({score.carrier for score in sink.results})
        for own in [[score for score in sink.results if score.carrier == carrier]]
    ]
    return Table("Mean error in minutes", ("carrier", "flights", "predicted", "delay at takeoff"), rows)


def _mean(scored: Sequence[Scored], guess: str) -> str:
    errors = [abs(getattr(score, guess) - score.arr_delay) for score in scored]
    return f"{sum(errors) / len(errors):.1f}"


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import flight_scores

    sys.exit(flight_scores.main())
