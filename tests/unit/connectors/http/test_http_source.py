"""The source of HTTP endpoints: cursors, pages, restarts, and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dsv2.connectors.http import HttpSource, HttpSplit
from dsv2.errors import ConfigurationError, JobError
from dsv2.sinks import CollectSink
from dsv2.sources import JsonValue
from dsv2.testing import ManualClock
from dsv2.testing.connectors import SourceTestSuite
from dsv2.testing.connectors.source_run import SourceRun
from tests.support import local_environment

PASSWORD = "s3cret/pass"
SECOND = timedelta(seconds=1)


class Pages(ThreadingHTTPServer):
    """An endpoint with items, which returns at most three after a number."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://user:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{self.server_port}/items?after={{cursor}}"
        self.items: list[JsonValue] = []
        self.requests: list[str] = []
        self.statuses: list[int] = []
        """The statuses of the next responses. Then all are 200."""
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, path: str) -> bytes:
        after = int(parse_qs(urlsplit(path).query, keep_blank_values=True)["after"][0] or "0")
        some = self.items[after : after + 3]
        return json.dumps({"items": some, "next": after + len(some)}).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Pages
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        body = self.server.answer(self.path) if status == 200 else b"the answer"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def pages() -> Iterator[Pages]:
    with Pages() as server:
        yield server
        server.shutdown()


def items_and_next(body: Any) -> tuple[Sequence[JsonValue], str | None]:
    return body["items"], str(body["next"])


def text_of(item: Any) -> str:
    text = item["text"]
    if not isinstance(text, str):
        raise TypeError(f"{text} is not a text")
    return text


class TestHttp(SourceTestSuite[str]):
    splits = 1
    new_splits = False
    secrets = (PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, pages: Pages) -> None:
        self.pages = pages

    def create_source(self) -> HttpSource[str]:
        headers = {"X-Key": PASSWORD}
        return HttpSource(self.pages.url, page=items_and_next, decode=text_of, poll_interval=SECOND, headers=headers)

    def create_unreachable_source(self) -> HttpSource[str]:
        url = "http://127.0.0.1:1/{cursor}"
        return HttpSource(url, page=items_and_next, decode=text_of, headers={"X-Key": PASSWORD}, retries=0)

    def add(self, split: int, texts: Sequence[str]) -> None:
        self.pages.items += [{"text": text} for text in texts]

    def add_undecodable(self, split: int) -> None:
        self.pages.items.append({"text": None})


class TestBoundedHttp(TestHttp):
    def create_source(self) -> HttpSource[str]:
        headers = {"X-Key": PASSWORD}
        return HttpSource(self.pages.url, page=items_and_next, decode=text_of, headers=headers)


def number_of(item: Any) -> int:
    return int(item)


def source_of(pages: Pages, **arguments: Any) -> HttpSource[int]:
    return HttpSource(pages.url, **{"page": items_and_next, "decode": number_of, "retries": 2, **arguments})


def test_repeated_micro_batch_needs_no_endpoint(pages: Pages) -> None:
    pages.items = [*range(4)]
    with closing(SourceRun(source_of(pages), clock=ManualClock())) as run:
        assert run.batch(2) == [0, 1]
        count = len(pages.requests)
        pages.items.clear()  # the endpoint has forgotten them
        assert run.repeated() == [0, 1]
        restarted = SourceRun(source_of(pages), run.offset, clock=ManualClock())
        assert restarted.repeated() == [0, 1]
        assert restarted.batch(1) == [2]  # the rest of the page
        assert len(pages.requests) == count
        restarted.close()


def test_checkpoint_has_the_records_of_one_micro_batch(pages: Pages) -> None:
    pages.items = [*range(9)]
    with closing(SourceRun(source_of(pages))) as run:
        for batch in ([0, 1, 2, 3], [4, 5, 6, 7]):
            assert run.batch(4) == batch
            (split,) = run.driver.positions
            assert [*map(json.loads, split.records)] == batch
        assert [*map(json.loads, split.rest)] == [8]


def test_source_asks_again_after_the_interval(pages: Pages) -> None:
    clock = ManualClock()
    with closing(SourceRun(source_of(pages, poll_interval=SECOND), clock=clock)) as run:
        assert run.batch() == []
        pages.items = [1, 2, 3, 4]
        clock.wait(SECOND / 2)
        assert run.batch() == []
        assert len(pages.requests) == 1
        clock.wait(SECOND / 2)
        assert run.batch() == [1, 2, 3, 4]  # without a pause between pages
        assert run.batch() == []
        assert pages.requests == [f"/items?after={cursor}" for cursor in ("", "0", "3", "4")]


def test_bounded_source_ends_with_the_last_page(pages: Pages) -> None:
    def page(body: Any) -> tuple[Sequence[JsonValue], str | None]:
        return body["items"], None if body["next"] == 5 else str(body["next"])

    pages.items = [*range(5)]
    env, sink = local_environment(1), CollectSink[int]()
    env.from_source(source_of(pages, page=page, first_cursor="1")).to_sink(sink)
    env.execute()
    assert sink.results == [1, 2, 3, 4]
    assert len(pages.requests) == 2


def test_cursor_is_encoded(pages: Pages) -> None:
    seen = []

    def page(body: Any) -> tuple[Sequence[JsonValue], str | None]:
        seen.append(body)
        return [1], "a b/&c=\u00e9" if len(seen) == 1 else None

    pages.answer = lambda path: b"[]"  # type: ignore[method-assign]
    with closing(SourceRun(source_of(pages, page=page))) as run:
        assert run.batch() + run.batch() == [1, 1]
    assert pages.requests[1] == "/items?after=a%20b%2F%26c%3D%C3%A9"


@pytest.mark.parametrize("cursor", [None, ""])
def test_records_without_a_next_cursor_are_refused(pages: Pages, cursor: str | None) -> None:
    pages.items = [1]
    source = source_of(pages, page=lambda body: (body["items"], cursor), poll_interval=SECOND)
    with (
        closing(SourceRun(source)) as run,
        pytest.raises(JobError, match=r"1 records follow the cursor ''.* read again"),
    ):
        run.batch()


def test_responses_that_are_not_valid(pages: Pages) -> None:
    pages.answer = lambda path: b"<html>"  # type: ignore[method-assign]
    with closing(SourceRun(source_of(pages))) as run, pytest.raises(JobError, match="for the cursor '' is not valid"):
        run.batch()


@pytest.mark.parametrize(("status", "requests"), [(503, 3), (401, 1)])
def test_errors_of_the_endpoint(pages: Pages, status: int, requests: int) -> None:
    pages.items, pages.statuses = [1], [status] * 3
    with closing(SourceRun(source_of(pages))) as run:
        with pytest.raises(JobError, match=rf"the endpoint answered with {status} .*: the answer") as failed:
            run.batch()
        assert PASSWORD not in str(failed.value)
        assert len(pages.requests) == requests
    pages.statuses = [503, 503]
    with closing(SourceRun(source_of(pages))) as run:
        assert run.batch() == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "ftp://host/{cursor}"}, "HttpSource requires a URL with http:// or https://"),
        ({"url": "http://host/items"}, r"HttpSource requires a URL with \{cursor\}"),
        ({"poll_interval": timedelta(0)}, "poll_interval must be at least 1 ms"),
        ({"records_per_batch": 0}, "records_per_batch must be a whole number of at least 1"),
        ({"retries": -1}, "retries must be"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        HttpSource(**{"url": "http://host/{cursor}", "page": items_and_next, "decode": number_of, **arguments})


def test_position_of_a_record() -> None:
    source: HttpSource[int] = HttpSource("http://host/{cursor}", page=items_and_next, decode=number_of)
    assert source.has_read(HttpSplit("", count=3), 2)
    assert not source.has_read(HttpSplit("", count=3), 3)
    assert list(source.decode_again("5", "pages").records) == [5]
