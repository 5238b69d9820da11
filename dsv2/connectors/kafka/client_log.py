"""What librdkafka logs: the logger ``dsv2.connectors.kafka.client``."""

from __future__ import annotations

from collections.abc import Callable

from dsv2.connectors.client_log import ClientLog

__all__ = ("KafkaClientLog",)

_LOG = ClientLog("dsv2.connectors.kafka.client")


class KafkaClientLog:
    """The ``logger`` of a client, producer, consumer or admin client. Keeps no reference to the client."""

    def __init__(self, redacted: Callable[[str], str]) -> None:
        """``redacted``: takes secrets out of a message."""
        self._redacted = redacted
        self._log = _LOG

    def log(self, level: int, template: str, facility: str, client: str, message: str) -> None:
        """Called by the client library, in a call that polls."""
        self._log.write(level, facility, self._redacted(template % (facility, client, message)))
