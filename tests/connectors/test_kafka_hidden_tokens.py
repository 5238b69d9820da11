"""Nothing shows the token of a source or sink of Kafka: plans, checkpoints, logs and errors."""

from __future__ import annotations

import pytest

from components.kafka import KafkaBroker
from dsv2.base.secrets import OptionValue
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from tests.connectors.test_server_suites import TestKafkaSink, TestKafkaSource
from tests.durations import ms
from tests.kafka_topics import Topics
from tests.unsigned_tokens import encoded

OPTIONS: dict[str, OptionValue] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
EXPIRES = 4_102_444_800.0
TOKEN = encoded({"sub": "dsv2", "iat": 1_000_000_000, "exp": EXPIRES})


def token(config: str) -> tuple[str, float]:
    return TOKEN, EXPIRES


class SourceWithTokens(TestKafkaSource):
    secrets = (TOKEN,)

    def create_source(self) -> KafkaSource[str]:
        return self.source(self.broker.token_servers, 60_000)

    def source(self, servers: str, retry_ms: int) -> KafkaSource[str]:
        return KafkaSource(
            servers,
            topics=[self.topic],
            decode=values(bytes.decode),
            retry_timeout=ms(retry_ms),
            options=OPTIONS,
            oauth_cb=token,
        )


class SinkWithTokens(TestKafkaSink):
    secrets = (TOKEN,)

    def create_sink(self) -> KafkaSink[str]:
        return self.sink(self.broker.token_servers, 60_000)

    def sink(self, servers: str, retry_ms: int) -> KafkaSink[str]:
        return KafkaSink(servers, self.topic, str.encode, retry_timeout=ms(retry_ms), options=OPTIONS, oauth_cb=token)


del TestKafkaSource, TestKafkaSink  # their tests run elsewhere


@pytest.mark.nightly  # the client library takes a second to create a client
@pytest.mark.parametrize("kind", [SourceWithTokens, SinkWithTokens])
def test_tokens_are_hidden(
    kafka_broker: KafkaBroker, topics: Topics, kind: type[SourceWithTokens] | type[SinkWithTokens]
) -> None:
    suite = kind()
    suite.broker, suite.topics, suite.topic = kafka_broker, topics, topics.create(2)
    suite.test_secrets_are_hidden()
