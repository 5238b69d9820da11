"""Errors and the log of Kafka clients, and the error messages for the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, Message

from dsv2.connectors.client_log import ClientLog
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.errors import JobError

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


_REJECTED = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_PERMANENT = {
    **dict.fromkeys(_REJECTED, "The brokers rejected the credentials"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "The user is not authorized to use this topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "The user is not authorized to use this consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "The user is not authorized to do this on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "The user is not authorized to use this transactional id",
    KafkaError._SSL: "A secure connection to the brokers could not be established",
    KafkaError._INVALID_ARG: "The client library rejected the options",
}
# A broker that rejects a certificate closes the connection with one of the alerts of TLS about certificates.
_REJECTED_CERTIFICATE = re.compile(r"SSL alert number (4[2-689]|116)\b")
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_UNAVAILABLE = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._WAIT_COORD,
)


class ClientErrors:
    """The callbacks of a client, which keep the most severe errors that it has reported.

    They are methods of a separate object to avoid a reference cycle: the garbage collector would destroy a client in a
    cycle at any time and in any thread, which can crash the client library.
    """

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        self.undelivered: KafkaError | None = None
        self.purged: KafkaError | None = None

    def remember(self, error: KafkaError) -> None:
        """Keep ``error`` unless a permanent one is kept already. The error callback of clients."""
        if self.last is None or not is_permanent(self.last):
            self.last = error

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Keep ``error``. The delivery callback of producers. Purged messages are the result of another error."""
        if error is None:
            return
        if error.code() in _PURGED:
            self.purged = self.purged or error
        else:
            self.undelivered = self.undelivered or error

    @property
    def permanent(self) -> KafkaError | None:
        """The error that rules out a retry, if there is one."""
        return self.last if self.last is not None and is_permanent(self.last) else None


def is_permanent(error: KafkaError) -> bool:
    """Return whether a retry cannot succeed."""
    return error.fatal() or error.code() in _PERMANENT or _is_rejected_certificate(error)


def _is_rejected_certificate(error: KafkaError) -> bool:
    return error.code() == KafkaError._TRANSPORT and _REJECTED_CERTIFICATE.search(error.str()) is not None


def failure_of(connection: KafkaConnection, what: str, error: KafkaError) -> JobError:
    """Create the ``JobError`` for a failed operation.

    Args:
        connection: The cluster.
        what: The first part of the message, such as "Cannot list topics".
        error: The error of the client library. Secrets are removed from its text.
    """
    reason = _PERMANENT.get(error.code(), "The request failed")
    if _is_rejected_certificate(error):
        reason = "The brokers rejected the certificate of the client, or it has none"
    elif error.code() in _UNAVAILABLE:
        reason = "The brokers do not answer"
    elif error.code() in _REJECTED and connection.tokens is not None:
        reason = connection.tokens.rejected() or reason
    elif error.code() in _FENCED:
        reason = "A newer attempt of the same task has taken over, or transaction.timeout.ms has passed"
    message = connection.redacted(error.str())
    return JobError(f"{what} at {connection.bootstrap_servers}. {reason} ({error.name()}: {message}).")


@contextmanager
def reported(connection: KafkaConnection, what: str) -> Iterator[None]:
    """Raise the ``JobError`` of ``failure_of`` for an error of the client library in a ``with`` block."""
    try:
        yield
    except KafkaException as error:
        raise failure_of(connection, what, error.args[0]) from connection.presentable(error)
