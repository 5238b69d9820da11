"""Checks the description of a savepoint, which anybody may have written.

What passes names no file outside of the savepoint, and has the types that its readers rely on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dsv2.program.column_types import is_column_type
from dsv2.program.description_check import check_description, check_samples
from dsv2.runtime.state.rows import RowKind

if TYPE_CHECKING:
    from dsv2.savepoint.metadata import SavepointInfo
    from dsv2.savepoint.tables import SavepointTable

__all__ = ("check_structure",)

_KINDS = [kind.value for kind in RowKind]
_NAME = "[a-zA-Z0-9][a-zA-Z0-9._=-]*"  # all names that writers use, and none that a file system or Spark interprets
_FOLDER = re.compile(f"state(/{_NAME})+")
_FILE = re.compile(_NAME)


def check_structure(info: SavepointInfo) -> None:
    """Check a description.

    Raises:
        ValueError: A part has another type than it must have, or a name is that of a file outside of the savepoint.
    """
    origin = info.origin
    _check("origin", origin, _all(str, (origin.job_name, origin.job_id)) and type(origin.batch_id) is int)
    _check("savepoint_id", info.savepoint_id, isinstance(info.savepoint_id, str))
    _check("programs", info.programs, isinstance(info.programs, list) and bool(info.programs))
    for program in info.programs:
        check_description(program)
    operators = info.program["operators"]
    for uid, source in info.sources.items():
        _check(f"the position of {uid!r}", source, isinstance(source.offset, dict) and isinstance(source.reports, list))
        counts = [source.offset[name] for name in ("position", "batch") if name in source.offset]
        _check(f"the position of {uid!r}", source.offset, all(type(count) is int for count in counts))
    check_samples(info.keys)
    _check("fields", info.fields, isinstance(info.fields, dict) and _all(list, info.fields.values()))
    _check("fields", info.fields, all(_all(str, names) for names in info.fields.values()))
    _check("holding", info.holding, isinstance(info.holding, list) and set(info.holding) <= operators.keys())
    _check("has_begun_next", info.has_begun_next, isinstance(info.has_begun_next, bool))
    for names in (info.replays.requests, info.replays.letters):
        _check("replays", names, isinstance(names, list) and _all(str, names))
    for uid, sink in info.sinks.items():
        texts, numbers = (sink.kind, sink.target, sink.job_id, sink.folder), (sink.batch_id, sink.exactly_once)
        _check(f"the position of {uid!r}", sink, _all(str, texts) and list(map(type, numbers)) == [int, bool])
    for table in info.tables:
        _check_table(table)
    folders = {table.folder for table in info.tables}
    for table in info.tables:
        nested = any(f"{table.folder}/".startswith(f"{folder}/") for folder in folders - {table.folder})
        _check("a folder", table.folder, not nested)
    _check("the tables", info.tables, len(folders) == len({table.id for table in info.tables}) == len(info.tables))
    without = folders - {name.rpartition("/")[0] for name in info.files}
    _check("a table without files", without, not without)
    for name, file in info.files.items():
        folder, _, own_name = name.rpartition("/")
        _check("a file", name, folder in folders and _FILE.fullmatch(own_name) is not None)
        _check("a file", name, type(file.size) is int and isinstance(file.sha256, str))


def _check_table(table: SavepointTable) -> None:
    of = table.id
    _check("a table", of, isinstance(of.uid, str) and isinstance(of.state, str | None))
    _check("the kind of a table", of.kind, of.kind in _KINDS)
    _check("a folder", table.folder, isinstance(table.folder, str) and _FOLDER.fullmatch(table.folder) is not None)
    for column in (table.key, table.value):
        _check("a column", column, column is None or is_column_type(column))


def _all(kind: type, values: Iterable[object]) -> bool:
    return all(isinstance(value, kind) for value in values)


def _check(part: str, value: Any, valid: bool) -> None:
    if not valid:
        raise ValueError(f"{part} cannot be {str(value)[:200]!r}")
