"""``HttpSink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from itertools import islice
from typing import Any, Generic, Literal

from dsv2.base.type_variables import T
from dsv2.checks.arguments import check_at_least_one
from dsv2.connectors.http.endpoint import Endpoint, to_json
from dsv2.sinks import ParallelSink, SinkBatch

_KEY = "Idempotency-Key"


def as_json(records: Sequence[Any]) -> bytes:
    """Encode records as an array of JSON: tuples with names and dataclasses as objects, other values as they are."""
    return b"[" + b",".join(map(to_json, records)) + b"]"


class HttpSink(ParallelSink[T], Generic[T]):
    """Sends records in requests to an HTTP endpoint, at least once.

    Each request has an ``Idempotency-Key``. A micro-batch that is repeated after a failure sends the same requests with
    the same keys, so an endpoint that ignores keys it knows receives each record once. Each subtask sends one request
    after the other. A response with a status of 300 or more fails the job, after retries if the status is transient.
    """

    def __init__(
        self,
        url: str,
        *,
        body: Callable[[Sequence[T]], bytes] = as_json,
        method: Literal["POST", "PUT", "PATCH"] = "POST",
        headers: Mapping[str, str] | None = None,
        records_per_request: int = 100,
        retries: int = 10,
        timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        """Create the sink.

        Args:
            url: The endpoint. A user and password in it are never shown.
            body: Returns the body of a request from its records. Default: an array of JSON.
            method: The method of the requests.
            headers: Headers of the requests. Default: ``Content-Type: application/json``. Values of headers such as
                ``Authorization`` are never shown.
            records_per_request: The most records of a request. Repeated requests have the same records only if this
                does not change within a micro-batch.
            retries: How often a request is repeated if there is no connection, or the status is 408, 425, 429, 500,
                502, 503 or 504. Pauses grow from 0.1 to 10 seconds, unless a response has ``Retry-After``.
            timeout: The time limit for a connection, and for a response.

        Raises:
            ConfigurationError: An argument is invalid, or urllib3 is not installed.
        """
        own = {"Content-Type": "application/json", **(headers or {})}
        self._endpoint = Endpoint("HttpSink", url, own, retries, timeout)
        check_at_least_one(records_per_request=records_per_request)
        self._body = body
        self._method = method
        self._records_per_request = records_per_request

    def __repr__(self) -> str:
        return f"HttpSink({self._method} {self._endpoint})"

    def describe_target(self) -> str:
        return repr(self._endpoint)

    def check_record(self, record: T) -> None:
        """Raise an error if a request with ``record`` has no body. What the endpoint refuses is not known."""
        self._body([record])

    def write(self, batch: SinkBatch[T]) -> None:
        records = (record for part in batch.batches for record in part.rows())
        info = batch.info
        name = f"{info.name}/{info.parallelism}/{batch.subtask}/{batch.batch_id}"
        requests = iter(lambda: list(islice(records, self._records_per_request)), [])
        with self._endpoint.pool() as pool:
            for number, some in enumerate(requests):
                body = self._body(some)
                key = sha256(f"{name}/{number}/".encode() + body).hexdigest()
                self._endpoint.send(pool, repr(self), self._method, self._endpoint.url, body, {_KEY: key})
