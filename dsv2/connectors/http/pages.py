"""The pages of an HTTP endpoint: each response has records, and the cursor of the next request."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import quote

from dsv2.base.clock import Clock
from dsv2.connectors.http.endpoint import Endpoint
from dsv2.errors import JobError
from dsv2.sources import JsonValue, Portion, SplitDiscovery

PageFunction: TypeAlias = Callable[[Any], tuple[Sequence[JsonValue], str | None]]
"""Returns the records of a response, which is decoded JSON, and the cursor after them; None: there is none."""

CURSOR = "{cursor}"


@dataclass(frozen=True)
class HttpSplit:
    """The position in the pages of an endpoint, with the records of the last micro-batch.

    Attributes:
        cursor: The cursor of the next request.
        count: How many records have been read.
        records: The records of the last micro-batch, as JSON. It is repeated from them, without a request.
        rest: The records of the last page that have not been read, as JSON.
        has_next: Whether there is a next request.
    """

    cursor: str
    count: int = 0
    records: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    has_next: bool = True

    @property
    def split_id(self) -> str:
        """The same for all, because the pages of an endpoint have one order."""
        return "pages"


class PageDiscovery(SplitDiscovery[HttpSplit]):
    """Requests pages on the driver, when a micro-batch is planned."""

    def __init__(
        self, who: str, endpoint: Endpoint, page: PageFunction, first: str, interval: timedelta | None, clock: Clock
    ) -> None:
        """Open connections.

        Args:
            who: The source, for errors.
            endpoint: The endpoint, whose URL has a place for the cursor.
            page: Returns the records and the next cursor of a response.
            first: The first cursor.
            interval: The pause between requests after one without records. None: the source ends there.
            clock: The clock of the job.
        """
        self._who = who
        self._endpoint = endpoint
        self._page = page
        self._first = first
        self._interval = interval
        self._clock = clock
        self._pool = endpoint.pool()
        self._next_request_ms = 0
        self._begins = True  # a micro-batch, which may advance several times

    def discover(self) -> list[HttpSplit]:
        return [HttpSplit(self._first)]

    def ready(self, waiting: Sequence[HttpSplit], limit: int | None, /) -> Sequence[HttpSplit]:
        self._begins = True
        return waiting

    def advance(self, split: HttpSplit, limit: int | None, /) -> Portion[HttpSplit] | None:
        if not split.rest:
            if self._clock.now_ms() < self._next_request_ms:
                return None
            split = self._requested(split)
            if self._interval is not None and not split.rest:
                self._next_request_ms = self._clock.now_ms() + int(self._interval.total_seconds() * 1000)
                if not split.has_next:
                    return None
        taken, rest = split.rest[:limit], split.rest[limit:] if limit is not None else ()
        records = taken if self._begins else split.records + taken
        self._begins = False
        last = self._interval is None and not split.has_next and not rest
        return Portion(replace(split, count=split.count + len(taken), records=records, rest=rest), len(taken), last)

    def _requested(self, split: HttpSplit) -> HttpSplit:
        """Return ``split`` with the next page as its rest. An unbounded source repeats a request without a result."""
        url = self._endpoint.url.replace(CURSOR, quote(split.cursor, safe=""))
        body = self._endpoint.send(self._pool, self._who, "GET", url, b"", {})
        try:
            records, cursor = self._page(json.loads(body))
        except ValueError as error:
            raise JobError(
                f"{self._who}: the response for the cursor {split.cursor!r} is not valid: {error}."
            ) from error
        rest = tuple(json.dumps(record) for record in records)
        has_next = cursor is not None and (bool(rest) or cursor != split.cursor)
        if rest and (cursor == split.cursor or (cursor is None and self._interval is not None)):
            raise JobError(
                f"{self._who}: {len(rest)} records follow the cursor {split.cursor!r}, and page returned no other "
                f"cursor for what follows them. They would be read again."
            )
        return replace(split, cursor=split.cursor if cursor is None else cursor, rest=rest, has_next=has_next)

    def close(self) -> None:
        self._pool.clear()
