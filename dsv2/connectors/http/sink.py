"""``HttpSink``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Literal

from msgspec.json import Encoder

from dsv2.base.secrets import ClientOptions, hide
from dsv2.base.type_variables import T
from dsv2.checks.arguments import as_milliseconds, check_at_least_one, check_whole_number
from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError, JobError
from dsv2.sinks import ParallelSink, SinkBatch
from dsv2.sinks.paths import without_password

if TYPE_CHECKING:
    import urllib3

_KEY = "Idempotency-Key"
_RETRIED = (408, 425, 429, 500, 502, 503, 504)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 10
_ENCODER = Encoder(decimal_format="string", uuid_format="canonical", order=None)
_SHOWN = 300  # characters of a response


def as_json(records: Sequence[Any]) -> bytes:
    """Encode records as an array of JSON: tuples with names and dataclasses as objects, other values as they are."""
    return _ENCODER.encode([record._asdict() if hasattr(record, "_asdict") else record for record in records])


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
        require_client_library("urllib3", "http", "HttpSink")
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"HttpSink requires a URL with http:// or https://, not {without_password(url)!r}."
            )
        check_at_least_one(records_per_request=records_per_request)
        check_whole_number(retries, "retries", at_least=0)
        self._url = url
        self._body = body
        self._method = method
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._records_per_request = records_per_request
        self._retries = retries
        self._timeout_seconds = as_milliseconds(timeout, "timeout", at_least=1) / 1000

    def __repr__(self) -> str:
        return f"HttpSink({self._method} {without_password(self._url)})"

    def describe_target(self) -> str:
        return without_password(self._url)

    def check_record(self, record: T) -> None:
        """Raise an error if a request with ``record`` has no body. What the endpoint refuses is not known."""
        self._body([record])

    def write(self, batch: SinkBatch[T]) -> None:
        import urllib3

        records = (record for part in batch.batches for record in part.rows())
        info = batch.info
        name = f"{info.name}/{info.parallelism}/{batch.subtask}/{batch.batch_id}"
        with urllib3.PoolManager(retries=self._retry(), timeout=self._timeout_seconds) as pool:
            for number, some in enumerate(self._requests(records)):
                body = self._body(some)
                key = sha256(f"{name}/{number}/".encode() + body).hexdigest()
                self._send(pool, body, key)

    def _requests(self, records: Iterator[T]) -> Iterator[Sequence[T]]:
        while some := list(islice(records, self._records_per_request)):
            yield some

    def _send(self, pool: urllib3.PoolManager, body: bytes, key: str) -> None:
        import urllib3

        try:
            response = pool.request(self._method, self._url, body=body, headers={**self._headers, _KEY: key})
        except urllib3.exceptions.HTTPError as error:
            raise JobError(self._shown(f"{self} cannot send a request: {error}")) from None
        if response.status >= 300:
            text = response.data.decode("utf-8", "replace")[:_SHOWN]
            raise JobError(
                self._shown(f"{self}: the endpoint answered with {response.status} {response.reason}: {text}")
            )

    def _retry(self) -> urllib3.Retry:
        import urllib3

        return urllib3.Retry(
            total=self._retries,
            redirect=0,
            raise_on_redirect=False,
            status_forcelist=_RETRIED,
            allowed_methods=None,
            backoff_factor=_FIRST_PAUSE_SECONDS,
            backoff_max=_LONGEST_PAUSE_SECONDS,
            respect_retry_after_header=True,
            raise_on_status=False,
        )

    def _shown(self, text: str) -> str:
        """Return ``text`` without secrets."""
        secrets = [value for name, value in self._headers.items() if name.lower() not in ("content-type", "accept")]
        return hide(ClientOptions({"url": self._url}).redacted(text), secrets)
