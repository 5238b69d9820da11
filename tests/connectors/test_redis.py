"""Redis passes the suites for connectors, on a real server, and the cases that they do not have."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import redis

from components.redis import RedisServer
from dsv2.connectors.redis import RedisEntry, RedisSink, RedisSource, add_to_stream, set_key
from dsv2.errors import ConfigurationError, JobError
from dsv2.model import RecordBatch
from dsv2.sinks import SinkBatch, SinkInfo
from dsv2.testing.connectors import SinkTestSuite, SourceTestSuite
from dsv2.testing.connectors.source_run import SourceRun
from tests.durations import ms

NUMBERS = itertools.count()
UNREACHABLE = f"redis://:{RedisServer.PASSWORD.replace('/', '%2F')}@127.0.0.1:1"


@pytest.fixture
def client(redis_server: RedisServer) -> Any:
    return redis.Redis.from_url(redis_server.url)


def text_of(entry: RedisEntry) -> str:
    return entry.fields[b"text"].decode()


class StreamSuite(SourceTestSuite[str]):
    bounded = False
    new_splits = False
    secrets = (RedisServer.PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, redis_server: RedisServer, client: Any) -> None:
        self.url, self.client = redis_server.url, client
        self.streams = [f"stream {next(NUMBERS)}" for _ in range(self.splits)]

    def source(self, url: str, retry_ms: int) -> RedisSource[str]:
        retry = ms(retry_ms)
        return RedisSource(url, streams=self.streams, decode=text_of, bounded=self.bounded, retry_timeout=retry)

    def create_source(self) -> RedisSource[str]:
        return self.source(self.url, 60_000)

    def create_unreachable_source(self) -> RedisSource[str]:
        return self.source(UNREACHABLE, 100)

    def add(self, split: int, texts: Sequence[str]) -> None:
        for text in texts:
            self.client.xadd(self.streams[split], {"text": text})

    def add_undecodable(self, split: int) -> None:
        self.client.xadd(self.streams[split], {"no text": ""})


class TestStreams(StreamSuite): ...


class TestBoundedStreams(StreamSuite):
    bounded = True


class TestStreamSink(SinkTestSuite[str]):
    secrets = (RedisServer.PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, redis_server: RedisServer, client: Any) -> None:
        self.url, self.client = redis_server.url, client
        self.stream = f"stream {next(NUMBERS)}"

    def sink(self, url: str, retry_ms: int) -> RedisSink[str]:
        return RedisSink(url, add_to_stream(self.stream, lambda text: {"text": text}), retry_timeout=ms(retry_ms))

    def create_sink(self) -> RedisSink[str]:
        return self.sink(self.url, 60_000)

    def create_unreachable_sink(self) -> RedisSink[str]:
        return self.sink(UNREACHABLE, 100)

    def create_unwritable_record(self) -> str:
        return "\udcff"

    def read(self) -> Iterable[str]:
        return [fields[b"text"].decode() for _, fields in self.client.xrange(self.stream)]


def write(sink: RedisSink[Any], batch_id: int, *records: Any, job: str = "job") -> None:
    info = SinkInfo(job, "out", 1)
    sink.begin(info, batch_id)
    sink.write(SinkBatch(info, 0, batch_id, iter([RecordBatch(list(records))])))


def test_keys_are_set_counted_and_deleted(redis_server: RedisServer, client: Any) -> None:
    """In more than one part."""
    pairs: list[tuple[str, int | None]] = [(f"key {number % 700}", number) for number in range(2500)]
    keys = RedisSink[tuple[str, int | None]](redis_server.url, set_key(lambda pair: pair[0], lambda pair: pair[1]))
    write(keys, 0, *pairs, ("key 0", None), job="keys")
    assert (client.get("key 1"), client.get("key 399"), client.get("key 0")) == (b"2101", b"2499", None)
    count = RedisSink[tuple[str, int | None]](redis_server.url, lambda pair: ("INCRBY", "count", 1))
    for _ in range(3):
        write(count, 0, *pairs, job="count")
    assert client.get("count") == b"2500"


def test_micro_batch_continues_behind_a_command_that_failed(redis_server: RedisServer, client: Any) -> None:
    client.set("total of b", "no number")
    sink = RedisSink[str](redis_server.url, lambda name: ("INCRBY", f"total of {name}", 1))
    with pytest.raises(JobError, match=r"Cannot write at redis://.*not an integer"):
        write(sink, 7, "a", "b", "c", job="totals")
    client.set("total of b", 10)
    write(sink, 7, "a", "b", "c", job="totals")
    assert [client.get(f"total of {name}") for name in "abc"] == [b"1", b"11", b"1"]


def test_records_have_the_fields_and_timestamps_of_entries(redis_server: RedisServer, client: Any) -> None:
    client.xadd("fields", {"a": 1, b"\xff": ""}, id="5-7")
    source = RedisSource[RedisEntry](redis_server.url, streams=["fields", "none"], decode=lambda entry: entry)
    run = SourceRun(source)
    assert run.batch() == [RedisEntry("fields", "5-7", {b"a": b"1", b"\xff": b""})]
    assert [batch.timestamps for batch in run.batches()] == [[5]]


def test_entries_that_are_deleted_too_early_fail_the_job(redis_server: RedisServer, client: Any) -> None:
    for number in range(4):
        client.xadd("trimmed", {"text": number})
    run = SourceRun(RedisSource(redis_server.url, streams=["trimmed"], decode=text_of))
    assert run.batch(2) == ["0", "1"]
    client.xtrim("trimmed", minid=client.xrange("trimmed")[1][0], approximate=False)
    with pytest.raises(JobError, match="1 entries of the stream trimmed after 0-0 were deleted before they were read"):
        run.repeated()
    assert run.batch() == ["2", "3"]


def test_wrong_password_fails_at_once_and_is_not_shown(redis_server: RedisServer) -> None:
    url = redis_server.url.replace("s3cret", "wr-ng")
    with pytest.raises(JobError, match="invalid username-password pair") as failed:
        SourceRun(RedisSource(url, streams=["a"], decode=text_of)).batch()
    assert "wr-ng" not in str(failed.value)


def test_invalid_arguments() -> None:
    with pytest.raises(ConfigurationError, match="requires a URL that begins with redis://"):
        RedisSink("localhost:6379", str)
    for streams in ("a", [], ["a", "a"]):
        with pytest.raises(ConfigurationError, match="streams must be a list of different keys"):
            RedisSource("redis://localhost", streams=streams, decode=text_of)
    commands: list[Any] = ["SET a 1", (), ("SET", "a", None), ("SET", "a", True)]
    for command in commands:
        with pytest.raises(TypeError, match=r"A command is a sequence|Redis stores"):
            RedisSink[Any]("redis://localhost", lambda one: one).check_record(command)
