"""How to reach a cluster: what source and sink are told, as the client library wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from dsv2.arguments import as_milliseconds
from dsv2.connectors.client_library import require_client_library
from dsv2.connectors.secrets import ClientOptions, OptionValue
from dsv2.errors import ConfigurationError

__all__ = ("Config", "KafkaConnection")

Config: TypeAlias = dict[str, Any]

# What the connector sets itself, and where to say it instead.
_RESERVED = {
    "bootstrap.servers": "bootstrap_servers",
    "group.id": "group_id",
    "auto.offset.reset": "starting_offsets and on_offsets_out_of_range",
    "enable.auto.commit": "commit_offsets",
    "enable.auto.offset.store": "commit_offsets",
    "enable.partition.eof": "stopping_offsets",
    "transactional.id": "transactional_id_prefix",
    "enable.idempotence": "delivery",
}
_CONSUMER: Config = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
# What the user may change.
_ANY: Config = {"reconnect.backoff.max.ms": 1000, "log.connection.close": False}
_READING: Config = {
    "fetch.wait.max.ms": 10,  # what is read is there; a longer wait would only hold up the next range
    "queued.min.messages": 20_000,  # what is fetched behind the range is thrown away
    "fetch.queue.backoff.ms": 10,  # else a partition with a full queue pauses for a second, also for the next range
}
_NO_GROUP = "dsv2"  # the client asks for a group even if it never joins one


@dataclass(frozen=True)
class KafkaConnection:
    """A cluster, and how to reach it.

    ``options``: for the client library (librdkafka), by its names. ``retry_timeout_ms``: how long to try again while
    brokers do not answer.
    """

    bootstrap_servers: str
    options: ClientOptions
    retry_timeout_ms: int
    group_id: str | None = None

    @staticmethod
    def checked(
        user: str,
        bootstrap_servers: str,
        options: Mapping[str, OptionValue],
        retry_timeout: timedelta,
        group_id: str | None = None,
    ) -> KafkaConnection:
        """What ``user`` was told. Raises ``ConfigurationError``; also if the client library is missing."""
        require_client_library("confluent_kafka", "kafka", user)
        if not bootstrap_servers:
            raise ConfigurationError(f'{user} needs bootstrap_servers: "host:port,host:port".')
        if "@" in bootstrap_servers:
            raise ConfigurationError(
                f'{user}: bootstrap_servers has no user or password in it: "host:port,host:port". These are options: '
                f"sasl.username and sasl.password."
            )
        for name, instead in _RESERVED.items():
            if name in options:
                raise ConfigurationError(f"{user} sets the option {name!r} itself. Use {instead} instead.")
        retry_timeout_ms = as_milliseconds(retry_timeout, "retry_timeout", at_least=1)
        hidden = ClientOptions(options)
        from dsv2.connectors.kafka.option_check import check_options

        check_options(user, hidden)
        return KafkaConnection(bootstrap_servers, hidden, retry_timeout_ms, group_id)

    @property
    def sees_uncommitted(self) -> bool:
        """Whether messages of open and aborted transactions are read."""
        return self.options.get("isolation.level") == "read_uncommitted"

    def client_config(self) -> Config:
        """For a client that only asks."""
        return {**_ANY, "bootstrap.servers": self.bootstrap_servers, **self.options}

    def consumer_config(self) -> Config:
        """For a client that reads, or looks at a group, which it does not join."""
        return {**_READING, **self.client_config(), **_CONSUMER, "group.id": self.group_id or _NO_GROUP}

    def redacted(self, text: str) -> str:
        """``text`` without the secrets among the options."""
        return self.options.redacted(text)

    def presentable(self, error: Exception) -> Exception | None:
        """``error`` of the client as the cause of ours; None if it has a secret in it, as tracebacks show causes."""
        return error if self.redacted(str(error)) == str(error) else None
