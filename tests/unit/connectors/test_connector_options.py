"""Options of connectors: secrets are hidden, and mistakes are found when the source is created."""

from __future__ import annotations

from typing import Any

import pytest

from dsv2.base.secrets import ClientOptions
from dsv2.connectors.kafka import KafkaSource, OffsetsInitializer, values
from dsv2.connectors.kafka.option_check import OPTION_NAMES, check_options
from dsv2.connectors.postgres import PostgresSink, PostgresSource
from dsv2.connectors.postgres.settings import PostgresConnection, parse_table_name
from dsv2.errors import ConfigurationError
from tests.durations import ms

SECRETS = (
    "sasl.password", "SSL.Key.Password", "ssl.keystore.password", "ssl.key.pem", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config", "sasl.jaas.config", "aws.session.token", "passfile-passphrase",
)  # fmt: skip
HARMLESS = ("sasl.username", "ssl.ca.location", "ssl.key.location", "sasl.oauthbearer.token.endpoint.url", "user")


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_hidden(name: str) -> None:
    options = ClientOptions({name: "hush", "linger.ms": 5})
    assert repr(options) == repr({name: "***", "linger.ms": 5})
    assert f"{options}" == str(options) == repr(options)
    assert options.redacted("it said hush, twice: hush") == "it said ***, twice: ***"
    assert options[name] == "hush"


@pytest.mark.parametrize("name", HARMLESS)
def test_other_options_are_shown(name: str) -> None:
    options = ClientOptions({name: "plain"})
    assert repr(options) == repr({name: "plain"})
    assert options.redacted("it said plain") == "it said plain"


def test_empty_secret_hides_nothing() -> None:
    assert ClientOptions({"sasl.password": ""}).redacted("words") == "words"


def kafka(**options: Any) -> KafkaSource[int]:
    return KafkaSource("host:9092", decode=values(int), **{"topics": "t", **options})


def test_repr_of_a_source_hides_secrets() -> None:
    assert repr(kafka(options={"sasl.password": "hush"})) == "KafkaSource(t at host:9092, {'sasl.password': '***'})"
    assert repr(kafka(topics=None, topic_pattern="a.*")) == "KafkaSource(topics like 'a.*' at host:9092, {})"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topics": None}, r"either topics \(at least one\) or topic_pattern"),
        ({"topics": []}, r"either topics \(at least one\) or topic_pattern"),
        ({"topic_pattern": "a.*"}, r"either topics \(at least one\) or topic_pattern"),
        ({"topics": None, "topic_pattern": "a("}, r"topic_pattern 'a\(' is not a regular expression"),
        ({"starting_offsets": OffsetsInitializer.committed_offsets()}, "KafkaSource requires a group_id"),
        ({"stopping_offsets": OffsetsInitializer.offsets({}, OffsetsInitializer.committed_offsets())},
         "KafkaSource requires a group_id"),
        ({"commit_offsets": True}, "KafkaSource requires a group_id"),
        ({"records_per_batch": 0}, "records_per_batch must be a whole number of at least 1, not 0"),
        ({"discovery_interval": ms(0)}, "discovery_interval must be at least 1 ms, not 0 ms"),
        ({"retry_timeout": ms(0)}, "retry_timeout must be at least 1 ms, not 0 ms"),
        ({"retry_timeout": 120_000}, "retry_timeout must be a datetime.timedelta"),
        ({"split_assigner": "random"},
         "split_assigner must be one of 'hash', 'round-robin', or a member of SplitAssignment, not 'random'"),
        ({"on_offsets_out_of_range": "drop"},
         "on_offsets_out_of_range must be one of 'fail', 'earliest', 'latest', or a"),
        ({"options": {"enable.auto.commit": True}}, "sets the option 'enable.auto.commit' itself. Use commit_offsets"),
        ({"options": {"sasl.pasword": "hush"}}, "no option 'sasl.pasword'. Did you mean 'sasl.password'"),
        ({"options": {"SASL_PASSWORD": "hush"}}, "no option 'SASL_PASSWORD'. Did you mean 'sasl.password'"),
        ({"options": {"brightness": "hush"}}, "no option 'brightness'.$"),
        ({"options": {"linger.ms": 5, "fetch.wait.max.ms": "soon"}},
         "the value of the option 'fetch.wait.max.ms'. Inv"),
        ({"options": {"security.protocol": "hush"}}, "the value of the option 'security.protocol'.$"),
        ({"options": {"linger.ms": [5]}}, "the value of the option 'linger.ms'"),
        ({"options": {5: "x"}}, "the names of options must be strings, got int"),
    ],
)  # fmt: skip
def test_invalid_source_options(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        kafka(**options)


def test_server_with_a_password_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="without a user or password") as refused:
        KafkaSource("SASL_SSL://me:hush@host:9092", topics="t", decode=values(int))
    assert "hush" not in str(refused.value)
    with pytest.raises(ConfigurationError, match=r'KafkaSource requires bootstrap_servers: "host:port,host:port"'):
        KafkaSource("", topics="t", decode=values(int))


@pytest.mark.parametrize("name", [name for name in OPTION_NAMES if name != "ssl.ca.certificate.stores"])
def test_every_suggested_option_exists(name: str) -> None:
    refusal = "librdkafka rejects the value"
    try:
        check_options("test", ClientOptions({name: "1"}))
    except ConfigurationError as error:
        refusal = str(error)
    assert "librdkafka rejects the value" in refusal


def test_password_in_a_url_is_hidden() -> None:
    options = ClientOptions({"sasl.oauthbearer.token.endpoint.url": "https://me:hu/sh@host/token"})
    assert repr(options) == repr({"sasl.oauthbearer.token.endpoint.url": "https://***@host/token"})
    assert options.redacted("hu/sh was refused") == "*** was refused"


@pytest.mark.parametrize(
    ("conninfo", "reason"),
    [
        ("postgresql://me:hu@sh@host/db", "conninfo contains an @ or / that must be escaped"),
        ("postgresql://me:hu/sh@host/db", "conninfo contains an @ or / that must be escaped"),
        ("host=h PASSWORD=hush", "libpq cannot parse conninfo"),
        ("host=h password='hush", "libpq cannot parse conninfo"),
        ("me:hush@host/db", "libpq cannot parse conninfo"),
        ("host=h\0password=hush", "libpq cannot parse conninfo"),
        ("host=h;password=hush", "the host in conninfo is not valid"),
        ("postgresql://me@host:hush/db", "the port in conninfo is not valid"),
    ],
)
def test_malformed_conninfo_is_refused_and_not_shown(conninfo: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as refused:
        PostgresConnection("PostgresSource", conninfo, ms(1))
    assert "hush" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("conninfo", "shown"),
    [
        ("host=/tmp/db user=me password = 'hu sh' sslmode=require", "user=me password=*** host=/tmp/db sslmode=***"),
        ("postgresql://me:hu%40sh@h1,h2:5433/db", "user=me password=*** dbname=db host=h1,h2 port=,5433"),
        ("host='odd host' dbname='a b'", "dbname=*** host=***"),
    ],
)
def test_repr_of_a_conninfo(conninfo: str, shown: str) -> None:
    assert repr(PostgresConnection("PostgresSource", conninfo, ms(1))) == shown


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Orders", ["Orders"]),
        ("shop.Orders", ["shop", "Orders"]),
        ('"a.b"', ["a.b"]),
        ('shop."a.""b"', ["shop", 'a."b']),
        ('"a.b".c', ["a.b", "c"]),
        ('odd "$1" 100%', ['odd "$1" 100%']),
    ],
)
def test_names_of_tables(name: str, parts: list[str]) -> None:
    assert parse_table_name(name) == parts


@pytest.mark.parametrize("name", ["", "db.shop.orders", "shop.", ".orders", '"orders', '"a"b', '""', 'shop."a.b'])
def test_other_names_of_tables_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not the name of a table\. Write name or schema\.name"):
        PostgresSource("host=h", name, slot_name="s", decode=dict)
    with pytest.raises(ConfigurationError, match="is not the name of a table"):
        PostgresSink("host=h", name, ["id"])
    with pytest.raises(ConfigurationError, match="is not the name of a table"):
        PostgresSink("host=h", "orders", ["id"], batch_table=name)


def test_invalid_offsets_and_timestamps() -> None:
    with pytest.raises(ConfigurationError, match="timestamp must be an int of ms since the epoch, got -1"):
        OffsetsInitializer.timestamp(-1)
    with pytest.raises(ConfigurationError, match=r"The offset of \('t', 0\) must be an int of at least 0, got -2"):
        OffsetsInitializer.offsets({("t", 0): -2})


def test_missing_client_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv2.checks.client_library.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError) as refused:
        kafka()
    assert str(refused.value) == (
        'KafkaSource requires confluent_kafka, which is not installed. Install it: pip install "dsv2[kafka]".'
    )
