"""Decoders and encoders with other types than the stream, and DataFrames of other records."""

from __future__ import annotations

from typing import NamedTuple

from dsv2.connectors.formats import AvroDecoder, AvroEncoder, JsonDecoder, ProtobufDecoder, SchemaRegistry
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from dsv2.streams import ConfiguredStream
from runtime_spark import through_dataframe
from tests.typing.given import Given


class Order(NamedTuple):
    customer: int


class Refund(NamedTuple):
    customer: int


def refused(g: Given, registry: SchemaRegistry, orders: ConfiguredStream[Order]) -> None:
    source = KafkaSource("s", topics="t", decode=values(AvroDecoder(Order, registry=registry)))
    g.env.from_source(source).map(lambda order: order.cents)  # E: attr-defined
    ProtobufDecoder(Order)  # E: type-var
    AvroDecoder(Order, schema=3)  # E: arg-type
    JsonDecoder(Order(1))  # E: arg-type
    registry.subject("orders", strategy="class")  # E: arg-type
    orders.to_sink(KafkaSink("s", "orders", AvroEncoder(Refund, "{}")))  # E: arg-type
    through_dataframe(g.env, orders, lambda rows: rows.count(), Order, Order)  # E: arg-type, return-value
