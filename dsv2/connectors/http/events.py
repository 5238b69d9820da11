"""Server-Sent Events: their format, and the receiver of a stream of them."""

from __future__ import annotations

import codecs
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from dsv2.connectors.http.endpoint import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, RETRIED, Endpoint
from dsv2.connectors.received import ReceivedSplit, Receiver
from dsv2.errors import JobError

if TYPE_CHECKING:
    import urllib3

_LOG = logging.getLogger(__name__)
_BYTES_AT_ONCE = 1 << 16
_MOST_DIGITS = 9  # of a time in ms
_TYPE = "text/event-stream"


class ServerSentEvent(NamedTuple):
    """An event.

    Attributes:
        event: Its type. Default: ``message``.
        data: Its data. Several lines are separated by newlines.
        id: The last id that the server has sent up to this event; empty if there is none.
    """

    event: str
    data: str
    id: str


class EventParser:
    """Parses a stream by the rules of WHATWG. An event that is not complete at the end of the stream does not count.

    Args:
        last_id: The last id of the stream before.

    Attributes:
        last_id: The id after the last complete event.
        retry_ms: The time in ms after which the server wants a connection again. None: it has not sent one.
    """

    def __init__(self, last_id: str = "") -> None:
        self.last_id = self._id = last_id
        self.retry_ms: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._follows_cr = False
        self._line = ""
        self._data: list[str] = []
        self._type = ""

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that are complete with ``chunk``."""
        if not (text := self._decoder.decode(chunk)):
            return
        if self._follows_cr:
            text = text.removeprefix("\n")
        self._follows_cr = text.endswith("\r")
        *lines, self._line = (self._line + text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
        for line in lines:
            if line:
                self._take(*line.partition(":")[::2])
                continue
            self.last_id = self._id
            if self._data:
                yield ServerSentEvent(self._type or "message", "\n".join(self._data), self._id)
            self._data, self._type = [], ""

    def _take(self, name: str, value: str) -> None:
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS:
            self.retry_ms = int(value)


class EventReceiver(Receiver):
    """Receives the events of an endpoint, and connects again when a connection ends.

    Args:
        who: The source, for errors.
        endpoint: The endpoint.
        idle_seconds: How long a connection may be silent.
        capacity: The most events of the inbox.
    """

    def __init__(self, who: str, endpoint: Endpoint, idle_seconds: float, capacity: int) -> None:
        super().__init__(capacity)
        self._who = who
        self._endpoint = endpoint
        self._idle_seconds = idle_seconds
        self._pool = endpoint.pool()
        self._last_id = ""
        self._retry_ms: int | None = None
        self._attempts = 0  # since the last event
        self._response: urllib3.BaseHTTPResponse | None = None

    def open(self, split: ReceivedSplit) -> None:
        self._last_id = split.position
        self._response = self._requested()

    def receive(self) -> None:
        while self._response is not None:
            self._read(self._response)
            self._pause()
            self._response = self._requested()

    def interrupt(self) -> None:
        if (response := self._response) is not None:
            with suppress(OSError, RuntimeError, ValueError):  # it has ended
                response.shutdown()
        self._pool.clear()

    def _read(self, response: urllib3.BaseHTTPResponse) -> None:
        import urllib3

        parser = EventParser(self._last_id)
        try:
            while not self.is_closed and (chunk := response.read1(_BYTES_AT_ONCE)):
                for event in parser.feed(chunk):
                    self.put(event.id, json.dumps(event))
                    self._attempts = 0
                self._last_id = parser.last_id
                self._retry_ms = self._retry_ms if parser.retry_ms is None else parser.retry_ms
        except urllib3.exceptions.HTTPError as error:
            _LOG.info("%s: the connection ended, and is opened again: %s", self._who, type(error).__name__)
        finally:
            response.close()

    def _pause(self) -> None:
        """Wait before the next request, as the server wants, or longer and longer."""
        seconds = FIRST_PAUSE_SECONDS * 2.0 ** min(self._attempts, 10)
        self._attempts += 1
        self.pause(min(seconds, LONGEST_PAUSE_SECONDS) if self._retry_ms is None else self._retry_ms / 1000)

    def _requested(self) -> urllib3.BaseHTTPResponse | None:
        """Send a request, again after a transient failure. Returns None if the server has no more events."""
        for left in range(self._endpoint.retries, -1, -1):
            response, failure = self._answer()
            if response is not None and response.status not in RETRIED:
                break
            if not left:
                raise JobError(self._endpoint.redacted(f"{self._who}: {failure}"))
            _LOG.warning("%s: %s", self._who, self._endpoint.redacted(f"{failure}. The request is repeated."))
            self._pause()
        assert response is not None
        kind = response.headers.get("Content-Type", "")
        if response.status == 200 and kind.partition(";")[0].strip().lower() == _TYPE:
            return response
        response.close()
        if response.status == 204:
            return None
        raise JobError(self._endpoint.redacted(f"{self._who}: {failure}, with the type {kind!r} and not {_TYPE}."))

    def _answer(self) -> tuple[urllib3.BaseHTTPResponse | None, str]:
        """Return the answer to a request, and its description. None: there is none."""
        import urllib3

        last = {"Last-Event-ID": self._last_id.encode().decode("latin-1")} if self._last_id else {}  # sent as UTF-8
        timeout = urllib3.Timeout(connect=self._endpoint.timeout_seconds, read=self._idle_seconds)
        headers = {**self._pool.headers, **last}
        try:
            response = self._pool.request(
                "GET",
                self._endpoint.url,
                headers=headers,
                timeout=timeout,
                preload_content=False,
                retries=False,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            return None, f"cannot send a request: {error}"
        if response.status in RETRIED:
            response.close()
        return response, f"the endpoint answered with {response.status} {response.reason}"
