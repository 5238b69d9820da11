"""Avro, Protobuf and JSON as decoders and encoders, with or without a schema registry.

``pip install "dsv2[avro]"``, ``"dsv2[protobuf]"`` and, for a registry, ``"dsv2[schema-registry]"``. A decoder is a
function of bytes, and an encoder is a function that returns bytes. They are made for the keys and values of Kafka.
"""

from dsv2.connectors.formats.avro import AvroDecoder, AvroEncoder
from dsv2.connectors.formats.avro_files import avro_files
from dsv2.connectors.formats.error import FormatError
from dsv2.connectors.formats.json_files import json_records
from dsv2.connectors.formats.json_schema import JsonDecoder, JsonEncoder
from dsv2.connectors.formats.protobuf import ProtobufDecoder, ProtobufEncoder
from dsv2.connectors.formats.registry import MessagePart, SchemaRegistry, Subject, SubjectNameStrategy

__all__ = (
    "AvroDecoder",
    "AvroEncoder",
    "FormatError",
    "JsonDecoder",
    "JsonEncoder",
    "MessagePart",
    "ProtobufDecoder",
    "ProtobufEncoder",
    "SchemaRegistry",
    "Subject",
    "SubjectNameStrategy",
    "avro_files",
    "json_records",
)
