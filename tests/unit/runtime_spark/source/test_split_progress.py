"""The splits of sources in the progress of a job, on both runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from dsv2 import CollectSink, ExecutionEnvironment, Trigger
from dsv2.connectors.kafka.choices import OnOffsetsOutOfRange
from dsv2.connectors.kafka.discovery import KafkaDiscovery
from dsv2.connectors.kafka.offsets import OffsetsInitializer
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.connectors.kafka.subscription import Subscription
from dsv2.jobs.progress import SplitProgress
from dsv2.local import LocalRuntime
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.sources.split_progress import MOST_SPLITS, with_event_times
from dsv2.sources import DataGeneratorSource, HybridSource
from dsv2.testing import ManualClock
from runtime_spark.checkpoint.source_reports import ReportFile
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.worker import pack_job
from runtime_spark.source.feeds import IndexedFeed, SplitFeed
from runtime_spark.source.frame_source import Feed, FrameStreamReader
from runtime_spark.source.split_files import SplitFile, SplitFiles
from tests.spans import Spans
from tests.support import local_environment, operator_named
from tests.unit.jobs.test_stuck_watermarks import START, Numbers, strategy


def splits_of(source: Any, *, batches: tuple[int, ...] = (), **options: Any) -> tuple[SplitProgress, ...]:
    """The splits when all that is available has been read."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(START), batches=batches))
    env.from_source(source, **options).with_uid("in").map(str).to_sink(CollectSink())
    return env.execute(trigger=Trigger.available_now()).progress.operators["in"].splits


def test_position_lag_and_event_time() -> None:
    assert splits_of(Numbers({"a": 9, "b": 3}, stop=4, limit=2, bounded=False), watermarks=strategy()) == (
        SplitProgress("a", 0, "4", 5, START + 2_999, moved_at_ms=START),
        SplitProgress("b", 0, "3", 0, START + 1_999, moved_at_ms=START),
    )


def test_a_split_that_ends() -> None:
    (split,) = splits_of(Numbers({"a": 2}, stop=9, limit=2))
    assert (split.position, split.lag, split.ended) == ("2", 0, True)


def test_a_source_that_does_not_know_its_lag() -> None:
    (split,) = splits_of(Spans({"a": 2}, bounded=False))
    assert (split.lag, split.event_time) == (None, None)


def test_the_current_source_of_a_hybrid_source() -> None:
    (split,) = splits_of(HybridSource([Numbers({"a": 2}, stop=9), Numbers({"b": 5}, stop=3, limit=1, bounded=False)]))
    assert (split.split, split.position, split.lag) == ("1/b", "3", 2)


def test_an_indexed_source_is_one_split() -> None:
    (split,) = splits_of(DataGeneratorSource(int, count=9))
    assert split == SplitProgress("0", 0, "9", 0, ended=True, moved_at_ms=START)
    (split,) = splits_of(DataGeneratorSource(int, records_per_batch=4))
    assert (split.position, split.lag, split.ended) == ("4", None, False)


def test_a_source_with_many_splits_reports_some() -> None:
    splits = [SplitProgress(f"{n:04}", 0, "x" * 999, lag=n, event_time=-n % 7, idle=n < 50) for n in range(1_000)]
    found = with_event_times(splits, {"0999": 10**6, "0998": None})
    assert len(found) == MOST_SPLITS
    assert [split.split for split in found] == sorted(split.split for split in found)
    assert {len(split.position) for split in found} == {200}
    assert {split.split: split.event_time for split in found}["0999"] == 10**6
    least = [split for split in splits if split.event_time == 0 and not split.idle]
    assert {split.split for split in least[:100]} <= {split.split for split in found}
    assert {split.split for split in splits[-120:]} <= {split.split for split in found}


class OneBroker:
    """A broker whose partition has messages from 3 to 9."""

    def partitions(self, topics: Any, pattern: Any) -> list[TopicPartition]:
        return [TopicPartition("t", 0)]

    def topic_ids(self, topics: Any) -> Mapping[str, str]:
        return dict.fromkeys(topics, "id")

    def earliest(self, partitions: Any) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 3)

    def latest(self, partitions: Any) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)


def test_the_lag_of_a_partition() -> None:
    subscription = Subscription(("t",), None, OffsetsInitializer.earliest(), None, OnOffsetsOutOfRange.FAIL)
    broker: Any = OneBroker()
    discovery = KafkaDiscovery(broker, subscription, None, commits=False)
    (split,) = discovery.discover()
    assert discovery.lag(split) is None, "the broker has not been asked yet"
    portion = discovery.advance(split, 2)
    assert portion is not None
    assert discovery.lag(portion.stop) == 5
    discovery.refresh()
    assert discovery.lag(portion.stop) == 5, "as of the last time that the broker was asked"


def test_splits_pass_from_planners_to_the_driver(tmp_path: Path) -> None:
    env = local_environment()
    source = Numbers({"a": 9}, stop=9, limit=4, bounded=False)
    env.from_source(source, watermarks=strategy()).with_uid("in").to_sink(CollectSink())
    numbers = DataGeneratorSource(int, count=5, records_per_batch=3)
    env.from_source(numbers).with_uid("numbers").to_sink(CollectSink())
    plan = env.build_plan()
    files, clock = SplitFiles(plan, str(tmp_path)), ManualClock(START)
    assert files.read() == {"in": (), "numbers": ()}
    operators = [operator_named(plan, uid) for uid in ("in", "numbers")]
    feeds: list[Feed] = [SplitFeed(source, ReportFile(str(tmp_path), operators[0].id)), IndexedFeed(numbers)]
    packed = pack_job(plan, Layout.of(plan), TypeRegistry.of(plan))
    for feed in feeds:
        feed.splits_folder = str(tmp_path)
    readers = [
        FrameStreamReader(feed, clock, b"", packed, operator.id, None)
        for feed, operator in zip(feeds, operators, strict=True)
    ]
    offsets = [reader.latestOffset(reader.initialOffset()) for reader in readers]
    files.note([{"source": "in", "splits": {"a": 77}}])
    assert files.read() == {
        "in": (SplitProgress("a", 0, "4", 5, 77, moved_at_ms=START),),
        "numbers": (SplitProgress("0", 0, "3", 2, moved_at_ms=START),),
    }
    clock.advance(timedelta(seconds=1))
    for reader, offset in zip(readers, offsets, strict=True):
        reader.latestOffset(offset)
    assert files.read() == {
        "in": (SplitProgress("a", 0, "8", 1, 77, moved_at_ms=START + 1_000),),
        "numbers": (SplitProgress("0", 0, "5", 0, ended=True, moved_at_ms=START + 1_000),),
    }


def test_splits_are_written_when_they_change(tmp_path: Path) -> None:
    file, path = SplitFile(str(tmp_path), 0), tmp_path / "0.splits"
    for position, is_written in (("1", True), ("1", False), ("2", True)):
        file.write((SplitProgress("a", 0, position),))
        assert path.exists() == is_written
        path.unlink(missing_ok=True)


def test_planners_are_not_disturbed_by_a_missing_folder(tmp_path: Path) -> None:
    SplitFile(str(tmp_path / "missing"), 0).write((SplitProgress("a", 0, "1"),))
    assert not (tmp_path / "missing").exists()
