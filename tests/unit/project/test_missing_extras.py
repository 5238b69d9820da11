"""Whatever needs an extra of dsv2 that is not installed says so, with the command that installs it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Collection

import pytest

from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError, MissingLibraryError
from tests import ROOT
from tests.without_extras import USES

# Extra -> the modules that it installs, as they are imported, and what needs them.
EXTRAS: dict[str, tuple[Collection[str], Collection[str]]] = {
    "arrow": (
        ("pyarrow", "numpy", "narwhals"),
        ("dsv2.arrow", "where", "select", "with_columns", "first", "over"),
    ),
    "files": (
        ("pyarrow", "numpy"),
        (
            "csv_records",
            "parquet_records",
            "parquet_rows",
            "read_files",
            "FileSinkSource",
            "FilesSource",
            "FileSink",
            "savepoint",
            "dsv2.client",
        ),
    ),
    "kafka": (("confluent_kafka",), ("KafkaSource", "KafkaSink")),
    "postgres": (("psycopg",), ("PostgresSource", "PostgresSink")),
    "sql": (("sqlalchemy",), ("SqlSource", "SqlSink")),
    "duckdb": (("duckdb",), ("JobClient.sql",)),
    "redis": (("redis",), ("RedisSource", "RedisSink")),
    "nats": (("nats",), ("NatsSource", "NatsSink")),
    "mqtt": (("paho.mqtt",), ("MqttSink", "MqttSource")),
    "kinesis": (("boto3",), ("KinesisSource", "KinesisSink")),
    "http": (("urllib3",), ("HttpSink", "HttpSource", "OpenSearchSink", "SseSource")),
    "delta": (("deltalake",), ("DeltaSource", "DeltaSink")),
    "iceberg": (("pyiceberg",), ("IcebergSource", "IcebergSink")),
    "avro": (("fastavro",), ("AvroDecoder", "AvroEncoder", "avro_files")),
    "protobuf": (("google.protobuf",), ("ProtobufDecoder",)),
    "schema-registry": (("confluent_kafka", "authlib"), ("SchemaRegistry",)),
    "metrics": (("prometheus_client", "opentelemetry"), ("prometheus", "opentelemetry")),
    "dashboard": (("starlette", "uvicorn"), ("Dashboard", "dsv2 run --dashboard", "dsv2 dashboard")),
    "cli": (("rich", "shtab"), ("dsv2 --print-completion",)),
    "spark": (
        ("pyspark", "py4j", "pandas"),
        (
            "runtime_spark",
            "get_instance",
            "dsv2 run",
            "dsv2 explain",
            "dsv2 check",
            "dsv2 checkpoint",
            "dsv2 files",
            "dsv2 watermarks",
            "DeadLetters",
        ),
    ),
}
WITHOUT_COLUMNS = {
    "aggregate": "[('tea', 1), ('tea', 3)]",
    "join": "[('tea', 1), ('tea', 1), ('tea', 2), ('tea', 2)]",
}
"""What needs no extra, because it also works one by one."""


def said_without(modules: Collection[str], uses: Collection[str]) -> dict[str, str]:
    arguments = [json.dumps([*modules]), json.dumps([*uses])]
    command = [sys.executable, "-W", "ignore", "-m", "tests.without_extras", *arguments]
    said: dict[str, str] = json.loads(subprocess.check_output(command, cwd=ROOT, text=True))
    return {name: " ".join(text.split()) for name, text in said.items()}


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What each use says where dsv2 is installed without extras."""
    return said_without({module for modules, _ in EXTRAS.values() for module in modules}, USES)


@pytest.mark.parametrize("extra", EXTRAS)
def test_errors_name_the_extra(extra: str, said: dict[str, str]) -> None:
    for use in EXTRAS[extra][1]:
        assert f"dsv2[{extra}]" in said[use], use


def test_extras_and_uses_are_complete() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras.keys() == {*EXTRAS, "connect", "map-state"}  # these two complete what Spark itself names
    assert {use for _, uses in EXTRAS.values() for use in uses} | WITHOUT_COLUMNS.keys() == USES.keys()


def test_declared_aggregates_and_joins_need_no_extra(said: dict[str, str]) -> None:
    assert {use: said[use] for use in WITHOUT_COLUMNS} == WITHOUT_COLUMNS


def test_numpy_is_part_of_the_extras_that_need_it() -> None:
    columnar = (*EXTRAS["arrow"][1], "csv_records", "parquet_records")
    said = said_without(["numpy"], [*columnar, *WITHOUT_COLUMNS])
    for use in columnar:
        assert 'requires numpy, which is not installed. Install it: pip install "dsv2[arrow]".' in said[use]
    assert {use: said[use] for use in WITHOUT_COLUMNS} == WITHOUT_COLUMNS


def test_error_is_an_import_error_and_a_configuration_error() -> None:
    with pytest.raises(MissingLibraryError, match=r"It requires no_such_module.client, .* \"dsv2\[kafka\]\"") as raised:
        require_client_library("no_such_module.client", "kafka", "It")
    assert isinstance(raised.value, ImportError)
    assert isinstance(raised.value, ConfigurationError)
