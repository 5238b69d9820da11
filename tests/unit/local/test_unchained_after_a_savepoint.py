"""Operators that are chained in a savepoint, and no longer after a change of the parallelism."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.sinks import CollectSink
from dsv2.testing import Stop, TestSource
from tests.conformance.functions import Pass


def run(folder: Path, first: int, second: int, *, savepoint: bool) -> list[int]:
    """Two functions, the second of which is chained if the parallelisms are equal, behind a source that ends at once.

    The job itself stops, because another source does.
    """
    env = ExecutionEnvironment.get_instance(runtime="local")
    others = env.from_source(TestSource[int]([1, 2, Stop(), 3])).with_uid("others")
    others.to_sink(CollectSink()).with_uid("nowhere")
    ended = env.from_collection([5, 6]).with_uid("ended").shuffle()
    kept = ended.process(Pass()).with_uid("first").with_parallelism(first)
    sink = CollectSink[int]()
    kept.process(Pass()).with_uid("second").with_parallelism(second).to_sink(sink).with_uid("sink")
    if savepoint:
        job = env.execute_async("unchained")
        job.await_termination()
        job.savepoint(folder / "savepoint")
    else:
        env.execute("unchained", savepoint=folder / "savepoint")
    return list(sink.results)


@pytest.mark.parametrize("before", [(1, 1), (2, 2), (1, 2)])
@pytest.mark.parametrize("after", [(1, 2), (2, 1), (3, 3)])
def test_end_of_input_is_received_once(before: tuple[int, int], after: tuple[int, int], tmp_path: Path) -> None:
    assert sorted(run(tmp_path, *before, savepoint=True)) == [5, 6]
    assert run(tmp_path, *after, savepoint=False) == []
