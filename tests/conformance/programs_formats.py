"""Programs with decoders and encoders of Avro, Protobuf and JSON, which are sent to the workers of a runtime."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import narwhals as nw

from dsv2 import ErrorPolicy
from dsv2.connectors.files import FilesSource, csv_records
from dsv2.connectors.formats import (
    AvroDecoder,
    AvroEncoder,
    FormatError,
    JsonDecoder,
    JsonEncoder,
    ProtobufDecoder,
    ProtobufEncoder,
    json_records,
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


@cache
def folder_with_orders() -> TemporaryDirectory[str]:
    """A folder with the orders as lines of JSON and as rows of CSV. One line and one row have no number."""
    folder = TemporaryDirectory()
    lines = [JsonEncoder(Order)(order).decode() for order in ORDERS]
    Path(folder.name, "orders.json").write_text("\n".join([*lines[:3], '{"customer": "x"}', *lines[3:]]))
    rows = [f'{order.customer},"{order.note or ""}"' for order in ORDERS]
    Path(folder.name, "orders.csv").write_text("\n".join(["customer,note", *rows[:3], "x,", *rows[3:]]))
    return folder


class FilesInColumns(Program):
    """Files of JSON and CSV are decoded to columns. What does not match becomes a dead letter."""

    def build(self, p: Pipeline) -> None:
        for kind, file_format in (("json", json_records(Order)), ("csv", csv_records(Order))):
            source = FilesSource(folder_with_orders().name, file_format, pattern=f"*.{kind}")
            orders = p.env.from_source(source, kind).with_error_policy(ErrorPolicy().dead_letter(Exception))
            p.collect(orders.where(nw.col("customer") > 1), kind)
            p.collect(
                orders.dead_letters(object).map(lambda letter: letter.position and letter.position.offset),
                f"{kind} letters",
            )

    def check(self, run: Run) -> None:
        for kind, line in (("json", 4), ("csv", 5)):
            run.expect_all(*(order for order in ORDERS if order.customer > 1), name=kind)
            run.expect_all(line, name=f"{kind} letters")


PROGRAMS: tuple[Program, ...] = (BytesAndBack(), FilesInColumns())
