"""Decoders and encoders with a schema registry: the wire format, caches, subjects, failures, secrets."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import CollectSink, JobError
from dsv2.checkpoint.description import describe
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
from dsv2.connectors.formats.wire import header, message_header, message_indexes
from dsv2.connectors.kafka import KafkaSource, values
from dsv2.errors import ConfigurationError
from dsv2.model.resource import resources_in_use
from tests import protobuf_messages as pb
from tests.schema_registry import RegistryServer
from tests.support import local_environment

T = TypeVar("T")

PASSWORD = "hu:sh/QZX"
USER_INFO = f"reader:{PASSWORD}"
ONCE = {"max.retries": 0}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "customer", "type": "long"}, {"name": "cents", "type": "long"}],
}


class Order(NamedTuple):
    customer: int
    cents: int = 1


class Line(NamedTuple):
    color: str


@dataclass
class Unnamed:
    customer: int


def in_another_task(used: T) -> T:
    """Return ``used`` as the next task of a worker gets it."""
    copy: T = pickle.loads(pickle.dumps(used))  # noqa: S301
    return copy


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running, resources_in_use():
        yield running


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url, ONCE)


# --- Wire format -----------------------------------------------------------------------------------------------------


@given(st.integers(0, (1 << 32) - 1), st.lists(st.integers(0, 300), min_size=1, max_size=5), st.binary(max_size=3))
def test_message_indexes_return_as_they_were_written(schema_id: int, indexes: list[int], rest: bytes) -> None:
    first = message_header(schema_id, indexes)
    assert first.startswith(header(schema_id))
    assert message_indexes(first + rest) == (tuple(indexes), len(first))


def test_bytes_of_the_wire_format() -> None:
    """As Confluent documents them."""
    assert header(7) == b"\x00\x00\x00\x00\x07"
    assert message_header(7, [0]) == b"\x00\x00\x00\x00\x07\x00"
    assert message_header(7, [1, 0]) == b"\x00\x00\x00\x00\x07\x04\x02\x00"
    assert message_header(7, [64]) == b"\x00\x00\x00\x00\x07\x02\x80\x01"


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b'{"customer": 7}', b"\1\0\0\0\1\2\2"])
def test_bytes_without_a_schema_id_are_refused(registry: SchemaRegistry, data: bytes) -> None:
    for decoder in (AvroDecoder(Order, registry=registry), ProtobufDecoder(pb.Order, registry=registry)):
        with pytest.raises(FormatError, match="not with a zero byte and the id of a schema"):
            decoder(data)


@pytest.mark.parametrize("rest", [b"", b"\x80", b"\x02", b"\xff\xff\xff\xff\x0f", b"\x01"])
def test_damaged_message_indexes_are_refused(server: RegistryServer, registry: SchemaRegistry, rest: bytes) -> None:
    with pytest.raises(FormatError, match="message indexes"):
        ProtobufDecoder(pb.Order, registry=registry)(header(1) + rest)


# --- Schemas ---------------------------------------------------------------------------------------------------------


def test_round_trip_asks_the_registry_once(server: RegistryServer, registry: SchemaRegistry) -> None:
    number = server.register("orders-value", ORDER)
    encoder = AvroEncoder(Order, ORDER, subject=registry.subject("orders"))
    encoded = [encoder(Order(1, cents)) for cents in range(100)]
    assert {data[:5] for data in encoded} == {header(number)}
    for _ in range(3):  # as in three tasks of a worker
        decoder = in_another_task(AvroDecoder(Order, registry=registry))
        assert [decoder(data) for data in encoded] == [Order(1, cents) for cents in range(100)]
        in_another_task(encoder)(Order(1, 1))
    assert server.requests == {"GET /schemas/ids/1": 1, "POST /subjects/orders-value": 1}


def test_the_clients_of_confluent_write_and_read_the_same_bytes(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    ctx, conf = (
        SerializationContext("orders", MessageField.VALUE),
        {"subject.name.strategy": topic_subject_name_strategy},
    )
    with SchemaRegistryClient({"url": server.url}) as client:
        theirs = AvroSerializer(client, json.dumps(ORDER), conf=conf)({"customer": 7, "cents": 2}, ctx)
        ours = AvroEncoder(Order, ORDER, subject=registry.subject("orders"))(Order(7, 2))
        assert ours == theirs
        assert AvroDeserializer(client, conf=conf)(ours, ctx) == {"customer": 7, "cents": 2}


def test_each_message_is_read_with_its_own_schema(server: RegistryServer, registry: SchemaRegistry) -> None:
    older = {**ORDER, "fields": [{"name": "customer", "type": "int"}]}
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "channel", "type": "string"}]}
    written = []
    for schema, order in ((older, {"customer": 7}), (newer, {"customer": 8, "cents": 250, "channel": "web"})):
        server.register("orders-value", schema)
        written.append(AvroEncoder(dict, schema, subject=registry.subject("orders"))(order))
    decoder = AvroDecoder(Order, registry=registry)
    assert [decoder(data) for data in written * 2] == [Order(7, 1), Order(8, 250)] * 2
    reader = {**ORDER, "fields": [{"name": "customer", "type": "double"}, {"name": "z", "type": "int", "default": 5}]}
    converting = AvroDecoder(dict, registry=registry, schema=reader)
    assert [converting(data) for data in written] == [{"customer": 7.0, "z": 5}, {"customer": 8.0, "z": 5}]


def test_schemas_may_refer_to_others(server: RegistryServer, registry: SchemaRegistry) -> None:
    color = {"type": "enum", "name": "Color", "namespace": "shop", "symbols": ["RED"]}
    server.register("color", color)
    line = {"type": "record", "name": "Line", "namespace": "shop", "fields": [{"name": "color", "type": "shop.Color"}]}
    server.register("line", line, references=[{"name": "shop.Color", "subject": "color", "version": 1}])
    lines = {"type": "array", "items": "shop.Line"}
    number = server.register("lines", lines, references=[{"name": "shop.Line", "subject": "line", "version": 1}])
    data = header(number) + b"\x04\x00\x00\x00"  # two lines
    assert AvroDecoder(list, registry=registry)(data) == [{"color": "RED"}, {"color": "RED"}]
    union = server.register("union", ["shop.Line"], references=[{"name": "shop.Line", "subject": "line", "version": 1}])
    assert AvroDecoder(Line, registry=registry)(header(union) + b"\x00\x00") == Line("RED")


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        ({}, "orders-value"),
        ({"part": "key"}, "orders-key"),
        ({"strategy": "record"}, "shop.Order"),
        ({"strategy": "topic-record", "part": "key"}, "orders-shop.Order"),
    ],
)
def test_subject_name_strategies(
    server: RegistryServer, registry: SchemaRegistry, arguments: dict[str, Any], subject: str
) -> None:
    encoder = AvroEncoder(Order, ORDER, subject=registry.subject("orders", auto_register=True, **arguments))
    assert encoder(Order(1, 2)) == header(1) + b"\x02\x04"
    assert server.subjects() == [subject]


def test_schema_that_is_not_registered_is_an_error(server: RegistryServer, registry: SchemaRegistry) -> None:
    encoder = AvroEncoder(Order, ORDER, subject=registry.subject("orders"))
    with pytest.raises(JobError, match=r"not registered in the subject 'orders-value' .* set auto_register=True"):
        encoder(Order(1, 2))
    server.register("orders-value", {**ORDER, "name": "Other"})
    with pytest.raises(JobError, match=r"not registered in the subject 'orders-value'"):
        encoder(Order(1, 2))
    server.register("orders-value", ORDER)
    assert AvroDecoder(Order, registry=registry)(encoder(Order(1, 2))) == Order(1, 2)


@pytest.mark.parametrize("change", [{"strategy": "class"}, {"part": "header"}, {"topic": ""}])
def test_arguments_of_a_subject_are_checked(registry: SchemaRegistry, change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        registry.subject(**{"topic": "orders", **change})


def test_class_that_does_not_match_a_schema_names_its_id(server: RegistryServer, registry: SchemaRegistry) -> None:
    server.register("orders-value", {**ORDER, "fields": [{"name": "customer", "type": "string"}]})
    with pytest.raises(FormatError, match=r"Order.customer has the Avro type string, .* annotation int \(schema 1\)"):
        AvroDecoder(Order, registry=registry)(header(1) + b"\x02a")


def test_bytes_that_do_not_match_name_the_schema(server: RegistryServer, registry: SchemaRegistry) -> None:
    server.register("orders-value", ORDER)
    with pytest.raises(FormatError, match=r"EOFError.*\(schema 1, shop.Order\)"):
        AvroDecoder(Order, registry=registry)(header(1) + b"\x02")
    with pytest.raises(FormatError, match=r"has no schema 9: .*Schema 9 not found"):
        AvroDecoder(Order, registry=registry)(header(9) + b"\x02")
    with pytest.raises(FormatError, match="schema 1 is a schema of AVRO, not of PROTOBUF"):
        ProtobufDecoder(pb.Order, registry=registry)(header(1) + b"\0")


# --- Protobuf --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        pb.Order(customer=7, cents=250, currency=pb.Currency(code="EUR")),  # the second message of its file
        pb.Order.Line(item="pen"),
        pb.Currency(code="EUR"),
        pb.Order(),
    ],
)
def test_protobuf_with_and_without_a_registry(server: RegistryServer, registry: SchemaRegistry, message: Any) -> None:
    kind = type(message)
    encoder = ProtobufEncoder(kind, subject=registry.subject("orders", auto_register=True))
    data = [encoder(message), encoder(message)]
    decoder = ProtobufDecoder(kind, registry=registry)
    assert [decoder(each) for each in data] == [message, message]
    assert data[0].endswith(message.SerializeToString())
    assert ProtobufDecoder(kind)(ProtobufEncoder(kind)(message)) == message
    assert max(server.requests.values()) == 1
    server.serializes = False
    assert ProtobufDecoder(kind, registry=SchemaRegistry(server.url, ONCE))(data[0]) == message
    with pytest.raises(FormatError, match="is a dict and not a"):
        encoder({"customer": 7})


def test_imports_of_protobuf_are_registered_first(server: RegistryServer, registry: SchemaRegistry) -> None:
    encoder = ProtobufEncoder(pb.Order, subject=registry.subject("orders", auto_register=True))
    encoder(pb.Order(customer=7))
    assert server.subjects() == ["orders-value", "shop/money.proto"]
    assert ProtobufEncoder(pb.Order, subject=registry.subject("orders"))(pb.Order()) == message_header(2, [1])
    with pytest.raises(JobError, match="not registered in the subject 'other-value'"):
        ProtobufEncoder(pb.Order, subject=registry.subject("other"))(pb.Order())


def test_other_protobuf_message_is_refused(server: RegistryServer, registry: SchemaRegistry) -> None:
    written = ProtobufEncoder(pb.Currency, subject=registry.subject("t", auto_register=True))(pb.Currency(code="EUR"))
    with pytest.raises(FormatError, match=r"the message is shop.Currency and not shop.Order \(schema 1\)"):
        ProtobufDecoder(pb.Order, registry=registry)(written)
    with pytest.raises(FormatError, match=r"no message with the indexes \[9\]"):
        ProtobufDecoder(pb.Order, registry=registry)(message_header(1, [9]))
    decoder = ProtobufDecoder(pb.Currency, registry=registry)
    with pytest.raises(FormatError, match=r"DecodeError.*\(shop.Currency, schema 1\)"):
        decoder(written + b"\xff")
    assert decoder(written) == pb.Currency(code="EUR")


def test_registry_that_returns_source_text(server: RegistryServer, registry: SchemaRegistry) -> None:
    number = server.register("t", 'syntax = "proto3"; package shop; message A {} message Order {}', "PROTOBUF")
    decoder = ProtobufDecoder(pb.Order, registry=registry)
    assert decoder(message_header(number, [1]) + pb.Order(cents=3).SerializeToString()) == pb.Order(cents=3)
    with pytest.raises(FormatError, match=r"the message is the one with the indexes \[0\] and not shop.Order"):
        decoder(message_header(number, [0]))


@pytest.mark.parametrize("create", [ProtobufDecoder, ProtobufEncoder])
def test_generated_class_is_required(create: Callable[[Any], object]) -> None:
    with pytest.raises(ConfigurationError, match=r"requires a class that protoc generated, not .*Order"):
        create(Order)


# --- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value"), [(Order, Order(7, 250)), (Unnamed, Unnamed(7)), (dict, {"a": [1, None]}), (Any, "text")]
)
def test_json_with_and_without_a_registry(
    server: RegistryServer, registry: SchemaRegistry, kind: Any, value: Any
) -> None:
    schema = {"title": "Order", "type": "object"}
    encoder = JsonEncoder(kind, schema, subject=registry.subject("", strategy="record", auto_register=True))
    data = encoder(value)
    first = JsonDecoder(kind, registry=registry)
    with pytest.raises(FormatError):  # the registry must be asked first
        first.decode_all([data])
    for decoder in (first, in_another_task(first)):
        assert decoder(data) == value
        assert decoder.decode_all([data, data]) == [value, value]
    assert server.subjects() == ["Order"]
    assert JsonDecoder(kind)(JsonEncoder(kind)(value)) == value


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"{", r"truncated \(Order\)"),
        (b"[1, 2]", r"Expected `object`, got `array`"),
        (b'{"customer": "7"}', r"Expected `int`, got `str` - at `\$.customer`"),
        (b'{"cents": 7}', r"missing required field `customer`"),
    ],
)
def test_json_that_does_not_match(data: bytes, told: str) -> None:
    with pytest.raises(FormatError, match=told):
        JsonDecoder(Order)(data)
    assert JsonDecoder(Order)(b'{"customer": 7, "more": 1}') == Order(7, 1)


@dataclass
class Nesting:
    orders: list[Order]
    order: Order | None = None


def test_json_arguments_are_checked(registry: SchemaRegistry) -> None:
    with pytest.raises(ConfigurationError, match=r"Nesting.order is a NamedTuple, which would be an array in JSON"):
        JsonDecoder(Nesting)
    with pytest.raises(ConfigurationError, match="both a schema and a subject, or neither"):
        JsonEncoder(Order, "{}")
    with pytest.raises(FormatError, match="cannot be encoded: TypeError"):
        JsonEncoder(dict)({"a": object()})


# --- Failures of the registry ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["broken", "gone", "unauthorized"])
def test_failing_registry_is_an_error_of_the_job_and_not_of_the_message(how: str) -> None:
    with RegistryServer(USER_INFO) as server, resources_in_use():
        server.register("orders-value", ORDER)
        server.broken = how == "broken"
        url = "http://127.0.0.1:1" if how == "gone" else server.url
        options: dict[str, str | int] = {
            **ONCE,
            "basic.auth.user.info": "reader:wrong" if how == "unauthorized" else USER_INFO,
        }
        decode = AvroDecoder(Order, registry=SchemaRegistry(url, options))
        with pytest.raises(JobError, match=f"Cannot read schema 1 at the registry {url}: "):
            decode(header(1) + b"\x02\x04")


def test_basic_authentication_and_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with RegistryServer(USER_INFO) as server, resources_in_use():
        registry = SchemaRegistry(server.url, {**ONCE, "basic.auth.user.info": USER_INFO})
        encoder = AvroEncoder(Order, ORDER, subject=registry.subject("orders", auto_register=True))
        decoder = AvroDecoder(Order, registry=registry)
        assert decoder(encoder(Order(1, 2))) == Order(1, 2)
        wrong = SchemaRegistry(server.url, {**ONCE, "basic.auth.user.info": f"other:{PASSWORD}"})
        with pytest.raises(JobError, match="Unauthorized") as refused:
            AvroDecoder(Order, registry=wrong)(header(1))
        env = local_environment()
        source = KafkaSource("127.0.0.1:1", decode=values(decoder), topics="orders")
        env.from_source(source, "orders").with_uid("orders").to_sink(CollectSink[Order]())
        plan = env.take_plan("orders")
        shown = [
            *map(repr, (registry, registry.subject("t"), encoder, decoder, source)),
            "".join(traceback.format_exception(refused.value)),
            msgspec.json.encode(describe(plan)).decode(),
            caplog.text,
        ]
    assert "QZX" not in "\n".join(shown)
    assert "SchemaRegistry('http://127.0.0.1" in shown[0]


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("registry:8081", {}, 'requires a url: "https://host:port"'),
        ("https://reader:QZX@registry", {}, "url must have no user or password"),
        ("http://registry", {"basic.auth.user.info": "QZX"}, "must be in the form of {username}:{password}"),
        ("http://registry", {"basic.auth.user": "QZX"}, "Unrecognized properties: basic.auth.user"),
        ("http://registry", {"max.retries": "QZX"}, "rejects the options"),
    ],
)
def test_options_are_checked_without_showing_secrets(url: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        SchemaRegistry(url, options)
    text = "".join(traceback.format_exception(refused.value))
    assert told in text
    assert "QZX" not in text


def test_https_with_an_own_authority(tmp_path: Path) -> None:
    certificate = tmp_path / "registry.pem"
    certificate.write_bytes(certificate_and_key())
    with RegistryServer(certificate=certificate) as server, resources_in_use():
        server.register("orders-value", ORDER)
        trusting = SchemaRegistry(server.url, {**ONCE, "ssl.ca.location": str(certificate)})
        assert AvroDecoder(Order, registry=trusting)(header(1) + b"\x02\x04") == Order(1, 2)
        with pytest.raises(JobError, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
            AvroDecoder(Order, registry=SchemaRegistry(server.url, ONCE))(header(1) + b"\x02\x04")


def certificate_and_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize(
    ("create", "module", "told"),
    [
        (lambda: AvroDecoder(Order, schema=ORDER), "fastavro", 'AvroDecoder requires fastavro, .*"dsv2.avro."'),
        (lambda: AvroEncoder(Order, ORDER), "fastavro", 'AvroEncoder requires fastavro, .*"dsv2.avro."'),
        (lambda: ProtobufDecoder(pb.Order), "google.protobuf", '.*google.protobuf, .*"dsv2.protobuf."'),
        (lambda: ProtobufEncoder(pb.Order), "google.protobuf", '.*google.protobuf, .*"dsv2.protobuf."'),
        (lambda: SchemaRegistry("http://r"), "authlib", 'SchemaRegistry requires authlib, .*"dsv2.schema-registry."'),
    ],
)
def test_missing_library_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, create: Callable[[], object], module: str, told: str
) -> None:
    def find_spec(name: str) -> object:
        if name == module:
            raise ModuleNotFoundError(name)
        return name

    monkeypatch.setattr("dsv2.checks.client_library.find_spec", find_spec)
    with pytest.raises(ConfigurationError, match=told):
        create()
