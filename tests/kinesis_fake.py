"""A fake of the protocol of Kinesis, for what moto's server lacks: resharding, limits, expiry and partial failures."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from dsv2.connectors.kinesis import KinesisRecord

SECRET_KEY = "hush/hush"

_FIRST_NUMBER = 49590338271490256608559692538361571095921575989136588898
_SHARDS_AT_ONCE = 2
_HOUR = 3600


def options_of(endpoint: str) -> dict[str, str]:
    """Return the options of the client of a server."""
    keys = {"aws_access_key_id": "dsv2", "aws_secret_access_key": SECRET_KEY}
    return {**keys, "region_name": "us-east-1", "endpoint_url": endpoint}


def text_of(record: KinesisRecord) -> str:
    """Return the data of a record as text."""
    return record.data.decode()


class RefusedError(Exception):
    """The error of a request."""


@dataclass
class Shard:
    """A shard. Its records are dicts as ``GetRecords`` returns them."""

    parents: list[str]
    is_closed: bool = False
    records: list[dict[str, Any]] = field(default_factory=list)


class FakeKinesis(ThreadingHTTPServer):
    """A server with one stream, "clicks", which has two shards and keeps records for 24 hours."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.now = 500_000 * _HOUR
        """The time in seconds since the epoch."""
        self.shards: dict[str, Shard] = {}
        self.calls: Counter[str] = Counter()
        self.put: list[list[bytes]] = []
        """The data of each request to write records."""
        self.refused: list[bytes] = []
        """The data of records that are refused once, in any request."""
        self.errors: list[str] = []
        """The errors of the next requests for records."""
        self.age = 0
        """The number of times that all iterators expired."""
        self.empty_pages = 0
        """How many answers have no records although there are some."""
        self._number = _FIRST_NUMBER
        self._shards_made = 0
        self._deleted = set[str]()
        self._reshard()
        self._reshard()
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def endpoint(self) -> str:
        """The URL."""
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, shard: int, *data: str) -> None:
        """Add records to a shard."""
        for one in data:
            self._add(self._shard(shard), one.encode(), "any")

    def split(self, shard: int) -> None:
        """Split a shard into two."""
        self._shard(shard).is_closed = True
        self._reshard(shard)
        self._reshard(shard)

    def merge(self, first: int, second: int) -> None:
        """Merge two shards."""
        self._shard(first).is_closed = self._shard(second).is_closed = True
        self._reshard(first, second)

    def delete(self, shard: int, count: int) -> None:
        """Delete the oldest records of a shard."""
        records = self._shard(shard).records
        self._deleted.update(record["SequenceNumber"] for record in records[:count])
        del records[:count]

    def forget(self, shard: int) -> None:
        """Delete a shard."""
        del self.shards[_id_of(shard)]

    def answer(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request. Raises ``RefusedError``."""
        self.calls[operation] += 1
        answer: Callable[[dict[str, Any]], dict[str, Any]] = getattr(self, f"_{operation}")
        if "StreamName" in request and request["StreamName"] != "clicks":
            raise RefusedError("ResourceNotFoundException")
        return answer(request)

    def _DescribeStreamSummary(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - the operation
        return {"StreamDescriptionSummary": {"StreamName": "clicks", "RetentionPeriodHours": 24}}

    def _ListShards(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        assert ("NextToken" in request) != ("StreamName" in request)
        first = int(request.get("NextToken", 0))
        shown = list(self.shards.items())[first : first + _SHARDS_AT_ONCE]
        names = ("ParentShardId", "AdjacentParentShardId")
        found = [{"ShardId": name, **dict(zip(names, shard.parents, strict=False))} for name, shard in shown]
        more = first + _SHARDS_AT_ONCE < len(self.shards)
        return {"Shards": found, **({"NextToken": str(first + _SHARDS_AT_ONCE)} if more else {})}

    def _GetShardIterator(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        kind, after = request["ShardIteratorType"], 0
        if kind == "AFTER_SEQUENCE_NUMBER":
            if request["StartingSequenceNumber"] in self._deleted:
                raise RefusedError("InvalidArgumentException")
            after = int(request["StartingSequenceNumber"])
        elif kind == "AT_TIMESTAMP":
            if request["Timestamp"] > self.now:
                raise RefusedError("InvalidArgumentException")
            early = [record for record in self._records(request["ShardId"]) if record["time"] < request["Timestamp"]]
            after = max((int(record["SequenceNumber"]) for record in early), default=0)
        else:
            assert kind == "TRIM_HORIZON"
        return {"ShardIterator": f"{request['ShardId']} {after} {self.age}"}

    def _GetRecords(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if self.errors:
            raise RefusedError(self.errors.pop(0))
        name, after, age = request["ShardIterator"].split(" ")
        if int(age) < self.age:
            raise RefusedError("ExpiredIteratorException")
        left = [record for record in self._records(name) if int(record["SequenceNumber"]) > int(after)]
        if left and self.empty_pages:
            self.empty_pages -= 1
            return {"Records": [], "NextShardIterator": request["ShardIterator"], "MillisBehindLatest": 1}
        found = left[: request["Limit"]]
        after = found[-1]["SequenceNumber"] if found else after
        is_read = self.shards[name].is_closed and len(found) == len(left)
        more = {} if is_read else {"NextShardIterator": f"{name} {after} {age}"}
        records = [{**record, "ApproximateArrivalTimestamp": record["time"]} for record in found]
        return {"Records": records, **more, "MillisBehindLatest": int(len(found) < len(left))}

    def _PutRecords(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        assert len(request["Records"]) <= 500
        results, data = [], [b64decode(record["Data"]) for record in request["Records"]]
        self.put.append(data)
        for one, record in zip(data, request["Records"], strict=True):
            if one in self.refused:
                self.refused.remove(one)
                code = "ProvisionedThroughputExceededException"
                results.append({"ErrorCode": code, "ErrorMessage": "Rate exceeded for shard"})
            else:
                added = self._add(self._shard(0), one, record["PartitionKey"])
                results.append({"SequenceNumber": added, "ShardId": _id_of(0)})
        return {"Records": results, "FailedRecordCount": sum("ErrorCode" in result for result in results)}

    def _reshard(self, *parents: int) -> None:
        self.shards[_id_of(self._shards_made)] = Shard([_id_of(parent) for parent in parents])
        self._shards_made += 1

    def _add(self, shard: Shard, data: bytes, key: str) -> str:
        assert not shard.is_closed
        self._number += 1
        text = {"Data": b64encode(data).decode(), "SequenceNumber": str(self._number), "PartitionKey": key}
        shard.records.append({**text, "time": self.now})
        return str(self._number)

    def _shard(self, number: int) -> Shard:
        return self.shards[_id_of(number)]

    def _records(self, name: str) -> list[dict[str, Any]]:
        return self.shards[name].records


class _Handler(BaseHTTPRequestHandler):
    server: FakeKinesis
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            status, answer = 200, self.server.answer(self.headers["X-Amz-Target"].partition(".")[2], request)
        except RefusedError as error:
            status, answer = 400, {"__type": str(error), "message": "the reason"}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(self.server.now, usegmt=True)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _id_of(number: int) -> str:
    return f"shardId-{number:012}"
