"""Tokens of SASL OAUTHBEARER: when the function is called, what happens if it fails, and what is shown."""

from __future__ import annotations

import functools
import logging
from threading import Lock
from typing import Any

import cloudpickle
import pytest

from dsv2.connectors.kafka import KafkaSource, OAuthCallback, values
from dsv2.connectors.kafka.client_errors import failure_of
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.tokens import TokenSource
from dsv2.errors import ConfigurationError, JobError
from tests.durations import ms

BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


class Service:
    """A service with a clock. The lifetime of its tokens is 100 seconds. A test lets it fail."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.issued = 0
        self.fails = False
        self.source = TokenSource(self.token, "audience", clock=lambda: self.now)

    def token(self, config: str) -> tuple[str, float]:
        if self.fails:
            raise RuntimeError("a secret")
        self.issued += 1
        return f"{config}-{self.issued}", self.now + 100


def test_token_is_reused_until_it_is_renewed() -> None:
    service = Service()
    assert service.source.prepared() is service.source
    service.now += 74
    assert service.source("")[0] == "audience-1"
    service.now += 2  # the client library asks again after 80 seconds
    assert service.source("")[0] == "audience-2"
    service.source.rejected()
    assert service.source("")[0] == "audience-3"


def test_previous_token_is_used_while_the_function_fails(caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    service.source.prepared()
    service.fails = True
    service.now += 80
    with caplog.at_level(logging.WARNING):
        assert service.source("")[0] == "audience-1"
    assert "oauth_cb raised RuntimeError (test_kafka_tokens.py, line" in caplog.text
    assert "secret" not in caplog.text
    service.now += 20
    with pytest.raises(JobError, match=r"^Cannot get a token for Kafka\. oauth_cb raised RuntimeError") as failed:
        service.source.prepared()
    assert failed.value.__cause__ is None
    service.fails = False
    assert service.source("")[0] == "audience-2"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("token", "oauth_cb must return a tuple of a token and the time when it expires"),
        (("token", "soon"), "oauth_cb must return a tuple of a token and the time when it expires"),
        (("token", 1_700_000_000_000), "oauth_cb must return the time when the token expires in seconds, not ms"),
        (("token", 999.0), "oauth_cb returned a token that has expired"),
    ],
)
def test_invalid_token(returned: Any, message: str) -> None:
    source = TokenSource(lambda config: returned, "", clock=lambda: 1000.0)
    with pytest.raises(JobError, match=message):
        source.prepared()


def returns(secret: str, config: str) -> tuple[str, float]:
    return f"{secret}/{config}", 9e9


def connection(callback: OAuthCallback | None, **options: str) -> KafkaConnection:
    return KafkaConnection(
        "KafkaSource", "host:1", {**BEARER, **{name.replace("_", "."): value for name, value in options.items()}},
        ms(1000), oauth_cb=callback,
    )  # fmt: skip


def test_clients_are_shared_by_copies_of_a_function() -> None:
    one, other = (connection(functools.partial(returns, name)) for name in ("one", "other"))
    copies = [cloudpickle.loads(cloudpickle.dumps(one)) for _ in range(2)]
    assert {copy.key for copy in copies} == {one.key} != {other.key}
    assert connection(functools.partial(returns, "one")).key == one.key
    source = TokenSource(functools.partial(returns, "one"), "", "its key")
    assert cloudpickle.loads(cloudpickle.dumps(source)).key == "its key"  # not derived again
    lock = Lock()
    assert connection(lambda config: (str(lock), 0.0)).key  # it cannot leave this process


def test_token_is_hidden() -> None:
    made = connection(functools.partial(returns, "hu/sh"), sasl_oauthbearer_config="mine")
    assert made.client_config()["oauth_cb"]("")[0] == "hu/sh/mine"
    assert made.redacted("refused hu%2Fsh%2Fmine") == "refused ***"
    assert made.presentable(ValueError("hu/sh/mine")) is None
    source = KafkaSource(
        "host:1", topics="t", decode=values(int), options=BEARER, oauth_cb=functools.partial(returns, "hu/sh")
    )
    assert "hu/sh" not in repr(source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sasl_mechanism": "PLAIN"}, "KafkaSource would not call oauth_cb.* Set the options 'security.protocol' to"),
        ({"security_protocol": "SSL"}, "would not call oauth_cb"),
        ({"sasl_oauthbearer_method": "oidc"}, "would not call oauth_cb"),
    ],
)
def test_options_that_do_not_fit_the_callback(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        connection(functools.partial(returns, ""), **options)


def test_mechanism_without_tokens_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"the mechanism OAUTHBEARER requires tokens\. Pass oauth_cb"):
        connection(None)
    with pytest.raises(ConfigurationError, match=r"sets the option 'oauth_cb' itself\. Use the argument oauth_cb"):
        KafkaConnection("KafkaSource", "host:1", {"oauth_cb": ""}, ms(1000))
    assert connection(None, sasl_oauthbearer_method="oidc").tokens is None


def test_failure_names_the_function() -> None:
    from confluent_kafka import KafkaError

    def fail(config: str) -> tuple[str, float]:
        raise KeyError(config)

    made = connection(fail)
    assert made.tokens is not None
    with pytest.raises(KeyError):
        made.tokens("")
    failure = failure_of(made, "Cannot read", KafkaError(KafkaError._AUTHENTICATION, "no token"))
    assert "oauth_cb raised KeyError (test_kafka_tokens.py, line" in str(failure)
