"""The sink of OpenSearch passes the suite for sinks, and other cases, with a fake of the bulk API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from dsv2.connectors.opensearch import OpenSearchSink
from dsv2.errors import ConfigurationError, JobError, SchemaError
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import Sink, SinkBatch, SinkInfo
from dsv2.testing.connectors import SinkTestSuite

PASSWORD = "s3cret/pass"
ANSWER_IS_LOST, ANSWER_IS_CUT = -1, -2


@dataclass
class Index:
    """An index: the documents and their versions, by id. Deleted ones are None."""

    documents: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)

    def change(self, kind: str, about: dict[str, Any], document: Any) -> dict[str, Any]:
        """Make a change of the bulk API, and return its result."""
        name, version = about.get("_id"), about.get("version", 0)
        if name is None:
            if kind != "create":
                return failed(400, "action_request_validation_exception", "an id is missing")
            name = f"chosen {len(self.documents)}"
        if about.get("version_type") == "external_gte" and version < self.versions.get(name, 0):
            return failed(409, "version_conflict_engine_exception", f"[{name}]: version conflict")
        if document is not None and not isinstance(document.get("amount", 0), int):
            return failed(400, "mapper_parsing_exception", f"failed to parse field [amount] of '{name}'" + "!" * 1000)
        existed = self.documents.get(name) is not None
        self.documents[name], self.versions[name] = document, version
        return {"status": (200 if existed else 404) if kind == "delete" else 201}


def failed(status: int, kind: str, reason: str) -> dict[str, Any]:
    return {"status": status, "error": {"type": kind, "reason": reason}}


class Cluster(ThreadingHTTPServer):
    """A fake of the bulk API, which knows the password of one user."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://me:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{self.server_port}"
        self.indexes: dict[str, Index] = {}
        self.requests: list[list[str]] = []
        """The ids of the documents in each request."""
        self.statuses: list[int] = []
        """The statuses of the next answers. Then all are 200."""
        self.refused: list[str] = []
        """The ids of documents that are refused once, with the status 429, in any request."""
        self.changing = Lock()
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def bulk(self, index: str, body: str) -> list[dict[str, Any]]:
        """Return the results of a request."""
        assert body.endswith("\n")
        lines, items = iter(map(json.loads, body.removesuffix("\n").split("\n"))), list[dict[str, Any]]()
        self.requests.append([])
        for action in lines:
            ((kind, about),) = action.items()
            document = None if kind == "delete" else next(lines)
            self.requests[-1].append(about.get("_id", ""))
            if about.get("_id") in self.refused:
                self.refused.remove(about["_id"])
                result = failed(429, "es_rejected_execution_exception", "the queue is full")
            else:
                result = self.indexes.setdefault(index, Index()).change(kind, about, document)
            items.append({kind: result})
        return items

    def documents(self, index: str = "sales") -> dict[str, Any]:
        """The documents that exist."""
        found = self.indexes.get(index, Index()).documents
        return {name: document for name, document in found.items() if document is not None}


class _Handler(BaseHTTPRequestHandler):
    server: Cluster
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        path, body = urlsplit(self.path), self.rfile.read(int(self.headers["Content-Length"])).decode()
        _, index, api = path.path.split("/")
        assert (api, self.headers["Content-Type"]) == ("_bulk", "application/x-ndjson")
        assert parse_qs(path.query) == {"filter_path": ["items.*.status,items.*.error"]}
        with self.server.changing:
            status = self.server.statuses.pop(0) if self.server.statuses else 200
            if self.headers["Authorization"] != "Basic bWU6czNjcmV0L3Bhc3M=":
                status = 401
            items = self.server.bulk(unquote(index), body) if status in (200, ANSWER_IS_LOST, ANSWER_IS_CUT) else []
        answer = (
            json.dumps({"items": items}).encode()
            if status in (200, ANSWER_IS_CUT)
            else self.headers["Authorization"].encode()
        )
        if status == ANSWER_IS_LOST:
            self.close_connection = True
            return
        self.send_response(200 if status == ANSWER_IS_CUT else status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer[:10] if status == ANSWER_IS_CUT else answer)
        self.close_connection = status == ANSWER_IS_CUT

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as server:
        yield server
        server.shutdown()


class SuiteOfTexts(SinkTestSuite[str]):
    secrets = (PASSWORD,)
    with_ids = True

    @pytest.fixture(autouse=True)
    def prepare(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def sink(self, url: str, **options: Any) -> Sink[str]:
        document_id = (lambda text: f"id of {text[:50]}") if self.with_ids else None
        return OpenSearchSink(
            url,
            "texts",
            document=lambda text: {"text": text},
            document_id=document_id,
            records_per_request=2,
            **options,
        )

    def create_sink(self) -> Sink[str]:
        return self.sink(self.cluster.url)

    def read(self) -> Iterable[str]:
        return [document["text"] for document in self.cluster.documents("texts").values()]

    def create_unwritable_record(self) -> str:
        return "\udcff"

    def create_unreachable_sink(self) -> Sink[str]:
        return self.sink(f"http://me:{PASSWORD.replace('/', '%2F')}@127.0.0.1:1", retries=0)


class TestWithIds(SuiteOfTexts): ...


class TestWithoutIds(SuiteOfTexts):
    with_ids = False


class Sale(NamedTuple):
    item: str
    amount: Any
    version: int = 0


def item_of(sale: Sale) -> str:
    return sale.item


def sales(cluster: Cluster, **options: Any) -> OpenSearchSink[Sale]:
    return OpenSearchSink(cluster.url, "sales", **{"document_id": item_of, **options})


def write(sink: OpenSearchSink[Any], records: Sequence[Any], batch_id: int = 0) -> None:
    sink.write(SinkBatch(SinkInfo("job", "sink", 2), 1, batch_id, iter([RecordBatch(list(records))])))


def test_last_record_of_an_id_counts_and_may_delete(cluster: Cluster) -> None:
    sink = sales(cluster, deletes=lambda sale: sale.amount == 0)
    for _ in range(2):
        write(sink, [Sale("a", 1), Sale("b", 2), Sale("c", 0), Sale("a", 3), Sale("b", 0)])
    assert cluster.documents() == {"a": {"item": "a", "amount": 3, "version": 0}}
    assert cluster.requests == [["a", "b", "c"]] * 2


def test_documents_without_ids_are_created(cluster: Cluster) -> None:
    write(sales(cluster, document_id=None), [Sale("a", 1), Sale("a", 1)])
    assert [document["item"] for document in cluster.documents().values()] == ["a", "a"]
    assert not sales(cluster, document_id=None).exactly_once
    assert sales(cluster).exactly_once


def test_only_refused_documents_are_repeated(cluster: Cluster) -> None:
    cluster.refused = ["b", "b", "d"]
    write(sales(cluster), [Sale(name, 1) for name in "abcd"])
    assert cluster.requests == [["a", "b", "c", "d"], ["b", "d"], ["b"]]
    assert cluster.documents().keys() == {*"abcd"}


def test_documents_that_stay_refused_fail_the_job(cluster: Cluster) -> None:
    cluster.refused = ["b"] * 3
    with pytest.raises(JobError, match="record 1 of subtask 1 in micro-batch 7, id 'b': 429 es_rejected"):
        write(sales(cluster, retries=2), [Sale("a", 1), Sale("b", 1)], 7)
    assert len(cluster.requests) == 3


def test_other_errors_fail_the_job_at_once(cluster: Cluster) -> None:
    with pytest.raises(JobError) as failure:
        write(sales(cluster, records_per_request=2), [Sale("a", 1), Sale("b", 1), Sale("c", 1), Sale("d", "x")])
    text = str(failure.value)
    assert text.startswith(
        f"OpenSearchSink(sales at http://***@127.0.0.1:{cluster.server_port}) cannot write record 3 of subtask 1 in "
        f"micro-batch 0, id 'd': 400 mapper_parsing_exception: failed to parse field [amount] of 'd'!!!"
    )
    assert len(text) < 500
    assert len(cluster.requests) == 2


@pytest.mark.parametrize("status", [429, 503, ANSWER_IS_LOST, ANSWER_IS_CUT])
def test_requests_without_an_answer_are_repeated(cluster: Cluster, status: int) -> None:
    cluster.statuses = [status, status]
    write(sales(cluster), [Sale("a", 1), Sale("b", 2)])
    assert {name: document["amount"] for name, document in cluster.documents().items()} == {"a": 1, "b": 2}
    assert len(cluster.requests) == (3 if status < 0 else 1)


def test_wrong_password_is_not_shown(cluster: Cluster) -> None:
    sink: OpenSearchSink[Sale] = OpenSearchSink(cluster.url.replace("s3cret", "wr-ng"), "sales", retries=0)
    with pytest.raises(JobError, match=r"the endpoint answered with 401 Unauthorized: \*\*\*") as failure:
        write(sink, [Sale("a", 1)])
    assert "wr-ng" not in str(failure.value)


def test_greater_versions_are_kept(cluster: Cluster) -> None:
    sink = sales(cluster, version=lambda sale: sale.version, records_per_request=3)
    write(sink, [Sale("a", 2, 2), Sale("a", 1, 1), Sale("b", 1, 1), Sale("b", 2, 2), Sale("a", 0, 0)])
    write(sink, [Sale("b", 3, 2), Sale("a", 1, 1)])  # the same version replaces
    assert {name: document["amount"] for name, document in cluster.documents().items()} == {"a": 2, "b": 3}


def test_other_answers_are_no_success(cluster: Cluster) -> None:
    cluster.bulk = lambda index, body: []  # type: ignore[method-assign]
    with pytest.raises(JobError, match=r'this is no answer of a bulk API: {"items": \[\]}'):
        write(sales(cluster), [Sale("a", 1)])


def test_mistakes_are_found_when_the_sink_is_created(cluster: Cluster) -> None:
    options: Any
    for options, message in (
        ({"url": "localhost:9200"}, "OpenSearchSink requires a URL with http:// or https://"),
        ({"index": ""}, "requires the name of an index"),
        ({"deletes": bool}, "deletes and compares documents by id. Pass document_id"),
        ({"version": len}, "deletes and compares documents by id. Pass document_id"),
        ({"records_per_request": 0}, "records_per_request must be a whole number of at least 1"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            OpenSearchSink(**{"url": "http://host", "index": "sales", **options})


@pytest.mark.parametrize(("name", "record"), [("", Sale("a", 1)), ("ä" * 257, Sale("a", 1)), ("a", [1]), ("a", "text")])
def test_invalid_documents_are_refused_before_they_are_written(cluster: Cluster, name: str, record: Any) -> None:
    sink: OpenSearchSink[Any] = OpenSearchSink(cluster.url, "sales", document_id=lambda _: name)
    with pytest.raises(SchemaError, match=r"An id for|must be an object in JSON"):
        sink.check_record(record)
