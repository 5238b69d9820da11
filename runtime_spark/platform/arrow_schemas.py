"""Arrow schemas of Spark's types."""

from __future__ import annotations

from functools import cache
from inspect import signature

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema(schema: StructType, time_zone: str) -> pa.Schema:
    """Return the Arrow schema of ``schema``. ``time_zone``: Of timestamps, which Spark 4.1 always passes in UTC."""
    return to_arrow_schema(schema, timezone=time_zone) if _has_time_zone() else to_arrow_schema(schema)


@cache
def _has_time_zone() -> bool:
    return "timezone" in signature(to_arrow_schema).parameters
