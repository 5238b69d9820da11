"""The connection settings of a Kafka cluster, and the client configurations made from them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeAlias

from dsv2.base.secrets import ClientOptions, OptionValue
from dsv2.checks.arguments import as_milliseconds
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.kafka.tokens import OAuthCallback, check_login
from dsv2.errors import ConfigurationError

Config: TypeAlias = dict[str, Any]

# Options that the connector sets, with the argument to use instead.
_RESERVED = {
    "bootstrap.servers": "bootstrap_servers",
    "group.id": "group_id",
    "auto.offset.reset": "starting_offsets and on_offsets_out_of_range",
    "enable.auto.commit": "commit_offsets",
    "enable.auto.offset.store": "commit_offsets",
    "enable.partition.eof": "stopping_offsets",
    "transactional.id": "transactional_id_prefix",
    "enable.idempotence": "delivery",
    "acks": "delivery",
    "oauth_cb": "the argument oauth_cb",
    "request.required.acks": "delivery",
}
_CONSUMER: Config = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
_PRODUCER: Config = {"enable.idempotence": True, "acks": "all", "delivery.report.only.error": True}
MAX_MESSAGE_BYTES = 1_000_000  # of librdkafka; the Java client and brokers have 1 MiB, which includes the batch
# Defaults that the user may override.
_CLIENT_DEFAULTS: Config = {"reconnect.backoff.max.ms": 1000, "log.connection.close": False}
_CONSUMER_DEFAULTS: Config = {
    "fetch.wait.max.ms": 10,  # the messages of a range exist already; a longer wait would only delay the next range
    "queued.min.messages": 20_000,  # messages fetched beyond the range are discarded
    "fetch.queue.backoff.ms": 10,  # otherwise a full queue pauses its partition for a second, into the next range
    "isolation.level": "read_committed",
    "check.crcs": True,  # as the Java client; librdkafka does not check them by default
    "allow.auto.create.topics": False,
}
_PRODUCER_DEFAULTS: Config = {
    "partitioner": "murmur2_random",  # of the Java client; that of librdkafka takes other partitions for the same keys
    "message.max.bytes": MAX_MESSAGE_BYTES,
}
_TRANSACTION_DEFAULTS: Config = {"transaction.timeout.ms": 60_000}
_NO_GROUP = "dsv2"  # the client requires a group even if it never joins one


class KafkaConnection:
    """A cluster and how to connect to it.

    Args:
        user: The connector, for errors.
        bootstrap_servers: "host:port,host:port".
        options: Options of librdkafka.
        retry_timeout: How long to retry while no broker answers.
        group_id: The consumer group, if there is one.
        oauth_cb: Returns the tokens of SASL OAUTHBEARER.

    Raises:
        ConfigurationError: An argument is invalid, or the client library is not installed.
    """

    def __init__(
        self,
        user: str,
        bootstrap_servers: str,
        options: Mapping[str, OptionValue],
        retry_timeout: timedelta,
        group_id: str | None = None,
        oauth_cb: OAuthCallback | None = None,
    ) -> None:
        require_client_library("confluent_kafka", "kafka", user)
        if not bootstrap_servers:
            raise ConfigurationError(f'{user} requires bootstrap_servers: "host:port,host:port".')
        if "@" in bootstrap_servers:
            raise ConfigurationError(
                f'{user}: bootstrap_servers must be "host:port,host:port", without a user or password. Pass these as '
                f"the options sasl.username and sasl.password."
            )
        for name, instead in _RESERVED.items():
            if name in options:
                raise ConfigurationError(f"{user} sets the option {name!r} itself. Use {instead} instead.")
        self.bootstrap_servers = bootstrap_servers
        self.options = ClientOptions(options)
        self.retry_timeout_ms = as_milliseconds(retry_timeout, "retry_timeout", at_least=1)
        self.group_id = group_id
        from dsv2.connectors.kafka.option_check import check_options

        check_options(user, self.options)
        self.tokens = check_login(user, self.options, oauth_cb)

    @property
    def key(self) -> str:
        """Equal for connections that may share a client. Contains secrets."""
        tokens = None if self.tokens is None else self.tokens.key
        return repr((self.bootstrap_servers, sorted(self.options.items()), self.group_id, tokens))

    @property
    def sees_uncommitted(self) -> bool:
        """True if messages of open and aborted transactions are read."""
        return self.options.get("isolation.level") == "read_uncommitted"

    def client_config(self) -> Config:
        """The configuration of admin clients. Raises ``JobError`` if there is no token."""
        tokens: Config = {} if self.tokens is None else {"oauth_cb": self.tokens.prepared()}
        return {**_CLIENT_DEFAULTS, "bootstrap.servers": self.bootstrap_servers, **self.options, **tokens}

    def consumer_config(self) -> Config:
        """The configuration of consumers, which never join their group."""
        return {**_CONSUMER_DEFAULTS, **self.client_config(), **_CONSUMER, "group.id": self.group_id or _NO_GROUP}

    def producer_config(self, transactional_id: str | None) -> Config:
        """The configuration of producers. Without a ``transactional_id``, they do not use transactions."""
        if transactional_id is None:
            ours: Config = {"delivery.timeout.ms": self.retry_timeout_ms}
        else:
            ours = {**_TRANSACTION_DEFAULTS, "transactional.id": transactional_id}
        return {**_PRODUCER_DEFAULTS, **ours, **self.client_config(), **_PRODUCER}

    def redacted(self, text: str) -> str:
        """Return ``text`` with the secrets of the options and the token hidden."""
        return self.options.redacted(text if self.tokens is None else self.tokens.redacted(text))

    def presentable(self, error: Exception) -> Exception | None:
        """Return ``error`` as the cause of another error; None if it contains a secret, as tracebacks show causes."""
        return error if self.redacted(str(error)) == str(error) else None
