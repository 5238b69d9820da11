"""What goes wrong at a client, and what to tell the user about it."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.errors import JobError

__all__ = ("ClientErrors", "failure_of", "is_hopeless")

_HOPELESS = {
    KafkaError._AUTHENTICATION: "The brokers refuse the credentials",
    KafkaError.SASL_AUTHENTICATION_FAILED: "The brokers refuse the credentials",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "The user may not use this topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "The user may not use this consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "The user may not do this on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "The user may not use this transactional id",
    KafkaError._SSL: "There is no secure connection to the brokers",
    KafkaError._INVALID_ARG: "The client library does not take the options",
}
_OVERTAKEN = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_SILENCE = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._WAIT_COORD,
)


class ClientErrors:
    """The worst that a client has reported; its callbacks.

    They belong to an object of their own: a client that is part of a reference cycle would be ended by the garbage
    collector, at any time and in any thread, which the client library does not always survive.
    """

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        self.undelivered: KafkaError | None = None
        self.purged: KafkaError | None = None

    def remember(self, error: KafkaError) -> None:
        """The client's callback for errors."""
        if self.last is None or not is_hopeless(self.last):
            self.last = error

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """A producer's callback for messages. That they were given up is only what comes of another error."""
        if error is None:
            return
        if error.code() in _PURGED:
            self.purged = self.purged or error
        else:
            self.undelivered = self.undelivered or error

    @property
    def hopeless(self) -> KafkaError | None:
        """An error after which it makes no sense to try again."""
        return self.last if self.last is not None and is_hopeless(self.last) else None


def is_hopeless(error: KafkaError) -> bool:
    """Whether trying again would not help."""
    return error.fatal() or error.code() in _HOPELESS


def failure_of(connection: KafkaConnection, what: str, error: KafkaError) -> JobError:
    """What to tell the user about ``error``, for which ``what`` cannot be done."""
    reason = _HOPELESS.get(error.code(), "It was refused")
    if error.code() in _SILENCE:
        reason = "The brokers do not answer"
    elif error.code() in _OVERTAKEN:
        reason = "Another attempt at the same has taken over"
    told = connection.redacted(error.str())
    return JobError(f"{what} at {connection.bootstrap_servers}. {reason} ({error.name()}: {told}).")
