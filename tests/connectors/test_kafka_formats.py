"""Avro and Protobuf through a real broker, with a schema registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from components.kafka import KafkaBroker
from dsv2 import (
    Collector,
    DeadLetter,
    ErrorPolicy,
    ExecutionEnvironment,
    JobError,
    OneInputStreamProcessFunction,
    PartitionedContext,
)
from dsv2.arrow import records_of
from dsv2.arrow.schema import rows_to_table
from dsv2.connectors.formats import (
    AvroDecoder,
    AvroEncoder,
    FormatError,
    JsonDecoder,
    JsonEncoder,
    ProtobufDecoder,
    ProtobufEncoder,
    SchemaRegistry,
)
from dsv2.connectors.kafka import KafkaMessage, KafkaSink, KafkaSource, OffsetsInitializer, keys_and_values, values
from dsv2.errors import UserFunctionError
from dsv2.model import RecordBatch
from dsv2.sinks import CollectSink, DriverSink, SinkBatch, SinkInfo
from tests import protobuf_messages as pb
from tests.durations import ms
from tests.kafka_topics import Topics
from tests.schema_registry import RegistryServer
from tests.support import local_environment

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "customer", "type": "long"}, {"name": "cents", "type": ["null", "long"]}],
}


class Order(NamedTuple):
    customer: int
    cents: int | None


def environment() -> ExecutionEnvironment:
    env = local_environment(2)
    env.register_type(pb.Order, take_apart=pb.Order.SerializeToString, build=pb.Order.FromString)
    return env


def customer(order: Order) -> int:
    return order.customer


def as_message(pair: tuple[int | None, Order | None]) -> pb.Order:
    key, order = pair
    assert order is not None
    assert key == order.customer
    return pb.Order(customer=order.customer, cents=order.cents or 0)


def test_from_avro_to_protobuf(kafka_broker: KafkaBroker) -> None:
    topics = Topics(kafka_broker.bootstrap_servers)
    servers, orders, protos = topics.bootstrap_servers, topics.create(2), topics.create(2)
    with RegistryServer("user:secret") as server:
        registry = SchemaRegistry(server.url, {"basic.auth.user.info": "user:secret", "max.retries": 0})
        key = AvroEncoder(int, '"long"', subject=registry.subject(orders, part="key", auto_register=True))
        value = AvroEncoder(Order, ORDER, subject=registry.subject(orders, auto_register=True))
        written = [Order(number, number * 10 or None) for number in range(200)]
        sink = KafkaSink(servers, orders, value, key=lambda order: key(customer(order)), retry_timeout=ms(120_000))
        sink.write(SinkBatch(SinkInfo("job", "avro", 1), 0, 0, iter([RecordBatch(written)])))

        decode = keys_and_values(AvroDecoder(int, registry=registry), AvroDecoder(Order, registry=registry))
        latest = OffsetsInitializer.latest()
        env, found = environment(), CollectSink[pb.Order]()
        source = KafkaSource(servers, topics=orders, decode=decode, stopping_offsets=latest)
        env.from_source(source).map(as_message).shuffle().map(lambda message: message).to_sink(found)
        env.execute("decode")
        assert sorted(message.customer for message in found.results) == list(range(200))

        encode = ProtobufEncoder(pb.Order, subject=registry.subject(protos, auto_register=True))
        output = KafkaSink(servers, protos, encode, retry_timeout=ms(120_000))
        output.write(SinkBatch(SinkInfo("job", "proto", 1), 0, 0, iter([RecordBatch(found.results)])))
        env, messages = environment(), CollectSink[int]()
        proto = values(ProtobufDecoder(pb.Order, registry=registry))
        again = KafkaSource(servers, topics=protos, decode=proto, stopping_offsets=latest)
        env.from_source(again).map(lambda order: order.cents).to_sink(messages)
        env.execute("read again")
        assert sorted(messages.results) == [number * 10 for number in range(200)]
        assert server.subjects() == sorted([f"{orders}-key", f"{orders}-value", f"{protos}-value", "shop/money.proto"])

        topics.send(orders, [b"\0\0\0\0\2\x80"], key=None)
        env = local_environment()
        env.from_source(KafkaSource(servers, topics=orders, decode=decode, stopping_offsets=latest)).to_sink(
            CollectSink()
        )
        named = rf"(?s)FormatError: .*\(schema 2, shop.Order\).*topic='{orders}', partition=0, offset=\d+"
        with pytest.raises(UserFunctionError, match=named):
            env.execute("undecodable")


class Stamped(OneInputStreamProcessFunction[Order, tuple[Order, int | None]]):
    """Each record with its timestamp."""

    def process_record(self, record: Order, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect((record, ctx.timestamp))


@pytest.mark.parametrize(
    ("messages", "in_columns"),
    [
        ([b'{"customer": 1, "cents": null}', b'{\n"customer": 2, "cents": 5}'], True),
        ([b'{"customer": 1, "cents": 7}', None, b'{"cents": 9, "customer": 3}'], False),
        ([b'{"customer": 1, "cents": 7}', b"{}", b'{"customer": 2, "cents": 1}', b""], False),
    ],
)
def test_columns_of_json_are_those_of_single_messages(
    kafka_broker: KafkaBroker, messages: list[bytes | None], in_columns: bool
) -> None:
    topics = Topics(kafka_broker.bootstrap_servers)
    servers, topic, latest = topics.bootstrap_servers, topics.create(), OffsetsInitializer.latest()
    topics.send(topic, messages, timestamp=1_700_000_000_000)
    columnar, found = list[bool](), []
    for to_tables in (False, True):
        env, records, letters = local_environment(), CollectSink[Any](), CollectSink[DeadLetter[KafkaMessage]]()
        source = KafkaSource(servers, topics=topic, decode=values(JsonDecoder(Order)), stopping_offsets=latest)
        stream = env.from_source(source).with_uid("in").with_error_policy(ErrorPolicy().dead_letter(FormatError))
        stream.dead_letters(KafkaMessage).to_sink(letters)
        stream.process(Stamped()).to_sink(records)
        if to_tables:
            stream.to_sink(Columns(columnar))
        env.execute()
        found.append((records.results, [(letter.record, letter.position) for letter in letters.results]))
    assert found[0] == found[1]
    assert columnar == [in_columns]
    assert {timestamp for _, timestamp in found[0][0]} == {1_700_000_000_000}


class Columns(DriverSink[Order]):
    """Notes in ``found`` whether the records of a batch arrive as columns."""

    def __init__(self, found: list[bool]) -> None:
        self.found = found

    @property
    def dsv2_tables_of(self) -> type:
        return Order

    def write_batch(self, batches: Sequence[RecordBatch[Order]], batch_id: int) -> None:
        self.found += [batch.is_columnar for batch in batches]


def test_columns_are_messages(kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics(kafka_broker.bootstrap_servers)
    servers, topic, latest = topics.bootstrap_servers, topics.create(), OffsetsInitializer.latest()
    orders = [Order(number, number * 10 or None) for number in range(2_000)]
    records = records_of(rows_to_table(orders, Order), Order)
    sink = KafkaSink(servers, topic, JsonEncoder(Order), retry_timeout=ms(120_000))
    with monkeypatch.context() as patch:
        patch.setattr(JsonEncoder, "__call__", lambda self, record: pytest.fail("encodes a row"))
        batches = [RecordBatch(records[:1_500], [5 + number for number in range(1_500)]), RecordBatch(records[1_500:])]
        sink.write(SinkBatch(SinkInfo("job", "json", 1), 0, 0, iter(batches)))
    env, found = local_environment(), CollectSink[Any]()
    source = KafkaSource(servers, topics=topic, decode=values(JsonDecoder(Order)), stopping_offsets=latest)
    env.from_source(source).process(Stamped()).to_sink(found)
    env.execute()
    assert [order for order, _ in found.results] == orders
    assert [time for _, time in found.results[:1_500]] == [5 + number for number in range(1_500)]
    wrong = RecordBatch(records[:1], [0])
    with pytest.raises(JobError, match=r"Cannot write the record b'\{\"customer\":0.*has the timestamp 0"):
        sink.write(SinkBatch(SinkInfo("job", "json", 1), 0, 1, iter([wrong])))
