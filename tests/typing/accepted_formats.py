"""The types of decoders and encoders, and of DataFrames in a job. Checked by ``test_typing.py``, never run."""

from __future__ import annotations

from typing import Any, NamedTuple, assert_type

from pyspark.sql import DataFrame

from dsv2.connectors.formats import (
    AvroDecoder,
    AvroEncoder,
    JsonDecoder,
    JsonEncoder,
    ProtobufDecoder,
    ProtobufEncoder,
    SchemaRegistry,
)
from dsv2.connectors.kafka import KafkaSink, KafkaSource, keys_and_values, values
from dsv2.streams import ConfiguredStream
from runtime_spark import through_dataframe
from tests import protobuf_messages as pb
from tests.typing.given import Given


class Order(NamedTuple):
    customer: int


def names(rows: DataFrame) -> DataFrame:
    return rows


def decoders(g: Given, registry: SchemaRegistry) -> None:
    avro = KafkaSource("s", topics="t", decode=values(AvroDecoder(Order, registry=registry)))
    assert_type(g.env.from_source(avro), ConfiguredStream[Order])
    rows = KafkaSource("s", topics="t", decode=values(AvroDecoder(dict, schema="{}")))  # pyright: ignore
    assert_type(g.env.from_source(rows), ConfiguredStream[dict[Any, Any]])  # pyright: ignore
    message = KafkaSource("s", topics="t", decode=values(ProtobufDecoder(pb.Order, registry=registry)))
    assert_type(g.env.from_source(message).map(lambda order: order.customer), ConfiguredStream[int])
    pairs = keys_and_values(AvroDecoder(int, schema='"long"'), JsonDecoder(Order))
    assert_type(
        g.env.from_source(KafkaSource("s", topics="t", decode=pairs)), ConfiguredStream[tuple[int | None, Order | None]]
    )
    assert_type(AvroDecoder(Order, registry=registry)(b""), Order)


def encoders(g: Given, registry: SchemaRegistry, orders: ConfiguredStream[Order]) -> None:
    key = AvroEncoder(int, '"long"', subject=registry.subject("orders", part="key"))
    value = AvroEncoder(Order, "{}", subject=registry.subject("orders"))
    orders.to_sink(KafkaSink("s", "orders", value, key=lambda order: key(order.customer)))
    orders.to_sink(KafkaSink("s", "orders", JsonEncoder(Order)))
    messages = orders.map(lambda order: pb.Order(customer=order.customer))
    messages.to_sink(KafkaSink("s", "orders", ProtobufEncoder(pb.Order)))


def dataframes(g: Given, orders: ConfiguredStream[Order]) -> None:
    assert_type(through_dataframe(g.env, orders, names, Order, dict[str, int]), ConfiguredStream[dict[str, int]])
    assert_type(through_dataframe(g.env, orders.key_by(hash), names, Order, Order), ConfiguredStream[Order])
