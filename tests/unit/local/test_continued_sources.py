"""Local jobs whose sources have changed since the savepoint from which they start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.base.folders import LocalFolder
from dsv2.checks.json_documents import from_json, to_json
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.sources import BaseSource, CollectionSource, DataclassSerializer, HybridSource, Portion, SplitSource
from dsv2.testing import Stop, TestSource
from tests.spans import Item, Span, Spans, everything

SPANS = Spans({"a": 9, "b": 2}, limit=1)


class OtherSpans(SplitSource[Item, Span]):
    """Another source, whose splits have the same fields."""

    bounded = True
    split_serializer = DataclassSerializer(Span)

    def discover(self) -> list[Span]:
        return SPANS.discover()

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        return SPANS.advance(split, limit)

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        return SPANS.read(start, stop)


class FasterSpans(Spans):
    """The same source."""


SOURCES: dict[str, BaseSource[Any]] = {"spans": SPANS, "collection": CollectionSource([0, 1, 2, 3])}


def run(source: BaseSource[Any], folder: Path, *, stop: bool, formerly: type | None = None) -> list[Any]:
    """Run a job to the savepoint ``folder``, or from it to the end. ``formerly``: The former class of the source."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2]))
    if formerly is not None:
        env.register_type(type(source), formerly=f"{formerly.__module__}.{formerly.__qualname__}")
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


READ_ONCE = sorted(everything(SPANS.ends))


def test_position_of_another_class_is_refused(tmp_path: Path) -> None:
    run(SPANS, tmp_path, stop=True)
    said = r"the source was a tests\.spans\.Spans and is now a .*OtherSpans.*set_position\('in', None\)"
    with pytest.raises(IncompatibleCheckpointError, match=said):
        run(OtherSpans(), tmp_path, stop=False)


@pytest.mark.parametrize(
    ("source", "formerly"),
    [(FasterSpans(SPANS.ends, limit=1), None), (OtherSpans(), Spans)],
    ids=["subclass", "renamed"],
)
def test_position_of_the_same_source_continues(tmp_path: Path, source: Any, formerly: type | None) -> None:
    first = run(SPANS, tmp_path, stop=True)
    assert first
    assert sorted(first + run(source, tmp_path, stop=False, formerly=formerly)) == READ_ONCE


def test_another_class_begins_after_the_position_was_dropped(tmp_path: Path) -> None:
    run(SPANS, tmp_path / "before", stop=True)
    Savepoint.open(tmp_path / "before").edit().set_position("in", None).write(tmp_path / "after")
    assert sorted(run(OtherSpans(), tmp_path / "after", stop=False)) == READ_ONCE


def test_sources_of_a_hybrid_source_keep_their_places(tmp_path: Path) -> None:
    def hybrid(*sources: Any) -> HybridSource[Item]:
        return HybridSource[Item](sources)

    first = run(hybrid(SPANS, SPANS), tmp_path, stop=True)
    for changed in (hybrid(OtherSpans(), SPANS), hybrid(SPANS, OtherSpans()), OtherSpans()):
        with pytest.raises(IncompatibleCheckpointError, match="which may read other data at its position"):
            run(changed, tmp_path, stop=False)
    longer = run(hybrid(SPANS, SPANS, OtherSpans()), tmp_path, stop=False)
    assert sorted(first + longer) == sorted(READ_ONCE * 3)
