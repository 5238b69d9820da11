"""Sinks of one job that would overwrite each other's records, and sink objects that are used more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.arrow import ArrowForeachBatchSink
from dsv2.errors import ConfigurationError
from dsv2.local import LocalRuntime
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import CollectSink, FileSink, ForeachBatchSink, ParallelSink, PrintSink, Sink, SinkBatch, SinkInfo
from dsv2.sinks.paths import contains, normalized


class Number(NamedTuple):
    n: int


def plan_with(*sinks: Sink[Any]) -> None:
    env = ExecutionEnvironment.get_instance("local")
    numbers = env.from_collection([Number(1), Number(2), Number(3)])
    for index, sink in enumerate(sinks):
        numbers.to_sink(sink).with_name(f"Sink {index}")
    env.build_plan()


def files(path: str | Path) -> FileSink[Any]:
    return FileSink(path, schema="n int")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("/data/out", "/data/out"),
        ("/data/out", "/data/out/"),
        ("/data/out", "/data//./x/../out"),
        ("/data/out", "file:/data/out"),
        ("file:///data/out", "file://localhost/data/out/"),
        ("/data/a [1]*{b}%20", "/data/a [1]*{b}%20/"),
        ("s3a://bucket/out", "s3a://bucket/out/"),
        ("hdfs:/out", "hdfs:/x/../out"),
    ],
)
def test_two_file_sinks_with_one_path_are_refused(first: str, second: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        plan_with(files(first), files(second))
    text = str(refused.value)
    assert text.startswith(f"The sinks Sink 0 at {__file__}:")
    assert f" and Sink 1 at {__file__}:" in text
    assert f"both write to {first}, and a folder belongs to one sink" in text


def test_links_and_relative_paths_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    for other in ("out", "./link", tmp_path / "link"):
        with pytest.raises(ConfigurationError, match="both write to"):
            plan_with(files(tmp_path / "out"), files(other))


def test_nested_file_sinks_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="/data/out and /data/out/late are nested"):
        plan_with(files("/data/out"), files("/data/out/late"))
    with pytest.raises(ConfigurationError, match="are nested"):
        plan_with(files("s3a://bucket/out/late"), files("s3a://bucket/out"))


def test_separate_folders_are_accepted() -> None:
    plan_with(files("/data/out"), files("/data/out2"), files("/data/other"), files("s3a://data/out"), CollectSink())
    assert not contains(normalized("s3a://bucket/out"), normalized("s3a://bucket/out-late"))


def test_one_file_sink_for_two_streams_is_refused() -> None:
    sink = files("/data/out")
    with pytest.raises(ConfigurationError, match="both write to /data/out"):
        plan_with(sink, sink)


@pytest.mark.parametrize(
    "make",
    [lambda: ForeachBatchSink(lambda records, batch_id: None), lambda: ArrowForeachBatchSink(ignore, of=Number)],
)
def test_one_function_for_two_streams_is_refused(make: Callable[[], Sink[Any]]) -> None:
    """It would receive each batch id twice, and drops repeated batches by id."""
    sink = make()
    with pytest.raises(ConfigurationError, match="cannot distinguish their micro-batches"):
        plan_with(sink, sink)
    plan_with(make(), make())


def ignore(table: pa.Table, batch_id: int) -> None: ...


class Written(ParallelSink[int]):
    def write(self, batch: SinkBatch[int]) -> None: ...


@pytest.mark.parametrize("sink", [CollectSink[int](), PrintSink[int](), Written()])
def test_sinks_that_distinguish_streams_may_be_used_twice(sink: Sink[int]) -> None:
    plan_with(sink, sink)


def test_collect_sink_of_two_streams_has_all_records() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2]))
    sink = CollectSink[int]()
    env.from_collection([1, 2, 3]).to_sink(sink)
    env.from_collection([10, 20, 30]).to_sink(sink)
    env.execute()
    assert sink.results == [1, 2, 3, 10, 20, 30]


def test_collect_sink_of_two_runs_has_all_records() -> None:
    sink = CollectSink[int]()
    for numbers in ([1, 2, 3], [4, 5]):
        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2]))
        env.from_collection(numbers).to_sink(sink)
        env.execute()
    assert sink.results == [1, 2, 3, 4, 5]


def test_repeated_micro_batch_is_collected_once() -> None:
    sink = CollectSink[int]()
    for batch_id, records in ((0, [1]), (1, [2]), (1, [2]), (2, [3])):
        sink.write_batch([RecordBatch(records)], batch_id)
    assert sink.results == [1, 2, 3]


def test_results_are_read_while_another_stream_begins() -> None:
    sink = CollectSink[int]()

    class Interrupted(dict[int, list[int]]):
        """Batches of a stream. A job writes those of another one when they are read."""

        def __iter__(self) -> Iterator[int]:
            sink.write(SinkInfo("job", "third", 1), [RecordBatch([3])], 0)
            return super().__iter__()

        def items(self) -> Any:
            return [(number, self[number]) for number in self]

    for uid, record in (("first", 1), ("second", 2)):
        sink.write(SinkInfo("job", uid, 1), [RecordBatch([record])], 0)
    sink._batches["job", "first"] = Interrupted({0: [1]})
    assert sink.results == [1, 2]
    assert sink.results == [1, 2, 3]
