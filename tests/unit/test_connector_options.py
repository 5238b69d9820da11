"""What connectors are told: secrets that do not show, mistakes that are found when the source is made."""

from __future__ import annotations

from typing import Any

import pytest

from dsv2 import ConfigurationError
from dsv2.connectors.kafka import KafkaSource, OffsetsInitializer, values
from dsv2.connectors.secrets import ClientOptions

SECRETS = (
    "sasl.password",
    "SSL.Key.Password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.jaas.config",
    "aws.session.token",
    "passfile-passphrase",
)
HARMLESS = ("sasl.username", "ssl.ca.location", "ssl.key.location", "sasl.oauthbearer.token.endpoint.url", "user")


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_do_not_show(name: str) -> None:
    options = ClientOptions({name: "hush", "linger.ms": 5})
    assert repr(options) == repr({name: "***", "linger.ms": 5})
    assert f"{options}" == str(options) == repr(options)
    assert options.redacted("it said hush, twice: hush") == "it said ***, twice: ***"
    assert options[name] == "hush"


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_secret_shows(name: str) -> None:
    options = ClientOptions({name: "plain"})
    assert repr(options) == repr({name: "plain"})
    assert options.redacted("it said plain") == "it said plain"


def test_an_empty_secret_hides_nothing() -> None:
    assert ClientOptions({"sasl.password": ""}).redacted("words") == "words"


def kafka(**options: Any) -> KafkaSource[int]:
    return KafkaSource("host:9092", decode=values(int), **{"topics": "t", **options})


def test_a_source_shows_where_it_reads_but_no_secret() -> None:
    assert repr(kafka(options={"sasl.password": "hush"})) == "KafkaSource(t at host:9092, {'sasl.password': '***'})"
    assert repr(kafka(topics=None, topic_pattern="a.*")) == "KafkaSource(topics like 'a.*' at host:9092, {})"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topics": None}, "either topics, at least one, or a topic_pattern"),
        ({"topics": []}, "either topics, at least one, or a topic_pattern"),
        ({"topic_pattern": "a.*"}, "either topics, at least one, or a topic_pattern"),
        ({"topics": None, "topic_pattern": "a("}, r"topic_pattern 'a\(' is not a regular expression"),
        ({"starting_offsets": OffsetsInitializer.committed_offsets()}, "give KafkaSource a group_id"),
        (
            {"stopping_offsets": OffsetsInitializer.offsets({}, OffsetsInitializer.committed_offsets())},
            "give KafkaSource a group_id",
        ),
        ({"commit_offsets": True}, "give KafkaSource a group_id"),
        ({"records_per_batch": 0}, "records_per_batch must be at least 1, not 0"),
        ({"discovery_interval_ms": 0}, "discovery_interval_ms must be at least 1, not 0"),
        ({"retry_timeout_ms": 0}, "retry_timeout_ms must be at least 1, not 0"),
        ({"split_assigner": "random"}, "split_assigner is 'hash' or 'round-robin', not 'random'"),
        ({"on_undecodable": "drop"}, "on_undecodable is 'fail' or 'skip', not 'drop'"),
        ({"on_offsets_out_of_range": "drop"}, "on_offsets_out_of_range is 'fail', 'earliest' or 'latest', not 'drop'"),
        ({"options": {"enable.auto.commit": True}}, "sets the option 'enable.auto.commit' itself. Use commit_offsets"),
    ],
)
def test_mistakes_are_found_when_the_source_is_made(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        kafka(**options)


def test_offsets_and_timestamps_that_are_none() -> None:
    with pytest.raises(ConfigurationError, match="A timestamp is a whole number of ms since the epoch, not -1"):
        OffsetsInitializer.timestamp(-1)
    with pytest.raises(
        ConfigurationError, match=r"An offset is a whole number of at least 0, not -2 \(of \('t', 0\)\)"
    ):
        OffsetsInitializer.offsets({("t", 0): -2})


def test_a_missing_client_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv2.connectors.client_library.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError) as refused:
        kafka()
    assert str(refused.value) == (
        'KafkaSource needs confluent_kafka, which is not installed: pip install "dsv2[kafka]".'
    )
