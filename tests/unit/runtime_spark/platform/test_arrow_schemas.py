"""Arrow schemas of Spark's types, with each signature that Spark's function has had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from runtime_spark.platform import arrow_schemas

SCHEMA = t.StructType([t.StructField("at", t.TimestampType())])


def of_4_1(schema: t.StructType, error_on_duplicated_field_names_in_struct: bool = False) -> pa.Schema:
    return pa.schema([("at", pa.timestamp("us", "UTC"))])


def of_4_2(schema: t.StructType, *, timezone: str | None = None) -> pa.Schema:
    return pa.schema([("at", pa.timestamp("us", timezone))])


@pytest.fixture(autouse=True)
def forget_the_signature() -> Iterator[None]:
    arrow_schemas._has_time_zone.cache_clear()
    yield
    arrow_schemas._has_time_zone.cache_clear()


@pytest.mark.parametrize(("function", "zone"), [(of_4_1, "UTC"), (of_4_2, "Asia/Tokyo")])
def test_timestamps_have_the_zone_that_spark_expects(function: Any, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_schemas, "to_arrow_schema", function)
    assert arrow_schemas.arrow_schema(SCHEMA, "Asia/Tokyo").field("at").type.tz == zone


def test_installed_spark_has_one_of_them() -> None:
    assert arrow_schemas.arrow_schema(SCHEMA, "UTC").field("at").type.tz == "UTC"
