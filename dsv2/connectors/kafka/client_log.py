"""The log of librdkafka, forwarded to the logger ``dsv2.connectors.kafka.client``."""

from __future__ import annotations

from collections.abc import Callable

from dsv2.connectors.client_log import ClientLog

_LOG = ClientLog("dsv2.connectors.kafka.client")


class KafkaClientLog:
    """The ``logger`` argument of producers, consumers and admin clients. Keeps no reference to the client."""

    def __init__(self, redacted: Callable[[str], str]) -> None:
        """``redacted`` removes secrets from a message."""
        self._redacted = redacted
        self._log = _LOG

    def log(self, level: int, template: str, facility: str, client: str, message: str) -> None:
        """Called by the client library while it polls."""
        self._log.write(level, facility, self._redacted(template % (facility, client, message)))
