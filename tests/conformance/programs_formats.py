"""Programs with decoders and encoders of Avro, Protobuf and JSON, which are sent to the workers of a runtime."""

from __future__ import annotations

from typing import NamedTuple

from dsv2 import ErrorPolicy
from dsv2.connectors.formats import (
    AvroDecoder,
    AvroEncoder,
    FormatError,
    JsonDecoder,
    JsonEncoder,
    ProtobufDecoder,
    ProtobufEncoder,
)
from tests import protobuf_messages as pb
from tests.conformance.functions import NUMBERS
from tests.conformance.harness import Pipeline, Program, Run

SCHEMA = """{"type": "record", "name": "Order", "fields": [
    {"name": "customer", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": null}]}"""


class Order(NamedTuple):
    """A record that Avro and JSON can represent."""

    customer: int
    note: str | None = None


ORDERS = [Order(number, f"note {number}" if number % 2 else None) for number in NUMBERS]


def order_of(number: int) -> Order:
    return ORDERS[number]


def message_of(order: Order) -> pb.Order:
    return pb.Order(customer=order.customer, cents=7)


class BytesAndBack(Program):
    """Records survive each format. Bytes that do not match become dead letters."""

    def build(self, p: Pipeline) -> None:
        p.env.register_type(pb.Order, take_apart=pb.Order.SerializeToString, build=pb.Order.FromString)
        orders = p.source(NUMBERS).map(order_of)
        avro = orders.map(AvroEncoder(Order, SCHEMA)).shuffle()
        p.collect(avro.map(AvroDecoder(Order, schema=SCHEMA)), "avro")
        p.collect(orders.map(JsonEncoder(Order)).shuffle().map(JsonDecoder(Order)), "json")
        messages = orders.map(message_of).shuffle().map(ProtobufEncoder(pb.Order)).shuffle()
        p.collect(messages.map(ProtobufDecoder(pb.Order)).map(lambda order: (order.customer, order.cents)), "protobuf")
        wrong = avro.map(JsonDecoder(Order)).with_error_policy(ErrorPolicy().dead_letter(FormatError))
        p.collect(wrong, "wrong")
        p.collect(wrong.dead_letters(bytes).map(lambda letter: letter.record), "letters")

    def check(self, run: Run) -> None:
        run.expect_all(*ORDERS, name="avro")
        run.expect_all(*ORDERS, name="json")
        run.expect_all(*((number, 7) for number in NUMBERS), name="protobuf")
        run.expect_all(name="wrong")
        run.expect_all(*map(AvroEncoder(Order, SCHEMA), ORDERS), name="letters")


PROGRAMS: tuple[Program, ...] = (BytesAndBack(),)
