"""The source of Server-Sent Events: the format, positions, connections that end, and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any

import pytest

from dsv2.connectors.http import ServerSentEvent, SseSource
from dsv2.connectors.http.events import EventParser
from dsv2.connectors.received import ReceivedDiscovery, ReceivedSplit
from dsv2.errors import ConfigurationError, JobError
from dsv2.sources import AssignmentState, SplitEnumeratorContext
from dsv2.testing import ManualClock
from dsv2.testing.connectors import SourceTestSuite
from dsv2.testing.connectors.source_run import SourceRun
from tests.patience import SECONDS, PatientDiscovery, received, receiver_of

PASSWORD = "s3cret/pass"


class Events(ThreadingHTTPServer):
    """A server of events, whose ids are their numbers. It repeats those after ``Last-Event-ID``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://user:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{self.server_port}/events"
        self.changed = Condition()
        self.chunks: list[bytes] = []
        """The events."""
        self.endings: dict[int, bytes] = {}
        """What is sent before the end of a connection, by the number of events before it. Each is sent once."""
        self.statuses: list[int] = []
        """The statuses of the next responses. Then all are 200."""
        self.type = "text/event-stream; charset=utf-8"
        self.is_chunked = False
        self.last_ids: list[str | None] = []
        self.sent = 0
        self.ends = False
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def add(self, *texts: Any) -> None:
        with self.changed:
            for text in texts:
                self.chunks.append(f"id: {len(self.chunks) + 1}\ndata: {json.dumps(text)}\n\n".encode())
            self.changed.notify_all()

    def chunk(self, number: int) -> bytes | None:
        """Wait for an event. Returns None if the server stops."""
        with self.changed:
            self.changed.wait_for(lambda: self.ends or len(self.chunks) > number)
            return None if self.ends else self.chunks[number]

    def stop(self) -> None:
        with self.changed:
            self.ends = True
            self.changed.notify_all()
        self.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: Events
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        server.last_ids.append(self.headers["Last-Event-ID"])
        self.send_response(server.statuses.pop(0) if server.statuses else 200)
        self.send_header("Content-Type", server.type)
        self.send_header(
            "Transfer-Encoding" if server.is_chunked else "Connection", "chunked" * server.is_chunked or "close"
        )
        self.end_headers()
        at = int(self.headers["Last-Event-ID"] or 0)
        with suppress(OSError):
            while at not in server.endings:
                if (chunk := server.chunk(at)) is None:
                    return
                self.send(chunk)
                at += 1
            self.send(server.endings.pop(at))
        self.close_connection = True

    def send(self, chunk: bytes) -> None:
        if self.server.is_chunked and chunk:
            chunk = f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n"
        self.wfile.write(chunk)
        self.server.sent += 1

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def events() -> Iterator[Events]:
    with Events() as server:
        yield server
        server.stop()


class PatientSource(SseSource[str]):
    def create_discovery(
        self, ctx: SplitEnumeratorContext[ReceivedSplit], restored: AssignmentState[ReceivedSplit] | None, /
    ) -> ReceivedDiscovery:
        return PatientDiscovery(self.create_receiver(), lambda: len(_SERVERS[0].chunks))


_SERVERS: list[Events] = []


def text_of(event: ServerSentEvent) -> str:
    text = json.loads(event.data)
    if not isinstance(text, str):
        raise TypeError(f"{text} is not a text")
    return text


class TestSse(SourceTestSuite[str]):
    splits = 1
    new_splits = False
    secrets = (PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, events: Events) -> None:
        self.events = events
        _SERVERS[:] = [events]

    def create_source(self) -> SseSource[str]:
        return PatientSource(self.events.url, decode=text_of, headers={"X-Key": PASSWORD})

    def create_unreachable_source(self) -> SseSource[str]:
        return SseSource("http://127.0.0.1:1", decode=text_of, headers={"X-Key": PASSWORD}, retries=0)

    def add(self, split: int, texts: Sequence[str]) -> None:
        self.events.add(*texts)

    def add_undecodable(self, split: int) -> None:
        self.events.add(None)


def run_of(events: Events, offset: Any = None, **arguments: Any) -> Any:
    source: SseSource[str] = SseSource(events.url, **{"decode": text_of, "retries": 2, **arguments})
    options = {} if offset is None else {"offset": offset}
    return closing(SourceRun(source, clock=ManualClock(), **options))


def await_end(thread: Thread) -> None:
    thread.join(SECONDS.total_seconds())
    assert not thread.is_alive()


def parsed(*chunks: bytes) -> list[tuple[str, str, str]]:
    parser = EventParser()
    return [tuple(event) for chunk in chunks for event in parser.feed(chunk)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b": comment\n\ndata: a\n\n", [("message", "a", "")]),
        (b"data:a\ndata\ndata:  b\n\n", [("message", "a\n\n b", "")]),
        (b"data\n\ndata\ndata\n\ndata:", [("message", "", ""), ("message", "\n", "")]),
        (b"event: add\ndata: 1\n\ndata: 2\n\n", [("add", "1", ""), ("message", "2", "")]),
        (
            b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
            [("message", "a", "1"), ("message", "b", "1"), ("message", "c", "")],
        ),
        (b"id: 1\n\nid: 2\0\ndata: a\n\n", [("message", "a", "1")]),
        (b"event: empty\n\ndata: a\n\n", [("message", "a", "")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("message", "a", "")]),
        (b"data: a\r\rdata: b\r\n\r\ndata: c\n\r", [("message", "a", ""), ("message", "b", ""), ("message", "c", "")]),
        (b"data: a\r\ndata: b\r\n\r\n", [("message", "a\nb", "")]),
        (b"other: x\n data: y\ndata: \xc3\xa9\xff\n\n", [("message", "\u00e9\ufffd", "")]),
        (b"data: a\n\ndata: incomplete\n", [("message", "a", "")]),
    ],
)
def test_streams_are_parsed_by_the_rules(stream: bytes, expected: list[tuple[str, str, str]]) -> None:
    assert parsed(stream) == expected
    assert parsed(*(stream[n : n + 1] for n in range(len(stream)))) == expected


def test_id_counts_when_its_event_is_complete() -> None:
    parser = EventParser("0")
    assert [*parser.feed(b"id: 1\ndata: a\n")] == []
    assert parser.last_id == "0"
    assert len([*parser.feed(b"\n")]) == 1
    assert parser.last_id == "1"
    assert [*parser.feed(b"id: 2\n\n")] == []
    assert parser.last_id == "2"


@pytest.mark.parametrize(("field", "ms"), [(b"retry: 25", 25), (b"retry: 2s", None), (b"retry: -1", None)])
def test_time_until_the_next_connection(field: bytes, ms: int | None) -> None:
    parser = EventParser()
    assert [*parser.feed(field + b"\n")] == []
    assert parser.retry_ms == ms


@pytest.mark.parametrize("is_chunked", [False, True])
def test_connection_that_ends_within_an_event(events: Events, is_chunked: bool) -> None:
    events.is_chunked = is_chunked
    events.endings = {2: b"retry: 1\nid: 3\ndata: incompl"}
    events.add(*"abcd")
    with run_of(events) as run:
        assert received(run, 4) == [*"abcd"]
    assert events.last_ids == [None, "2"]


def test_event_arrives_before_the_next_one(events: Events) -> None:
    with run_of(events) as run:
        assert run.batch() == []
        for text in "abc":
            events.add(text)
            assert received(run, 1) == [text]
        assert len(events.last_ids) == 1


def test_restarted_job_continues_after_the_last_id(events: Events) -> None:
    with run_of(events) as run:
        assert run.batch() == []
        events.add(*"abcd")
        assert received(run, 2) == ["a", "b"]
        offset = run.offset
    with run_of(events, offset) as run:
        assert run.repeated() == ["a", "b"]
        assert events.last_ids == [None]  # the checkpoint has them
        assert received(run, 2) == ["c", "d"]
    assert events.last_ids == [None, "2"]


def test_plan_that_was_lost_is_received_again(events: Events) -> None:
    with run_of(events) as run:
        assert run.batch() == []
        events.add(*"abcd")
        assert received(run, 2) == ["a", "b"]
        before = run.offset
        assert received(run, 2) == ["c", "d"]
        run.offset = before  # the driver died before it was stored
        assert received(run, 2) == ["c", "d"]


def test_server_waits_while_the_inbox_is_full(events: Events) -> None:
    events.add(*["x" * 100_000] * 300)
    with run_of(events, records_per_batch=1) as run:
        assert received(run, 1) == ["x" * 100_000]
        assert events.sent < 300
        (split,) = run.driver.positions
        assert len(split.messages) == 1


def test_204_ends_the_events(events: Events) -> None:
    events.add("a")
    events.endings = {1: b"retry: 1\n\n"}
    events.statuses = [200, 204]
    with run_of(events) as run:
        assert received(run, 1) == ["a"]
        await_end(receiver_of(run)._thread)
        assert run.batch() == []
    assert len(events.last_ids) == 2


def test_silent_connection_is_opened_again(events: Events) -> None:
    """A server that is busy for longer is asked again, too."""
    events.add("a")
    with run_of(events, idle_timeout=timedelta(milliseconds=200), retries=100) as run:
        assert received(run, 1) == ["a"]
        while len(events.last_ids) < 2:
            run.driver.wait(timedelta(milliseconds=10))
        events.add("b")
        assert received(run, 1) == ["b"]


@pytest.mark.parametrize("status", [503, 401])
def test_errors_of_the_endpoint(events: Events, status: int) -> None:
    events.statuses = [status] * 3
    with run_of(events) as run:
        with pytest.raises(JobError, match=f"the endpoint answered with {status}") as failed:
            run.batch()
        assert PASSWORD not in str(failed.value)
        assert len(events.last_ids) == (3 if status == 503 else 1)


def test_other_content_is_refused(events: Events) -> None:
    events.type = "text/html"
    with run_of(events) as run, pytest.raises(JobError, match="with the type 'text/html' and not text/event-stream"):
        run.batch()


def test_later_error_fails_the_next_micro_batch(events: Events) -> None:
    events.add("a")
    events.endings = {1: b""}
    events.statuses = [200, 401]
    with run_of(events) as run:
        assert received(run, 1) == ["a"]
        with pytest.raises(JobError, match="the endpoint answered with 401"):
            received(run, 1)


@pytest.mark.parametrize("state", ["silent", "full", "pausing"])
def test_close_ends_the_thread(events: Events, state: str) -> None:
    events.add(*"abcdef")
    if state == "pausing":
        events.endings = {1: b"retry: 60000\n\n"}
    with run_of(events, records_per_batch=1 if state == "full" else 100) as run:
        assert received(run, 1) == ["a"]
        thread = receiver_of(run)._thread
        assert thread.is_alive()
    await_end(thread)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"url": "ftp://host"}, "SseSource requires a URL with http:// or https://"),
        ({"idle_timeout": timedelta(0)}, "idle_timeout must be at least 1 ms"),
        ({"records_per_batch": 0}, "records_per_batch must be a whole number of at least 1"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        SseSource(**{"url": "http://host", "decode": text_of, **arguments})


def test_position_of_a_record() -> None:
    source = SseSource("http://host", decode=text_of)
    assert source.has_read(ReceivedSplit(count=3), 2)
    assert not source.has_read(ReceivedSplit(count=3), 3)
    assert source.describe_position(ReceivedSplit(count=3)) == "3 messages"
    assert list(source.decode_again(ServerSentEvent("message", '"a"', ""), "messages").records) == ["a"]
