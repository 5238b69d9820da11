"""``OpenSearchSink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple
from urllib.parse import quote

import msgspec

from dsv2.base.type_variables import T
from dsv2.checks.arguments import check_at_least_one
from dsv2.connectors.attempts import attempts
from dsv2.connectors.http.endpoint import Endpoint, to_json
from dsv2.errors import ConfigurationError, JobError, SchemaError
from dsv2.sinks import ParallelSink, SinkBatch
from dsv2.sinks.paths import without_password

if TYPE_CHECKING:
    import urllib3

_RETRIED = (429, 502, 503, 504)
_CONFLICT = 409
_SHOWN = 300  # characters of an error
_LONGEST_ID = 512  # bytes


class _Action(NamedTuple):
    """A change of a document.

    Attributes:
        number: The number of the record in the micro-batch of its subtask.
        document_id: The id. Empty: the server chooses one.
        version: The external version.
        lines: The change as lines of a request.
    """

    number: int
    document_id: str
    version: int
    lines: bytes


class _Result(msgspec.Struct):
    """The result of a change."""

    status: int
    error: Any = None


class _Answer(msgspec.Struct):
    """The answer to a request: the result of each change, by its kind."""

    items: list[dict[str, _Result]]


class OpenSearchSink(ParallelSink[T], Generic[T]):
    """Writes records as documents of an index, with the bulk API of OpenSearch and Elasticsearch.

    With ``document_id``, a record replaces the document with its id, so a micro-batch that is repeated after a failure
    leaves the same documents: effectively exactly once. All records of an id must come from one subtask (``key_by``),
    and the last one counts. Without it, each record creates a document, at least once.
    """

    accepts_other_records = True

    def __init__(
        self,
        url: str,
        index: str,
        *,
        document: Callable[[T], object] | None = None,
        document_id: Callable[[T], str] | None = None,
        deletes: Callable[[T], bool] | None = None,
        version: Callable[[T], int] | None = None,
        headers: Mapping[str, str] | None = None,
        records_per_request: int = 1000,
        retries: int = 10,
        timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        """Create the sink.

        Args:
            url: The cluster, such as ``https://user:password@host:9200``. Its password is never shown.
            index: The name of an index or an alias; without ``document_id`` also of a data stream.
            document: Returns the document: a dict, or another value that is an object in JSON. Default: the record.
            document_id: Returns the id of the document, up to 512 bytes. Default: the server chooses one.
            deletes: Returns whether a record deletes the document with its id.
            version: Returns the version of a document, a whole number of at least 0. A record does not replace a
                document with a greater version, which also holds for a task that the cluster has given up.
            headers: Further headers, such as ``Authorization``. Their values are never shown.
            records_per_request: The most records of a request.
            retries: How often a request is repeated if there is no answer or the status is transient, and documents are
                repeated that are refused with the status 429, 502, 503 or 504. Pauses grow from 0.1 to 10 seconds.
            timeout: The time limit for a connection, and for a response.

        Raises:
            ConfigurationError: An argument is invalid, or urllib3 is not installed.
        """
        own = {"Content-Type": "application/x-ndjson", **(headers or {})}
        bulk = f"{url.rstrip('/')}/{quote(index, safe='')}/_bulk?filter_path=items.*.status,items.*.error"
        self._endpoint = Endpoint("OpenSearchSink", bulk, own, retries, timeout)
        check_at_least_one(records_per_request=records_per_request)
        if not index:
            raise ConfigurationError("OpenSearchSink requires the name of an index.")
        if document_id is None and (deletes or version):
            raise ConfigurationError("OpenSearchSink deletes and compares documents by id. Pass document_id.")
        self._target = f"{index} at {without_password(url)}"
        self._document = document
        self._document_id = document_id
        self._deletes = deletes
        self._version = version
        self._records_per_request = records_per_request
        self.exactly_once = document_id is not None

    def describe_target(self) -> str:
        return self._target

    def check_record(self, record: T) -> None:
        """Raise an error if ``record`` has no valid id, version and document. What the cluster refuses is not known."""
        self._action(0, record)

    def write(self, batch: SinkBatch[T]) -> None:
        records = enumerate(record for part in batch.batches for record in part.rows())
        with self._endpoint.pool() as pool:
            while some := list(islice(records, self._records_per_request)):
                actions: dict[str | int, _Action] = {}
                for number, record in some:
                    action = self._action(number, record)
                    key = action.document_id or number
                    if key not in actions or action.version >= actions[key].version:
                        actions[key] = action
                self._send(pool, batch, list(actions.values()))

    def _action(self, number: int, record: T) -> _Action:
        about: dict[str, object] = {}
        document_id, version = "", 0
        if self._document_id is not None:
            about["_id"] = document_id = self._document_id(record)
            if not isinstance(document_id, str) or not 1 <= len(document_id.encode()) <= _LONGEST_ID:
                raise SchemaError(f"An id for {self} must be a text of 1 to {_LONGEST_ID} bytes, not {document_id!r}.")
        if self._version is not None:
            about |= {"version": (version := self._version(record)), "version_type": "external_gte"}
        if self._deletes is not None and self._deletes(record):
            return _Action(number, document_id, version, to_json({"delete": about}) + b"\n")
        document = to_json(record if self._document is None else self._document(record))
        if not document.startswith(b"{"):
            raise SchemaError(f"A document for {self} must be an object in JSON, not {document[:_SHOWN].decode()}.")
        kind = "index" if document_id else "create"
        return _Action(number, document_id, version, to_json({kind: about}) + b"\n" + document + b"\n")

    def _send(self, pool: urllib3.PoolManager, batch: SinkBatch[T], actions: Sequence[_Action]) -> None:
        for left in attempts(self._endpoint.retries):
            body = b"".join(action.lines for action in actions)
            refused = []
            for action, result in zip(actions, self._results(pool, body, len(actions)), strict=True):
                if result.status in _RETRIED and left:
                    refused.append(action)
                elif result.error is not None and not (result.status == _CONFLICT and self._version):
                    raise JobError(self._failure(batch, action, result))
            if not refused:
                return
            actions = refused

    def _results(self, pool: urllib3.PoolManager, body: bytes, count: int) -> list[_Result]:
        answer = self._endpoint.send(pool, repr(self), "POST", self._endpoint.url, body, {})
        try:
            results = [result for item in msgspec.json.decode(answer, type=_Answer).items for result in item.values()]
        except msgspec.DecodeError:
            results = []
        if len(results) != count:
            text = answer.decode("utf-8", "replace")[:_SHOWN]
            raise JobError(self._endpoint.redacted(f"{self}: this is no answer of a bulk API: {text}"))
        return results

    def _failure(self, batch: SinkBatch[T], action: _Action, result: _Result) -> str:
        error = result.error
        reason = f"{error.get('type')}: {error.get('reason')}" if isinstance(error, dict) else str(error)
        return self._endpoint.redacted(
            f"{self} cannot write record {action.number} of subtask {batch.subtask} in micro-batch {batch.batch_id}, "
            f"id {action.document_id!r}: {result.status} {reason[:_SHOWN]}"
        )
