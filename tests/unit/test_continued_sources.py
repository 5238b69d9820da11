"""Local jobs whose sources have changed since the savepoint from which they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsv2 import ConfigurationError, ExecutionEnvironment, IncompatibleCheckpointError
from dsv2.folders import LocalFolder
from dsv2.local import LocalRuntime
from dsv2.program.checked_json import from_json, to_json
from dsv2.sinks import CollectSink
from dsv2.sources import BaseSource, CollectionSource
from dsv2.testing import Stop, TestSource
from tests.spans import Spans

SPANS = Spans({"a": 9, "b": 2}, limit=1)
SOURCES: dict[str, BaseSource[Any]] = {"spans": SPANS, "collection": CollectionSource([0, 1, 2, 3])}


def run(source: BaseSource[Any], folder: Path, *, stop: bool) -> list[Any]:
    """Run a job to the savepoint ``folder``, or from it to the end."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2]))
    sink = CollectSink[Any]()
    items: list[Any] = [1, 2, 3, 4, Stop(), 5] if stop else [1, 2, 3, 4, 5]
    env.from_source(TestSource[Any](items)).with_uid("clock").to_sink(CollectSink()).with_uid("ticks")
    env.from_source(source).with_uid("in").to_sink(sink).with_uid("out")
    job = env.execute_async("sources", savepoint=None if stop else folder)
    job.result()
    if stop:
        job.savepoint(folder)
    return sink.results


@pytest.mark.parametrize(("before", "now"), [("spans", "collection"), ("collection", "spans")])
def test_source_of_another_kind_is_refused(tmp_path: Path, before: str, now: str) -> None:
    first = run(SOURCES[before], tmp_path, stop=True)
    with pytest.raises(ConfigurationError, match=r"source .*uid 'in'.* is of another kind than the source whose"):
        run(SOURCES[now], tmp_path, stop=False)
    second = run(SOURCES[before], tmp_path, stop=False)
    assert len(first) + len(second) == (11 if before == "spans" else 4)


def test_position_of_a_streaming_dataframe_is_not_that_of_another_source(tmp_path: Path) -> None:
    run(SOURCES["collection"], tmp_path, stop=True)
    folder = LocalFolder(str(tmp_path))
    entry = from_json(folder.read("savepoint.json"))
    entry["sources"]["in"]["offset"] = {"position": 2, "streams": [{"a": 7}]}
    folder.write("savepoint.json", to_json(entry))
    with pytest.raises(ConfigurationError, match="is of another kind"):
        run(SOURCES["collection"], tmp_path, stop=False)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ([0, 1, 2, 3, 4, 5], [0, 1], "now holds 2 records, but 4 were read before"),
        ([0, 1], [0, 1, 2], "ended after 2 records but now holds 3"),
    ],
)
def test_source_with_other_content_is_refused(tmp_path: Path, before: list[int], now: list[int], said: str) -> None:
    run(CollectionSource(before), tmp_path, stop=True)
    with pytest.raises(IncompatibleCheckpointError, match=said):
        run(CollectionSource(now), tmp_path, stop=False)


def test_source_that_has_not_ended_may_have_more(tmp_path: Path) -> None:
    assert run(CollectionSource([0, 1, 2, 3, 4, 5]), tmp_path, stop=True) == [0, 1, 2, 3]
    assert run(CollectionSource([0, 1, 2, 3, 4, 5, 6]), tmp_path, stop=False) == [4, 5, 6]
