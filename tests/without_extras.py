"""Uses everything that needs an extra of dsv2, in a process where modules are missing, and prints what it says.

``python -m tests.without_extras MODULES USES``, each a JSON list, prints an object: the error or result of each use.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from io import StringIO
from operator import attrgetter
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import dsv2
from dsv2.aggregates import Key, Sum
from dsv2.cli import main
from dsv2.client import connect
from dsv2.connectors import (
    delta,
    files,
    formats,
    http,
    iceberg,
    kafka,
    kinesis,
    mqtt,
    nats,
    opensearch,
    postgres,
    redis,
    sql,
)
from dsv2.dead_letters import DeadLetters
from dsv2.extension.join import Left, Right, join
from dsv2.jobs import JobHandle
from dsv2.views.dashboard import Dashboard


class Missing:
    """A finder of modules that finds none of these, as if they were not installed."""

    def __init__(self, modules: list[str]) -> None:
        self.modules = modules

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if any(f"{name}.".startswith(f"{module}.") for module in self.modules):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


class Sale(NamedTuple):
    product: str
    amount: int


def results(build: Callable[[Any], Any]) -> list[Any]:
    """The results of a job on a keyed stream of two sales."""
    env, sink = dsv2.ExecutionEnvironment.get_instance("local"), dsv2.CollectSink[Any]()
    sales = env.from_collection([Sale("tea", 1), Sale("tea", 2)])
    build(sales.key_by(attrgetter("product"))).to_sink(sink)
    env.execute()
    return sorted(map(tuple, sink.results))


def expression() -> Any:
    """An expression of narwhals, or what a user may pass who does not have it."""
    try:
        return import_module("narwhals").col("amount") > 1
    except ImportError:
        return None


def sink_job(sink: Any, **options: Any) -> object:
    env = dsv2.ExecutionEnvironment.get_instance("local")
    env.from_collection([Sale("tea", 1)]).to_sink(sink)
    return env.execute(**options)


def running_job() -> JobHandle:
    env = dsv2.ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).to_sink(dsv2.CollectSink())
    return env.execute_async("job", checkpoint_location=FOLDER / "checkpoint")


def command(*words: str) -> str:
    printed = StringIO()
    with redirect_stdout(printed), redirect_stderr(printed), suppress(SystemExit):
        main(words)
    return printed.getvalue()


def pipeline(env: dsv2.ExecutionEnvironment) -> None:
    env.from_collection([1]).to_sink(dsv2.PrintSink())


ANY: Any = object()
FOLDER = Path(mkdtemp(prefix="dsv2-"))
PIPELINE = "tests.without_extras:pipeline"
USES: dict[str, Callable[[], object]] = {
    # arrow
    "dsv2.arrow": lambda: import_module("dsv2.arrow"),
    "where": lambda: results(lambda sales: sales.where(expression(), Sale)),
    "select": lambda: results(lambda sales: sales.select(Sale, Sale, product="product", amount="amount")),
    "with_columns": lambda: results(lambda sales: sales.with_columns(Sale, Sale, amount="amount")),
    "first": lambda: results(lambda sales: sales.first(by="amount", records=Sale)),
    "over": lambda: results(
        lambda sales: sales.over(rows=2).aggregate(Sale, Sale, product=Key(), amount=Sum("amount"))
    ),
    "csv_records": lambda: files.csv_records(Sale),
    "parquet_records": lambda: files.parquet_records(Sale),
    "JobClient.sql": lambda: import_module("dsv2.savepoint.state_sql").query_tables("SELECT 1", {}, 1),
    # arrow or nothing: the same results one by one
    "aggregate": lambda: results(lambda sales: sales.aggregate(Sale, Sale, product=Key(), amount=Sum("amount"))),
    "join": lambda: results(
        lambda sales: sales.connect_and_process(
            sales, join(Sale, left_records=Sale, right_records=Sale, product=Left("product"), amount=Right("amount"))
        )
    ),
    # files
    "parquet_rows": lambda: files.parquet_rows(tuple),
    "read_files": lambda: files.read_files(FOLDER),
    "FileSinkSource": lambda: files.FileSinkSource(FOLDER, tuple),
    "FilesSource": lambda: files.FilesSource("s3://bucket/folder", files.text_lines(str)),
    "FileSink": lambda: sink_job(dsv2.FileSink(FOLDER / "out", schema=Sale)),
    "savepoint": lambda: running_job().savepoint(FOLDER / "savepoint"),
    "dsv2.client": lambda: connect("http://localhost:1"),
    # clients
    "KafkaSource": lambda: kafka.KafkaSource("server", topics="t", decode=ANY),
    "KafkaSink": lambda: kafka.KafkaSink("server", topic="t", value=bytes),
    "PostgresSource": lambda: postgres.PostgresSource("postgresql://h", table="t", slot_name="s", decode=tuple),
    "PostgresSink": lambda: postgres.PostgresSink("postgresql://h", "t", ["a"]),
    "SqlSource": lambda: sql.SqlSource("sqlite://", "t", ["a"], tuple, by="a"),
    "SqlSink": lambda: sql.SqlSink("sqlite://", "t", ["a"]),
    "RedisSource": lambda: redis.RedisSource("redis://h", streams=["s"], decode=ANY),
    "RedisSink": lambda: redis.RedisSink("redis://h", ANY),
    "NatsSource": lambda: nats.NatsSource("nats://h", streams=["s"], decode=ANY),
    "NatsSink": lambda: nats.NatsSink("nats://h", "s", ANY),
    "MqttSource": lambda: mqtt.MqttSource("mqtt://h", topics=["t"], client_id="c", decode=ANY),
    "MqttSink": lambda: mqtt.MqttSink("mqtt://h", "t", ANY),
    "KinesisSource": lambda: kinesis.KinesisSource("s", ANY),
    "KinesisSink": lambda: kinesis.KinesisSink("s", bytes),
    "HttpSink": lambda: http.HttpSink("http://h"),
    "SseSource": lambda: http.SseSource("http://h", decode=str),
    "HttpSource": lambda: http.HttpSource("http://h/{cursor}", page=lambda body: ([], None), decode=str),
    "OpenSearchSink": lambda: opensearch.OpenSearchSink("http://h", "i"),
    "DeltaSource": lambda: delta.DeltaSource(FOLDER / "delta", Sale),
    "DeltaSink": lambda: delta.DeltaSink(FOLDER / "delta", Sale),
    "IcebergSource": lambda: iceberg.IcebergSource("d.t", Sale),
    "IcebergSink": lambda: iceberg.IcebergSink("d.t", Sale),
    "AvroDecoder": lambda: formats.AvroDecoder(int, schema='"long"'),
    "AvroEncoder": lambda: formats.AvroEncoder(int, schema='"long"'),
    "avro_files": lambda: formats.avro_files(dict),
    "ProtobufDecoder": lambda: formats.ProtobufDecoder(ANY),
    "SchemaRegistry": lambda: formats.SchemaRegistry("http://h"),
    # views
    "prometheus": lambda: import_module("dsv2.views.metrics.prometheus"),
    "opentelemetry": lambda: import_module("dsv2.views.metrics.opentelemetry"),
    "Dashboard": lambda: sink_job(dsv2.CollectSink[Sale](), dashboard=Dashboard(0)),
    "dsv2 run --dashboard": lambda: command("run", PIPELINE, "--runtime", "local", "--dashboard", "0"),
    "dsv2 dashboard": lambda: command("dashboard", str(FOLDER / "checkpoint")),
    "dsv2 --print-completion": lambda: command("--print-completion", "bash"),
    # spark
    "runtime_spark": lambda: import_module("runtime_spark"),
    "get_instance": lambda: dsv2.ExecutionEnvironment.get_instance(spark=object()).load_runtime(),
    "dsv2 run": lambda: command("run", PIPELINE),
    "dsv2 explain": lambda: command("explain", PIPELINE),
    "dsv2 check": lambda: command("check", "--no-types", PIPELINE),
    "dsv2 checkpoint": lambda: command("checkpoint", "show", "s3://bucket/folder"),
    "dsv2 files": lambda: command("files", "show", "s3://bucket/folder"),
    "dsv2 watermarks": lambda: command("watermarks", "s3://bucket/folder"),
    "DeadLetters": lambda: DeadLetters.open("s3://bucket/folder", spark=ANY),
}


def said(use: Callable[[], object]) -> str:
    try:
        return str(use())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    # Importing dsv2 has imported none of the optional modules.
    sys.meta_path.insert(0, Missing(json.loads(sys.argv[1])))
    print(json.dumps({name: said(USES[name]) for name in json.loads(sys.argv[2])}))
