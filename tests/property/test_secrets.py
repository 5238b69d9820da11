"""Secrets are never shown, however they are passed: in errors and tracebacks, logs, ``repr``, plans and records."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
import pytest
from confluent_kafka import KafkaError
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.pq import Conninfo

from dsv2 import ExecutionEnvironment
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.record import sinks_of
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from dsv2.connectors.kafka.client_errors import KafkaClientLog, failure_of
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.option_check import OPTION_NAMES
from dsv2.connectors.postgres import PostgresSink, PostgresSource
from dsv2.connectors.postgres.server import Server
from dsv2.connectors.postgres.settings import PostgresConnection
from dsv2.errors import Dsv2Error, JobError
from dsv2.sinks import FileSink, SinkInfo
from tests.durations import ms

MARK = "QZX"
SPECIAL = "@/:=%?&#'\"\\;, +*.~!$()[]{}|<>\tß"
# Passwords whose parts can be recognized, however they are split.
PASSWORDS = st.lists(
    st.tuples(st.integers(0, 99), st.text(SPECIAL, max_size=2)).map(lambda piece: f"{MARK}{piece[0]}{piece[1]}"),
    min_size=1,
    max_size=4,
).map("".join)

CONNINFOS: list[Callable[[str], str]] = [
    lambda p: f"host=127.0.0.1 port=1 user=u password={p}",
    lambda p: f"host=127.0.0.1 port=1 user=u password = {p} dbname=d",
    lambda p: f"host=127.0.0.1 port=1 PASSWORD={p}",
    lambda p: f"Host=127.0.0.1;Port=1;Password={p};Username=u",
    lambda p: f"host=127.0.0.1;port=1;password={p};user=u",
    lambda p: f"host=127.0.0.1,password={p}",
    lambda p: f"host=127.0.0.1 port=1 password='{p}'",
    lambda p: f"host=127.0.0.1 port=1 password='{p}",
    lambda p: f'host=127.0.0.1 port=1 password="{p}"',
    lambda p: f"host=127.0.0.1 port=1 pasword={p}",
    lambda p: f"host=127.0.0.1 port=1 sslpassword={p}",
    lambda p: f"postgresql://u:{p}@127.0.0.1:1/d",
    lambda p: f"postgresql://u:{quote(p, safe='')}@127.0.0.1:1/d",
    lambda p: f"POSTGRESQL://u:{p}@127.0.0.1:1/d",
    lambda p: f"postgres://u:{p}@127.0.0.1:1/d?sslmode=prefer",
    lambda p: f"postgresql://127.0.0.1:1/d?user=u&password={p}",
    lambda p: f"postgresql://127.0.0.1:1/d?password={p}&user=u",
    lambda p: f"postgresql://u@127.0.0.1:{p}/d",
    lambda p: f"postgresql+psycopg://u:{p}@127.0.0.1:1/d",
    lambda p: f"jdbc:postgresql://127.0.0.1:1/d?user=u&password={p}",
    lambda p: f"u:{p}@127.0.0.1:1/d",
    lambda p: f"//u:{p}@127.0.0.1:1/d",
    lambda p: f" postgresql://u:{p}@127.0.0.1:1/d",
    lambda p: f"dbname=postgresql://u:{p}@127.0.0.1:1/d",
    lambda p: p,
]
SECRET_OPTIONS = [name for name in OPTION_NAMES if re.search(r"password|secret|passphrase|\.key\.pem", name)]


@contextmanager
def everything_that_shows() -> Iterator[list[str]]:
    """Collect texts, and check at the end that none contains a part of a password."""
    shown: list[str] = []
    handler = logging.Handler(logging.DEBUG)
    handler.emit = lambda record: shown.append(logging.Formatter().format(record))  # type: ignore[method-assign]
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield shown
    except Dsv2Error as error:
        shown += [str(error), repr(error), "".join(traceback.format_exception(error))]
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert [text for text in shown if MARK.lower() in text.lower()] == []


def show_plan(shown: list[str], source: Any, sink: Any) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    stream = env.from_source(source).with_uid("in")
    stream.to_sink(sink).with_uid("out")
    plan = env.build_plan("job")
    shown += [repr(source), str(source), f"{sink}", repr(sink), repr(plan), str(plan)]
    shown += [str(operator) for operator in plan.operators]
    shown.append(msgspec.json.encode([describe(plan), sinks_of(plan)]).decode())


def show_failure(shown: list[str], failure: JobError, connection: Any, cause: Exception) -> None:
    try:
        raise failure from connection.presentable(cause)
    except JobError as error:
        shown += [str(error), repr(error), "".join(traceback.format_exception(error))]


@given(PASSWORDS, st.sampled_from(CONNINFOS))
def test_passwords_of_postgres(password: str, conninfo_with: Callable[[str], str]) -> None:
    conninfo = conninfo_with(password)
    with everything_that_shows() as shown:
        source = PostgresSource[Any](conninfo, "t", slot_name="s", decode=dict)
        sink = PostgresSink[Any](conninfo, "t", ["id"], retry_timeout=ms(1))
        show_plan(shown, source, sink)
        connection = PostgresConnection("test", conninfo, ms(1))
        shown.append(repr(Server(connection)))
        parts = [option.val.decode() for option in Conninfo.parse(conninfo.encode()) if option.val is not None]
        said = psycopg.OperationalError(f"what libpq may say: {parts} {' '.join(parts)} {quote(' '.join(parts))}")
        show_failure(shown, Server(connection).failure("It failed", said), connection, said)


@pytest.mark.parametrize("conninfo", ["host=127.0.0.1 port=1 password=QZX", "postgresql://u:QZX%40@127.0.0.1:1/d"])
def test_missing_database(conninfo: str) -> None:
    with everything_that_shows():
        PostgresSink[Any](conninfo, "t", ["id"], retry_timeout=ms(1)).begin(SinkInfo("job", "out", 1), 0)


def misspelt(names: list[str]) -> st.SearchStrategy[str]:
    """Names with a missing, additional or swapped letter, or in another spelling."""

    def change(name: str, place: int, kind: str) -> str:
        place %= len(name) - 1
        return {
            "right": name,
            "less": name[:place] + name[place + 1 :],
            "more": name[:place] + name[place] + name[place:],
            "exchanged": name[:place] + name[place + 1] + name[place] + name[place + 2 :],
            "capitals": name.upper(),
            "underscores": name.replace(".", "_"),
            "blank": f"{name} ",
        }[kind]

    kinds = st.sampled_from(["right", "less", "more", "exchanged", "capitals", "underscores", "blank"])
    return st.builds(change, st.sampled_from(names), st.integers(0, 99), kinds)


def use_kafka(shown: list[str], password: str, servers: str, options: dict[str, Any]) -> None:
    source = KafkaSource(servers, topics="t", decode=values(int), options=options)
    sink = KafkaSink[int](servers, "t", str.encode, options=options)  # type: ignore[arg-type]
    show_plan(shown, source, sink)
    connection = KafkaConnection("test", servers, options, ms(1))
    said = f"what the client may say: {password} {password!r} {json.dumps(password)}"
    error = KafkaError(KafkaError._AUTHENTICATION, said)
    show_failure(shown, failure_of(connection, "It failed", error), connection, psycopg.Error(said))
    KafkaClientLog(connection.redacted).log(logging.ERROR, "%s [%s] %s", f"KIND{len(shown)}", "client", said)
    shown += [repr(connection), str(connection.options)]


@given(PASSWORDS, misspelt(SECRET_OPTIONS))
@example(f"{MARK}1", "sasl.pasword")
def test_secret_options_of_kafka(password: str, name: str) -> None:
    with everything_that_shows() as shown:
        use_kafka(shown, password, "127.0.0.1:1", {name: password})


@example(f"{MARK}0,", "debug")  # the client shows a part of it
@given(PASSWORDS, st.sampled_from(["security.protocol", "linger.ms", "debug", "sasl.jaas.config", "acks"]))
def test_secrets_in_other_options_of_kafka(password: str, name: str) -> None:
    with everything_that_shows() as shown:
        use_kafka(shown, password, "127.0.0.1:1", {name: password})


@given(PASSWORDS)
def test_secrets_in_addresses_for_kafka(password: str) -> None:
    with everything_that_shows() as shown:
        use_kafka(shown, password, f"SASL_SSL://u:{password}@127.0.0.1:1", {})
    with everything_that_shows() as shown:
        use_kafka(
            shown, password, "127.0.0.1:1", {"sasl.oauthbearer.token.endpoint.url": f"https://u:{password}@host/token"}
        )


@given(PASSWORDS)
def test_savepoints_show_no_secret_of_a_folder(password: str) -> None:
    target = FileSink[Any](f"s3n://key:{password}@bucket/out", schema="a int").describe_target()
    assert MARK not in target
    assert target.endswith("@bucket/out")
