"""Writes rows of state as the tables of a savepoint, in Spark tasks, to any file system that Spark can reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.pandas.types import from_arrow_schema

from dsv2.folders import Folder
from dsv2.program.description import Description
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.stand_ins import StandIns
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.metadata import SavepointFile
from dsv2.savepoint.tables import COLUMNS, SavepointTable, TableId
from runtime_spark.failures import marked_failures

__all__ = ("digests", "write_tables")

_TABLE = "table"
_ROWS_PER_FILE = 1 << 20


def write_tables(rows: DataFrame, folder: Folder, program: Description) -> list[SavepointTable]:
    """Write ``rows`` (``ROWS_SCHEMA``), which are read several times, and return their tables.

    Tables with the same columns are written together, because each Spark job takes some time.
    """
    tables = _tables_of(rows, program)
    for number, group in enumerate(_alike(tables)):
        names = {table.id: f"{table.folder}" for table in group}
        own = [SavepointTable(t.id, f"state/{number}/{_TABLE}={t.folder}", t.key, t.value) for t in group]
        _write(rows, group, folder.uri(f"state/{number}"))
        tables = [next((new for new in own if new.id == table.id), table) for table in tables]
        del names
    return tables
