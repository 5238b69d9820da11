"""``NatsSink``."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Generic, TypeAlias

from dsv2.base.secrets import OptionValue
from dsv2.base.type_variables import T
from dsv2.connectors.nats.connection import NatsConnection
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo

_MESSAGES_AT_ONCE = 1000
_SECONDS = 30


_Message: TypeAlias = tuple[str, bytes, Mapping[str, str]]  # subject, payload and headers


class NatsSink(ParallelSink[T], Generic[T]):
    """Adds a message to a stream for each record, at least once, and once within the stream's duplicate window.

    Each message has a ``Nats-Msg-Id``, which is the same when a micro-batch is repeated. The server ignores a message
    whose id it received within the duplicate window of the stream, which is two minutes by default. So records are
    added once if a job restarts, and repeats its micro-batch, within this window. The parallelism of the sink must not
    change before that.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        subject: str | Callable[[T], str],
        data: Callable[[T], bytes],
        *,
        headers: Callable[[T], Mapping[str, str]] | None = None,
        retry_timeout: timedelta = timedelta(minutes=2),
        options: Mapping[str, OptionValue] | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Create the sink.

        Args:
            servers: The servers of a cluster, such as ``nats://host:4222``. A user and password in it are never shown.
            subject: The subject of the messages, or a function that returns that of a record. A stream must have it.
            data: Returns the payload of a record.
            headers: Returns the headers of a record. Default: none.
            retry_timeout: How long unreachable servers are retried.
            options: Options of ``nats.connect``, such as ``user`` and ``password``. Secrets are never shown.
            tls: Creates the context of TLS connections where they are opened, such as
                ``partial(ssl.create_default_context, cafile="ca.pem")``.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
        """
        self._connection = NatsConnection("NatsSink", servers, options, tls, retry_timeout)
        self._subject = subject
        self._data = data
        self._headers = headers

    def describe_target(self) -> str:
        return repr(self._connection)

    def check_record(self, record: T) -> None:
        """Raise an error if ``record`` has no subject, payload and headers. What the server refuses is not known."""
        self._message("", 0, record)

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        self._connection.run("Cannot begin to write", partial(_publish, ()))

    def write(self, batch: SinkBatch[T]) -> None:
        info = batch.info
        name = f"{info.name}/{info.parallelism}/{batch.subtask}/{batch.batch_id}"
        records = enumerate(record for part in batch.batches for record in part.rows())
        messages = itertools.starmap(partial(self._message, name), records)
        while some := list(itertools.islice(messages, _MESSAGES_AT_ONCE)):
            self._connection.run("Cannot write", partial(_publish, some))

    def _message(self, name: str, number: int, record: T) -> _Message:
        subject = self._subject if isinstance(self._subject, str) else self._subject(record)
        data = self._data(record)
        if not isinstance(subject, str) or not isinstance(data, bytes):
            raise TypeError(f"A message has a subject (str) and data (bytes), not {subject!r} and {data!r}.")
        headers = dict(self._headers(record)) if self._headers else {}
        identity = sha256(f"{name}/{number}/{subject}/{headers}/".encode() + data)
        return subject, data, {**headers, "Nats-Msg-Id": identity.hexdigest()}


async def _publish(messages: Sequence[_Message], client: Any) -> None:
    import asyncio

    server = client.jetstream()
    acks = [await server.publish_async(subject, data, headers=headers) for subject, data, headers in messages]
    await asyncio.wait_for(asyncio.gather(*acks), _SECONDS)
