"""Checks the description of a savepoint beyond its types. Anybody may have written it.

What passes names no file outside of the savepoint, and has what its readers rely on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dsv2.program.column_types import is_column_type
from dsv2.program.description_check import check_description

if TYPE_CHECKING:
    from dsv2.savepoint.metadata import SavepointInfo

__all__ = ("check_structure",)

_NAME = "[a-zA-Z0-9][a-zA-Z0-9._=-]*"  # all names that writers use, and none that a file system or Spark interprets
_FOLDER = re.compile(f"state(/{_NAME})+")
_FILE = re.compile(_NAME)


def check_structure(info: SavepointInfo) -> None:
    """Check a description.

    Raises:
        ValueError: A part is not valid, or a name is that of a file outside of the savepoint.
    """
    for program in info.programs:
        check_description(program)
    for uid, source in info.sources.items():
        counts = [source.offset[name] for name in ("position", "batch") if name in source.offset]
        _check(f"the position of {uid!r}", source.offset, all(type(count) is int for count in counts))
    _check("holding", info.holding, set(info.holding) <= info.program["operators"].keys())
    for table in info.tables:
        for column in (table.key, table.value):
            _check("a column", column, column is None or is_column_type(column))
    folders = {table.folder for table in info.tables}
    for folder in folders:
        nested = any(f"{folder}/".startswith(f"{other}/") for other in folders - {folder})
        _check("a folder", folder, _FOLDER.fullmatch(folder) is not None and not nested)
    _check("the tables", info.tables, len(folders) == len({table.id for table in info.tables}) == len(info.tables))
    without = folders - {name.rpartition("/")[0] for name in info.files}
    _check("a table without files", without, not without)
    for name in info.files:
        folder, _, own_name = name.rpartition("/")
        _check("a file", name, folder in folders and _FILE.fullmatch(own_name) is not None)


def _check(part: str, value: Any, valid: bool) -> None:
    if not valid:
        raise ValueError(f"{part} cannot be {str(value)[:200]!r}")
