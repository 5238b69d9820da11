"""Kinesis with a fake of its protocol: resharding, starts, limits, expiry and partial failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dsv2.connectors.kinesis import KinesisRecord, KinesisSink, KinesisSource
from dsv2.errors import ConfigurationError, JobError, SchemaError
from dsv2.model import RecordBatch
from dsv2.runtime.sources.offsets import BEFORE_START, SourceOffset
from dsv2.sinks import SinkBatch, SinkInfo
from dsv2.testing import ManualClock
from dsv2.testing.connectors.source_run import SourceRun
from tests.kinesis_fake import FakeKinesis, options_of, text_of


@pytest.fixture
def kinesis() -> Iterator[FakeKinesis]:
    with FakeKinesis() as server:
        yield server
        server.shutdown()


class Job:
    """A job that reads the fake, and passes a second before each micro-batch."""

    def __init__(self, kinesis: FakeKinesis, **options: Any) -> None:
        self.kinesis, self.options = kinesis, options
        self.run = self.started()

    def started(self, offset: SourceOffset = BEFORE_START) -> SourceRun:
        """Return a new run, which begins at ``offset``."""
        source = KinesisSource("clicks", text_of, **{"options": options_of(self.kinesis.endpoint), **self.options})
        return SourceRun(source, offset, clock=ManualClock(1000 * self.kinesis.now))

    def restart(self) -> None:
        self.run.close()
        self.run = self.started(self.run.offset)

    def batch(self, limit: int | None = None, *, seconds: int = 1) -> list[str]:
        """Return the records of the next micro-batch, ordered as they were read."""
        clock: Any = self.run.clock
        clock.advance(timedelta(seconds=seconds))
        found = self.run.batch(limit)
        assert not found or self.run.repeated() == found
        return found


def test_records_have_what_kinesis_knows(kinesis: FakeKinesis) -> None:
    kinesis.add(1, "a")
    options: Any = options_of(kinesis.endpoint)
    run = SourceRun(KinesisSource[KinesisRecord]("clicks", lambda record: record, options=options))
    (record,) = run.batch()
    assert record[:1] + record[2:] == ("shardId-000000000001", "any", b"a", 1000 * kinesis.now)
    assert [batch.timestamps for batch in run.batches()] == [[1000 * kinesis.now]]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_split_and_merged_shards_are_read_before_those_that_follow(kinesis: FakeKinesis, is_restarted: bool) -> None:
    """Shards 0 and 1, of which 0 is split into 2 and 3, and 3 and 1 are merged into 4."""
    job = Job(kinesis)
    kinesis.add(0, "0a", "0b", "0c")
    assert job.batch(2) == ["0a", "0b"]
    kinesis.add(1, "1a", "1b")
    kinesis.split(0)
    kinesis.add(2, "2a")
    kinesis.add(3, "3a", "3b")
    kinesis.merge(3, 1)
    kinesis.add(4, "4a")
    found = []
    while some := job.batch(2, seconds=10):
        found += some
        if is_restarted:
            job.restart()
    assert sorted(found) == ["0c", "1a", "1b", "2a", "3a", "3b", "4a"]
    for before, after in (("0c", "2a"), ("0c", "3a"), ("3b", "4a"), ("1b", "4a")):
        assert found.index(before) < found.index(after)
    kinesis.add(4, "4b")
    assert job.batch() == ["4b"]
    assert {split.split for split in job.run.driver.splits()} == {"shardId-000000000002", "shardId-000000000004"}


def test_shards_that_follow_are_read_in_one_run_over_what_exists(kinesis: FakeKinesis) -> None:
    kinesis.add(0, "0a")
    kinesis.split(0)
    kinesis.add(2, "2a")
    job, found = Job(kinesis), list[str]()
    first = job.run.driver.next(job.run.offset)
    while (there := job.run.driver.next(first, refresh=False)) != first:
        job.run.offset = first = there
        found += job.run.repeated()
    assert found == ["2a"]


@pytest.mark.parametrize(
    ("start", "found"),
    [("trim_horizon", ["old", "later", "new"]), ("latest", ["new"]), (datetime.fromtimestamp(1_800_000_100, UTC), [])],
)
def test_start(kinesis: FakeKinesis, start: Any, found: list[str]) -> None:
    kinesis.now = 1_800_000_000
    kinesis.add(0, "old")
    kinesis.now += 100
    kinesis.add(0, "later")
    kinesis.now += 10
    job = Job(kinesis, start=start)
    assert job.batch() == (["later"] if not found else found[:-1])
    job.restart()
    kinesis.now += 10
    kinesis.add(0, "new")  # while the job does not run
    job.restart()
    assert job.batch() == ["new"]
    kinesis.split(1)
    kinesis.add(2, "of a new shard")
    assert job.batch(seconds=10) + job.batch() == ["of a new shard"]


def test_latest_is_kept_until_there_are_records(kinesis: FakeKinesis) -> None:
    kinesis.add(0, "old")
    kinesis.now += 1
    job = Job(kinesis, start="latest")
    assert job.batch() == []
    job.run.plan_next()
    kinesis.add(0, "new")
    kinesis.now += 100
    job.restart()
    assert job.batch() == ["new"]


def test_parts_without_records_are_passed(kinesis: FakeKinesis) -> None:
    kinesis.add(0, "a")
    kinesis.empty_pages = 5
    assert Job(kinesis).batch() == ["a"]


def test_requests_above_limits_and_with_expired_iterators_are_repeated(kinesis: FakeKinesis) -> None:
    job = Job(kinesis)
    kinesis.add(0, "a", "b")
    assert job.batch(1) == ["a"]
    kinesis.age += 1
    kinesis.errors = ["ProvisionedThroughputExceededException"]
    assert job.batch() == ["b"]
    kinesis.errors = ["ProvisionedThroughputExceededException"] * 3  # more than boto3 repeats with retries=1
    assert Job(kinesis, retries=1).batch() == ["a", "b"]
    kinesis.errors = ["ProvisionedThroughputExceededException"]
    impatient = Job(kinesis, retries=0)
    with pytest.raises(JobError, match=r"Cannot read shardId-000000000000 of the stream clicks: .*ThroughputExceeded"):
        impatient.batch()


def test_shards_that_were_read_are_asked_once_a_second(kinesis: FakeKinesis) -> None:
    job = Job(kinesis)
    for seconds, calls in ((0, 2), (0, 2), (1, 4), (0, 4)):
        assert job.batch(seconds=seconds) == []
        assert kinesis.calls["GetRecords"] == calls
    assert kinesis.calls["GetShardIterator"] == 2


def test_expired_positions_fail_the_job(kinesis: FakeKinesis) -> None:
    job = Job(kinesis)
    kinesis.add(0, "a", "b", "c")
    assert job.batch(1) == ["a"]
    kinesis.delete(0, 2)
    kinesis.now += 25 * 3600
    job.restart()
    with pytest.raises(JobError, match=r"The position of shardId-0+ in the stream clicks has expired: the last record"):
        job.batch()
    job.options["skip_expired"] = True
    job.restart()
    assert job.batch() == ["c"]
    kinesis.add(0, "d")
    assert job.batch() == ["d"]


def test_shards_with_recent_positions_have_not_expired(kinesis: FakeKinesis) -> None:
    job = Job(kinesis)
    kinesis.add(0, "a", "b")
    assert job.batch(1) == ["a"]
    kinesis.now += 23 * 3600
    job.restart()
    assert job.batch() == ["b"]


def test_records_that_are_deleted_before_they_are_read_fail_the_job(kinesis: FakeKinesis) -> None:
    job = Job(kinesis)
    kinesis.add(0, "a", "b")
    job.run.plan_next()
    kinesis.delete(0, 1)
    kinesis.add(0, "c")
    with pytest.raises(JobError, match=r"1 records of shardId-0+ in the stream clicks up to \d+ were deleted before"):
        job.run.repeated()
    tolerant = Job(kinesis, skip_expired=True)
    tolerant.run.offset = job.run.offset
    assert tolerant.run.repeated() == ["b"]
    assert tolerant.batch() == ["c"]


def test_shards_that_are_deleted_before_they_are_read_fail_the_job(kinesis: FakeKinesis) -> None:
    job = Job(kinesis)
    kinesis.add(0, "a", "b")
    assert job.batch(1) == ["a"]
    kinesis.split(0)
    kinesis.add(2, "c")
    kinesis.forget(0)
    with pytest.raises(JobError, match="has no shard shardId-000000000000 any more"):
        job.batch(seconds=10)
    job.options["skip_expired"] = True
    job.restart()
    assert job.batch() == ["c"]


def write(sink: KinesisSink[Any], records: Sequence[Any]) -> None:
    sink.write(SinkBatch(SinkInfo("job", "out", 1), 0, 0, iter([RecordBatch(list(records))])))


def sink_of(kinesis: FakeKinesis, **options: Any) -> KinesisSink[bytes]:
    return KinesisSink("clicks", bytes, options=options_of(kinesis.endpoint), **options)


def test_requests_have_limits(kinesis: FakeKinesis) -> None:
    write(sink_of(kinesis), [b"%d" % number for number in range(1001)])
    assert [len(data) for data in kinesis.put] == [500, 500, 1]
    kinesis.put.clear()
    write(sink_of(kinesis, partition_key=lambda data: "key"), [bytes(1 << 20)[3:]] * 11)
    assert [len(data) for data in kinesis.put] == [5, 5, 1]


def test_only_refused_records_are_repeated(kinesis: FakeKinesis) -> None:
    kinesis.refused = [b"b", b"b", b"d"]
    write(sink_of(kinesis), [b"a", b"b", b"c", b"d"])
    assert kinesis.put == [[b"a", b"b", b"c", b"d"], [b"b", b"d"], [b"b"]]
    kinesis.refused = [b"a"] * 2
    with pytest.raises(JobError, match=r"refused 1 records at last: ProvisionedThroughput.*: Rate exceeded"):
        write(sink_of(kinesis, retries=1), [b"a", b"b"])


def test_partition_keys(kinesis: FakeKinesis) -> None:
    write(sink_of(kinesis, partition_key=lambda data: data.decode()[0]), [b"a1", b"b2"])
    write(sink_of(kinesis), [b"a1"])
    keys = [record["PartitionKey"] for record in kinesis.shards["shardId-000000000000"].records]
    assert keys == ["a", "b", "8a8bb7cd343aa2ad99b7d762030857a2"]


def test_invalid_records_are_refused_before_they_are_written(kinesis: FakeKinesis) -> None:
    data: Any
    for key, data, message in (
        ("", b"a", "A partition key of .* must have 1 to 256 characters"),
        ("k" * 257, b"a", "A partition key of"),
        ("k", "text", "must be bytes, not str"),
        ("k", bytes(1 << 20), "has 1048577 bytes, more than max_record_bytes"),
    ):
        sink = KinesisSink[Any]("clicks", lambda data: data, partition_key=lambda _, key=key: key)  # type: ignore[misc]
        with pytest.raises(SchemaError, match=message):
            sink.check_record(data)


def test_missing_stream_fails_the_job_at_its_start(kinesis: FakeKinesis) -> None:
    sink = KinesisSink[bytes]("other", bytes, options=options_of(kinesis.endpoint))
    with pytest.raises(JobError, match=r"Cannot describe the stream other: .*ResourceNotFoundException"):
        sink.begin(SinkInfo("job", "out", 1), 0)


def test_invalid_arguments() -> None:
    for options, message in (
        ({"stream": ""}, "requires the name or the ARN of a stream"),
        ({"options": {"region": "eu-west-1"}}, "has no option 'region'. There are region_name"),
        ({"retries": -1}, "retries must be a whole number of at least 0"),
        ({"start": "earliest"}, "start must be 'trim_horizon', 'latest' or a datetime, not 'earliest'"),
        ({"start": datetime(2024, 1, 1)}, "start must have a time zone"),
        ({"records_per_batch": 0}, "records_per_batch must be a whole number of at least 1"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            KinesisSource(**{"stream": "clicks", "decode": text_of, **options})  # type: ignore[arg-type]
