"""``HttpSource``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Generic

from dsv2.base.record_position import Offset
from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import as_milliseconds, check_at_least_one
from dsv2.connectors.http.endpoint import Endpoint
from dsv2.connectors.http.pages import CURSOR, HttpSplit, PageDiscovery, PageFunction
from dsv2.errors import ConfigurationError
from dsv2.sources import AssignmentState, DataclassSerializer, SplitBatch, SplitEnumeratorContext
from dsv2.sources.assignment import ReadingSource
from dsv2.sources.shared_parts import DecodingSource


class HttpSource(DecodingSource[T_co], ReadingSource[T_co, HttpSplit], Generic[T_co]):
    """Requests the pages of an HTTP endpoint, one after the other, by a cursor. Responses are JSON.

    The cursor is the position in the checkpoint. The driver sends the requests, and the records of a micro-batch are
    part of the checkpoint until the next one, so a repeated micro-batch has the same records, whatever the endpoint
    answers then. Each record is read once if the endpoint returns all records after a cursor, in one order.
    """

    split_serializer = DataclassSerializer(HttpSplit)

    def __init__(
        self,
        url: str,
        *,
        page: PageFunction,
        decode: Callable[[Any], T_co],
        first_cursor: str = "",
        poll_interval: timedelta | None = None,
        records_per_batch: int = 10_000,
        headers: Mapping[str, str] | None = None,
        retries: int = 10,
        timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        """Create the source.

        Args:
            url: The endpoint, with ``{cursor}`` where the cursor is inserted, percent-encoded. A user and password in
                it are never shown.
            page: Returns the records of a response, and the cursor of the request for what follows them. None as the
                cursor, or the same one without records: nothing follows. Called on the driver.
            decode: Creates a record of the job from a record of a page, which is decoded JSON. Called in tasks.
            first_cursor: The cursor of the first request.
            poll_interval: None: the source ends with the page that nothing follows. Otherwise it is unbounded, and
                repeats the request after this time until something follows.
            records_per_batch: The maximum number of records in a micro-batch.
            headers: Headers of the requests. Their values are never shown.
            retries: How often a request is repeated if there is no connection, or the status is 408, 425, 429, 500,
                502, 503 or 504. Pauses grow from 0.1 to 10 seconds, unless a response has ``Retry-After``.
            timeout: The time limit for a connection, and for a response.

        Raises:
            ConfigurationError: An argument is invalid, or urllib3 is not installed.
        """
        own = {"Accept": "application/json", **(headers or {})}
        self._endpoint = Endpoint("HttpSource", url, own, retries, timeout)
        if CURSOR not in url:
            raise ConfigurationError(f"HttpSource requires a URL with {CURSOR}, where it inserts the cursor.")
        if poll_interval is not None:
            as_milliseconds(poll_interval, "poll_interval", at_least=1)
        check_at_least_one(records_per_batch=records_per_batch)
        self._page = page
        self._decode = decode
        self._first_cursor = first_cursor
        self._poll_interval = poll_interval
        self.limit_per_batch = records_per_batch

    def __repr__(self) -> str:
        return f"HttpSource({self._endpoint})"

    @property
    def bounded(self) -> bool:
        return self._poll_interval is None

    def create_discovery(
        self, ctx: SplitEnumeratorContext[HttpSplit], restored: AssignmentState[HttpSplit] | None, /
    ) -> PageDiscovery:
        return PageDiscovery(repr(self), self._endpoint, self._page, self._first_cursor, self._poll_interval, ctx.clock)

    def read(self, start: HttpSplit, stop: HttpSplit, /) -> Iterator[SplitBatch[T_co]]:
        numbers = range(start.count, stop.count)
        if numbers:
            values = [json.loads(record) for record in stop.records[-len(numbers) :]]
            yield SplitBatch(values, self._decode, offsets=lambda: numbers)

    def has_read(self, split: HttpSplit, offset: Offset, /) -> bool:
        return isinstance(offset, int) and offset < split.count
