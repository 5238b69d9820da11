"""The sink of HTTP endpoints: requests, keys that show repetitions, retries and errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import pytest

from dsv2.connectors.http import HttpSink
from dsv2.errors import ConfigurationError, JobError
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import Sink, SinkBatch, SinkInfo
from dsv2.testing.connectors import SinkTestSuite

PASSWORD = "s3cret/pass"
INFO = SinkInfo("job", "sink", 2)


class Endpoint(ThreadingHTTPServer):
    """An endpoint that keeps the bodies of requests by their keys."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/hook"
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.received: dict[str, list[Any]] = {}
        self.statuses: list[int] = []
        """The statuses of the next responses. Then all are 200."""
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def records(self) -> list[Any]:
        """The records of different requests."""
        return [record for records in self.received.values() for record in records]


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.command, dict(self.headers)))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status < 300:
            self.server.received.setdefault(self.headers["Idempotency-Key"], json.loads(body))
        answer = f"the answer to {self.headers['Authorization']}".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        if status == 302:
            self.send_header("Location", "/other")
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_POST  # noqa: N815 - the name of the method

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        yield server
        server.shutdown()


class TestHttp(SinkTestSuite[str]):
    secrets = (PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def create_sink(self) -> Sink[str]:
        return HttpSink(self.endpoint.url, headers={"Authorization": f"Bearer {PASSWORD}"}, records_per_request=2)

    def read(self) -> Iterable[str]:
        found: list[str] = self.endpoint.records
        return found

    def create_unwritable_record(self) -> str:
        return object()  # type: ignore[return-value]

    def create_unreachable_sink(self) -> Sink[str]:
        return HttpSink("http://127.0.0.1:1/hook", headers={"X-Key": PASSWORD}, retries=0)


class Sale(NamedTuple):
    item: str
    amount: int


def write(sink: HttpSink[Any], records: Sequence[Any], batch_id: int = 0) -> None:
    sink.write(SinkBatch(INFO, 1, batch_id, iter([RecordBatch(list(records))])))


def test_records_are_sent_in_order_in_requests(endpoint: Endpoint) -> None:
    sink = HttpSink[Sale](endpoint.url, method="PUT", headers={"X-Own": "a"}, records_per_request=2)
    write(sink, [Sale("ä", number) for number in range(5)])
    assert [len(records) for records in endpoint.received.values()] == [2, 2, 1]
    assert endpoint.records == [{"item": "ä", "amount": number} for number in range(5)]
    for method, headers in endpoint.requests:
        assert (method, headers["X-Own"], headers["Content-Type"]) == ("PUT", "a", "application/json")


def test_body_of_the_program(endpoint: Endpoint) -> None:
    write(HttpSink[int](endpoint.url, body=lambda numbers: json.dumps([sum(numbers)]).encode()), range(10))
    assert endpoint.records == [45]


def test_repeated_requests_have_the_same_keys(endpoint: Endpoint) -> None:
    sink = HttpSink[int](endpoint.url, records_per_request=2)
    for batch_id, records in ((0, [1, 1, 1, 1]), (0, [1, 1, 1, 1]), (1, [1, 1]), (1, [1, 2])):
        write(sink, records, batch_id)
    assert len(endpoint.requests) == 6
    assert [*endpoint.received.values()] == [[1, 1], [1, 1], [1, 1], [1, 2]]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_transient_errors_are_retried(endpoint: Endpoint, status: int) -> None:
    endpoint.statuses = [status, status]
    write(HttpSink[int](endpoint.url), [1, 2])
    assert endpoint.records == [1, 2]
    keys = [headers["Idempotency-Key"] for _, headers in endpoint.requests]
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize(("status", "requests"), [(400, 1), (401, 1), (500, 3)])
def test_other_errors_fail_the_job(endpoint: Endpoint, status: int, requests: int) -> None:
    endpoint.statuses = [status] * 3
    sink = HttpSink[int](endpoint.url, headers={"Authorization": PASSWORD}, retries=2)
    with pytest.raises(JobError, match=rf"the endpoint answered with {status} .*: the answer to \*\*\*"):
        write(sink, [1])
    assert len(endpoint.requests) == requests


def test_redirection_is_not_followed(endpoint: Endpoint) -> None:
    endpoint.statuses = [302]
    with pytest.raises(JobError, match="the endpoint answered with 302"):
        write(HttpSink[int](endpoint.url), [1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://me:hush@host/"}, r"requires a URL with http:// or https://, not 'ftp://\*\*\*@host/'"),
        ({"records_per_request": 0}, "records_per_request must be a whole number of at least 1"),
        ({"retries": -1}, "retries must be a whole number of at least 0"),
    ],
)
def test_mistakes_are_found_when_the_sink_is_created(options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        HttpSink(**{"url": "http://host", **options})


def test_user_and_password_of_the_url_are_sent(endpoint: Endpoint) -> None:
    write(HttpSink[int](endpoint.url.replace("//", "//me:s3cret%2Fpass@")), [1])
    assert endpoint.requests[0][1]["Authorization"] == "Basic bWU6czNjcmV0L3Bhc3M="
