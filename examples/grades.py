"""Grades and scores of the same students, joined by name (Flink ``Join``)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

from dsv2 import Collector, CollectSink, ExecutionEnvironment, NonKeyedPartitionStream, RuntimeContext
from dsv2.extension.join import JoinFunction, join
from examples.program import Table, execute, run_example

__all__ = ("Grade", "JoinGradesAndScores", "Result", "Score", "join_grades", "main")


class Grade(NamedTuple):
    """``name`` is in the ``grade``-th grade."""

    name: str
    grade: int


class Score(NamedTuple):
    """A score of ``name``."""

    name: str
    score: int


class Result(NamedTuple):
    """A grade and a score of the same student."""

    name: str
    grade: int
    score: int


GRADES = [Grade(name, 1 + place % 5) for place, name in enumerate(("Ada", "Bob", "Cleo", "Dan", "Eve", "Finn"))]
SCORES = [Score("Ada", 95), Score("Cleo", 81), Score("Eve", 77), Score("Ada", 88), Score("Gus", 60), Score("Bob", 72)]


class JoinGradesAndScores(JoinFunction[Grade, Score, Result]):
    """Called for every pair of records with the same name."""

    def process_record(self, left: Grade, right: Score, output: Collector[Result], ctx: RuntimeContext) -> None:
        output.collect(Result(left.name, left.grade, right.score))


def join_grades(
    grades: NonKeyedPartitionStream[Grade], scores: NonKeyedPartitionStream[Score]
) -> NonKeyedPartitionStream[Result]:
    """Join scores with grades. Students without a grade are omitted."""
    scores_by_name = scores.key_by(lambda score: score.name)
    joined = grades.key_by(lambda grade: grade.name).connect_and_process(scores_by_name, join(JoinGradesAndScores()))
    return joined.with_uid("grades and scores")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("grades", "Joins the grades and the scores of students.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    sink = CollectSink[Result]()
    join_grades(env.from_collection(GRADES, "grades"), env.from_collection(SCORES, "scores")).to_sink(sink)
    execute(env, "grades", options)
    return Table("Grades and scores", Result._fields, sorted(sink.results))


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import grades

    sys.exit(grades.main())
