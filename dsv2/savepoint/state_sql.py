"""SQL over the states of a job: DuckDB in memory, without access to files, the network or the program."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError, JobError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_SECONDS = 30.0
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "512MB",
    "max_temp_directory_size": "0B",
    "enable_external_access": False,
    "python_enable_replacements": False,  # variables of Python as tables
}

Tables: TypeAlias = Mapping[tuple[str, str], Callable[[], "pa.Table"]]
"""Reads a table, by the operator and the state."""


def query_tables(query: str, tables: Tables, limit: int) -> pa.Table:
    """Return at most ``limit`` rows of the result of a query. Only the tables in it are read.

    Raises:
        ConfigurationError: It is not one valid SELECT, or duckdb is not installed.
        JobError: It takes too long.
    """
    require_client_library("duckdb", "duckdb", "SQL over the state of a job")
    import duckdb

    connection = duckdb.connect(config=_SETTINGS)
    timer = threading.Timer(_SECONDS, connection.interrupt)
    try:
        named = sorted(name for name in _named_in(connection, query) if name[0])
        if unknown := [".".join(name) for name in named if name not in tables]:
            known = ", ".join(".".join(map(_quoted, name)) for name in sorted(tables)) or "none"
            raise ConfigurationError(f"There is no state {', '.join(unknown)}. There are: {known}.")
        for number, name in enumerate(named):
            connection.register(f"table {number}", tables[name]())
            schema, table = map(_quoted, name)
            connection.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            connection.sql(f'CREATE VIEW {schema}.{table} AS SELECT * FROM "table {number}"')
        connection.sql("SET lock_configuration = true")
        timer.start()
        return _with_whole_numbers(connection.sql(query).limit(limit).to_arrow_table())
    except duckdb.InterruptException as error:
        raise JobError(f"The query takes more than {_SECONDS:g} s.") from error
    except duckdb.Error as error:
        raise ConfigurationError(f"{error}") from error
    finally:
        timer.cancel()
        connection.close()


def _named_in(connection: duckdb.DuckDBPyConnection, query: str) -> set[tuple[str, str]]:
    """Return the tables in a query, with their schemas."""
    ((found,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
    tree = json.loads(found)
    if tree["error"] or len(tree["statements"]) != 1:
        raise ConfigurationError(f"Give one SELECT. {tree.get('error_message', '')}".rstrip())
    return set(_tables_below(tree))


def _tables_below(node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        if node.get("type") == "BASE_TABLE":
            yield node["schema_name"], node["table_name"]
        node = list(node.values())
    for part in node if isinstance(node, list) else ():
        yield from _tables_below(part)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _with_whole_numbers(table: pa.Table) -> pa.Table:
    """Return 64-bit numbers for sums of whole numbers, which have 128 bits in DuckDB, if they fit."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            try:
                table = table.set_column(place, field.name, table.column(place).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table
