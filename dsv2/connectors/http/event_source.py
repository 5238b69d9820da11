"""``SseSource``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Generic

from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import as_milliseconds, check_at_least_one
from dsv2.connectors.http.endpoint import Endpoint
from dsv2.connectors.http.events import EventReceiver, ServerSentEvent
from dsv2.connectors.received import ReceivedSource


class SseSource(ReceivedSource[T_co], Generic[T_co]):
    """Receives Server-Sent Events.

    The id of the last event is the position in the checkpoint. The driver receives the events, and those of a
    micro-batch are part of the checkpoint until the next one, so a repeated micro-batch has the same records.

    Each event is read once if it has an id and the server repeats, for the header ``Last-Event-ID``, all events after
    that id. Events without ids that are sent while the job restarts, or between two connections, are lost.

    The source is unbounded. ``Trigger.available_now()`` reads what has arrived by then, which may be nothing.
    """

    record_types = (ServerSentEvent,)

    def __init__(
        self,
        url: str,
        *,
        decode: Callable[[ServerSentEvent], T_co],
        records_per_batch: int = 1000,
        headers: Mapping[str, str] | None = None,
        retries: int = 10,
        timeout: timedelta = timedelta(seconds=30),
        idle_timeout: timedelta = timedelta(minutes=5),
    ) -> None:
        """Create the source.

        Args:
            url: The endpoint. A user and password in it are never shown.
            decode: Creates the record of an event. Called in tasks.
            records_per_batch: The maximum number of events in a micro-batch. They are in an offset of the checkpoint,
                which should have some megabytes at most.
            headers: Headers of the requests. Their values are never shown.
            retries: How often a request is repeated if there is no connection, or the status is 408, 425, 429, 500,
                502, 503 or 504. Pauses grow from 0.1 to 10 seconds, unless the server has sent ``retry``.
            timeout: The time limit for a connection.
            idle_timeout: How long the server may send nothing, not even a comment. Then the source connects again.

        Raises:
            ConfigurationError: An argument is invalid, or urllib3 is not installed.
        """
        own = {"Accept": "text/event-stream", **(headers or {})}
        self._endpoint = Endpoint("SseSource", url, own, retries, timeout)
        self._idle_seconds = as_milliseconds(idle_timeout, "idle_timeout", at_least=1) / 1000
        check_at_least_one(records_per_batch=records_per_batch)
        super().__init__(decode, records_per_batch)

    def __repr__(self) -> str:
        return f"SseSource({self._endpoint})"

    def create_receiver(self) -> EventReceiver:
        return EventReceiver(repr(self), self._endpoint, self._idle_seconds, 2 * (self.limit_per_batch or 0))

    def message_of(self, text: str) -> ServerSentEvent:
        return ServerSentEvent(*json.loads(text))
