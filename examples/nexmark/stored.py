"""The events of an auction in Parquet files and in topics of Kafka: streams of them, and their writers."""

from __future__ import annotations

from pathlib import Path

from dsv2 import ExecutionEnvironment, FileSink
from dsv2.connectors.files import FilesSource, parquet_records
from dsv2.connectors.formats import JsonDecoder, JsonEncoder
from dsv2.connectors.kafka import KafkaSink, KafkaSource, OffsetsInitializer, values
from dsv2.sources import BaseSource
from examples.nexmark.events import Auction, Bid, Person
from examples.nexmark.source import EventT, NexmarkStreams

__all__ = ("NexmarkFiles", "NexmarkTopics", "write_files", "write_topics")


def write_files(nexmark: NexmarkStreams, folder: Path) -> None:
    """Write Parquet files when the job is executed, in one folder for each class of events."""
    nexmark.people.to_sink(FileSink(folder / "person", schema=Person))
    nexmark.auctions.to_sink(FileSink(folder / "auction", schema=Auction))
    nexmark.bids.to_sink(FileSink(folder / "bid", schema=Bid))


class NexmarkFiles(NexmarkStreams):
    """The streams of events in files.

    Args:
        env: The environment.
        folder: The folder that ``write_files`` has filled.
    """

    def __init__(self, env: ExecutionEnvironment, folder: Path) -> None:
        super().__init__(env)
        self._folder = folder

    def source_of(self, kind: type[EventT], /) -> BaseSource[EventT]:
        return FilesSource(self._folder / kind.__name__.lower(), parquet_records(kind))


def write_topics(nexmark: NexmarkStreams, servers: str) -> None:
    """Write JSON to the topics ``person``, ``auction`` and ``bid`` when the job is executed.

    Events keep their order in topics with one partition.
    """
    nexmark.people.to_sink(KafkaSink(servers, "person", JsonEncoder(Person), delivery="at-least-once"))
    nexmark.auctions.to_sink(KafkaSink(servers, "auction", JsonEncoder(Auction), delivery="at-least-once"))
    nexmark.bids.to_sink(KafkaSink(servers, "bid", JsonEncoder(Bid), delivery="at-least-once"))


class NexmarkTopics(NexmarkStreams):
    """The streams of events in topics, up to their ends when the job starts.

    Args:
        env: The environment.
        servers: The brokers.
    """

    def __init__(self, env: ExecutionEnvironment, servers: str) -> None:
        super().__init__(env)
        self._servers = servers

    def source_of(self, kind: type[EventT], /) -> BaseSource[EventT]:
        return KafkaSource(
            self._servers,
            topics=[kind.__name__.lower()],
            decode=values(JsonDecoder(kind)),
            stopping_offsets=OffsetsInitializer.latest(),
        )
