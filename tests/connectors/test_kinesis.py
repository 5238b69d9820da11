"""Kinesis passes the suites for connectors on moto's server. It has no resharding: see test_kinesis_protocol.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import boto3
import pytest

from components.s3 import S3Server
from dsv2.connectors.kinesis import KinesisSink, KinesisSource
from dsv2.testing.connectors import SinkTestSuite, SourceTestSuite
from tests.kinesis_fake import SECRET_KEY, options_of, text_of

NUMBERS = itertools.count()


UNREACHABLE = options_of("http://127.0.0.1:1")


class Stream:
    """A stream of moto's server, with two shards."""

    def __init__(self, endpoint: str) -> None:
        self.name, self.options = f"stream-{next(NUMBERS)}", options_of(endpoint)
        self.client: Any = boto3.Session().client("kinesis", **self.options)
        self.client.create_stream(StreamName=self.name, ShardCount=2)

    def add(self, shard: int, *data: bytes) -> None:
        for some in data:
            key = {"PartitionKey": "any", "ExplicitHashKey": str(shard << 127)}
            self.client.put_record(StreamName=self.name, Data=some, **key)

    def data(self) -> list[bytes]:
        found = []
        for shard in self.client.list_shards(StreamName=self.name)["Shards"]:
            at = {"StreamName": self.name, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
            iterator = self.client.get_shard_iterator(**at)["ShardIterator"]
            found += [record["Data"] for record in self.client.get_records(ShardIterator=iterator)["Records"]]
        return found


@pytest.fixture
def stream(s3_server: S3Server) -> Stream:
    return Stream(s3_server.endpoint)


class TestSource(SourceTestSuite[str]):
    new_splits = False
    secrets = (SECRET_KEY,)

    @pytest.fixture(autouse=True)
    def prepare(self, stream: Stream) -> None:
        self.stream = stream

    def create_source(self) -> KinesisSource[str]:
        return KinesisSource(self.stream.name, text_of, options=self.stream.options)

    def create_unreachable_source(self) -> KinesisSource[str]:
        return KinesisSource(self.stream.name, text_of, retries=0, options=UNREACHABLE)

    def add(self, split: int, texts: Sequence[str]) -> None:
        self.stream.add(split, *map(str.encode, texts))

    def add_undecodable(self, split: int) -> None:
        self.stream.add(split, b"\xff")


class TestSink(SinkTestSuite[str]):
    secrets = (SECRET_KEY,)

    @pytest.fixture(autouse=True)
    def prepare(self, stream: Stream) -> None:
        self.stream = stream

    def create_sink(self) -> KinesisSink[str]:
        return KinesisSink(self.stream.name, str.encode, options=self.stream.options)

    def create_unreachable_sink(self) -> KinesisSink[str]:
        return KinesisSink(self.stream.name, str.encode, retries=0, options=UNREACHABLE)

    def create_unwritable_record(self) -> str:
        return "\udcff"

    def read(self) -> Iterable[str]:
        return [data.decode() for data in self.stream.data()]
