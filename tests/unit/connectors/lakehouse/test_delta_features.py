"""Delta tables with features that the connectors support, or refuse: deletion vectors, change data feed and others."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import CollectSink, ExecutionEnvironment
from dsv2.connectors.lakehouse.sink import LakehouseSink
from dsv2.connectors.lakehouse.source import LakehouseSource
from dsv2.errors import JobError
from dsv2.model.record_batch import RecordBatch
from tests.lakehouse_tables import DeltaOnDisk

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"  # of Z85
_MAPPING = "delta.columnMapping"
BATCHES = itertools.count()


class Sale(NamedTuple):
    item: str
    amount: int


SALES = [Sale("a b", 1), Sale("a b", 2), Sale("a b", 3)]


def create(delta: DeltaOnDisk, partition_by: Sequence[str] = ()) -> None:
    write(delta.sink(Sale, partition_by=partition_by), *SALES)


def write(sink: LakehouseSink[Any], *sales: Sale) -> None:
    sink.write_batch([RecordBatch(list(sales))], next(BATCHES))


def commit(delta: DeltaOnDisk, *actions: dict[str, Any]) -> None:
    """Commit a version, as another writer does."""
    log = Path(delta.path, "_delta_log")
    (log / f"{len([*log.glob('*.json')]):020}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def protocol(reader: Sequence[str] = (), writer: Sequence[str] = ()) -> dict[str, Any]:
    features = {"readerFeatures": [*reader], "writerFeatures": [*reader, *writer]}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}


def delete_with_a_vector(delta: DeltaOnDisk, row: int) -> None:
    """Delete a row of the only file as Spark does, without writing the file again."""
    lines = Path(delta.path, "_delta_log", f"{1:020}.json").read_text(encoding="utf-8").splitlines()
    (add,) = (json.loads(line)["add"] for line in lines if '"add"' in line)
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)  # a portable bitmap of Roaring, with one number
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    vector = {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": 1}
    gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
    again = {**add, "dataChange": True, "deletionVector": vector}
    commit(delta, protocol(["deletionVectors"]), {"remove": gone}, {"add": again})


def z85(data: bytes) -> str:
    padded, found = data + b"\0" * (-len(data) % 4), ""
    for start in range(0, len(padded), 4):
        number = int.from_bytes(padded[start : start + 4], "big")
        found += "".join(_DIGITS[number // 85**place % 85] for place in range(4, -1, -1))
    return found


def read(source: LakehouseSource[Any]) -> list[Any]:
    env = ExecutionEnvironment.get_instance(runtime="local")
    found = CollectSink[Any]()
    env.from_source(source).to_sink(found)
    env.execute("read")
    return sorted(found.results)


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("partition_by", [[], ["item"]])
def test_rows_in_deletion_vectors_are_not_read(delta: DeltaOnDisk, row: int, partition_by: list[str]) -> None:
    create(delta, partition_by)
    delete_with_a_vector(delta, row)
    assert read(delta.source(Sale)) == [*SALES[:row], *SALES[row + 1 :]]


def test_later_deletion_vectors_are_changes(delta: DeltaOnDisk) -> None:
    create(delta)
    delete_with_a_vector(delta, 1)
    with pytest.raises(JobError, match=r"Version 2 of .* deletes or updates rows"):
        read(delta.source(Sale, starting=1))
    assert read(delta.source(Sale, starting=1, skip_changes=True)) == SALES


@pytest.mark.parametrize("key", [[], ["amount"]])
def test_sinks_keep_deletion_vectors(delta: DeltaOnDisk, key: list[str]) -> None:
    create(delta)
    delete_with_a_vector(delta, 0)
    write(delta.sink(Sale, key=key), Sale("c", 2))
    expected = {("a b", 3), ("c", 2)} if key else {("a b", 2), ("a b", 3), ("c", 2)}
    assert {tuple(row.values()) for row in delta.rows()} == expected


def test_change_data_feed_changes_nothing(delta: DeltaOnDisk) -> None:
    write(delta.sink(Sale, properties={"delta.enableChangeDataFeed": "true"}), *SALES)
    write(delta.sink(Sale, key=["amount"]), Sale("c", 9))
    assert read(delta.source(Sale)) == [*SALES, Sale("c", 9)]
    assert read(delta.source(Sale, starting=1, skip_changes=True))[:3] == SALES


def test_mapped_columns_are_refused_before_the_first_record(delta: DeltaOnDisk) -> None:
    create(delta)
    lines = Path(delta.path, "_delta_log", f"{0:020}.json").read_text(encoding="utf-8").splitlines()
    (metadata,) = (json.loads(line)["metaData"] for line in lines if '"metaData"' in line)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {f"{_MAPPING}.id": number, f"{_MAPPING}.physicalName": f"column {number}"}
    settings = {f"{_MAPPING}.mode": "name", f"{_MAPPING}.maxColumnId": "2"}
    changed = {**metadata, "schemaString": json.dumps(schema), "configuration": settings}
    commit(delta, protocol(["columnMapping"]), {"metaData": changed})
    with pytest.raises(JobError, match="maps names of columns, which DeltaSource does not support"):
        read(delta.source(Sale))


@pytest.mark.parametrize("feature", ["typeWidening", "somethingNew"])
def test_unknown_features_are_named_before_the_first_record(delta: DeltaOnDisk, feature: str) -> None:
    create(delta)
    commit(delta, protocol([feature]))
    with pytest.raises(JobError, match=f"(?i){feature}"):
        read(delta.source(Sale))
    with pytest.raises(JobError, match=f"(?i){feature}"):
        write(delta.sink(Sale), Sale("c", 4))


def test_features_that_cannot_be_written_are_no_conflicts(delta: DeltaOnDisk) -> None:
    create(delta)
    commit(delta, protocol(writer=["rowTracking", "domainMetadata"]))
    with pytest.raises(JobError, match=r"Cannot write the table: Unsupported table features required: .*RowTracking"):
        write(delta.sink(Sale), Sale("c", 4))
    assert read(delta.source(Sale)) == SALES


def test_table_that_only_takes_new_rows(delta: DeltaOnDisk) -> None:
    write(delta.sink(Sale, properties={"delta.appendOnly": "true"}), *SALES)
    with pytest.raises(JobError, match=r"Cannot write the table: .* is append-only"):
        write(delta.sink(Sale, key=["amount"]), Sale("c", 1))
