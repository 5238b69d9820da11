"""Lakehouse tables on a server with the interface of S3."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
import pytest

from components.s3 import S3Server
from dsv2 import ExecutionEnvironment
from dsv2.sinks import Sink


class Sale(NamedTuple):
    item: str
    amount: int


def write(sink: Sink[Sale], *sales: Sale) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection(sales).to_sink(sink)
    env.execute("sales")


def test_delta(s3_server: S3Server) -> None:
    deltalake = pytest.importorskip("deltalake")
    from dsv2.connectors.delta import DeltaSink

    path = f"s3://{s3_server.BUCKET}/{uuid4().hex}"
    options = {**s3_server.in_environment(), "AWS_ALLOW_HTTP": "true"}
    for sales in ([Sale("a", 1), Sale("b", 2)], [Sale("a", 3)]):
        write(DeltaSink(path, Sale, key=["item"], storage_options=options), *sales)
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path, storage_options=options))
    rows = pa.table(query.execute("SELECT item, amount FROM t ORDER BY item").read_all()).to_pylist()
    assert rows == [{"item": "a", "amount": 3}, {"item": "b", "amount": 2}]


def test_iceberg(s3_server: S3Server, tmp_path: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    from dsv2.connectors.iceberg import IcebergSink

    given = s3_server.in_environment()
    options = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{s3_server.BUCKET}/{uuid4().hex}",
        "s3.endpoint": given["AWS_ENDPOINT_URL"],
        "s3.access-key-id": given["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": given["AWS_SECRET_ACCESS_KEY"],
        "s3.region": given["AWS_DEFAULT_REGION"],
        "s3.connect-timeout": "60",
        "s3.request-timeout": "60",
    }
    for sales in ([Sale("a", 1), Sale("b", 2)], [Sale("a", 3)]):
        write(IcebergSink("shop.sales", Sale, key=["item"], compact_every=1, catalog_options=options), *sales)
    scan = catalogs.load_catalog("default", **options).load_table("shop.sales").scan()
    assert sorted(scan.to_arrow().to_pylist(), key=str) == [{"item": "a", "amount": 3}, {"item": "b", "amount": 2}]
    assert len(list(scan.plan_files())) == 1
