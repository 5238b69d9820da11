"""Checks the files in which Spark records the types of the state of each level, and corrects the paths in them.

Spark reads these files on the driver when a query starts, and its errors about damaged files are vague.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from dsv2.base.folders import Folder
from dsv2.errors import CorruptDataError

_VERSION = "v2"
_NO_CONTENTS = "It holds the types of Spark's state, but not the state itself. Restore it from a backup"


def check_state_metadata(checkpoint: Folder, files: Collection[str]) -> None:
    """Check the files of all levels. Raises ``CorruptDataError``, naming the damaged or missing file.

    ``files``: The names of the files in the folder ``state``.
    """
    for level in _levels(files):
        if (schema := f"{level}/0/_metadata/schema") in files:
            _check_blob_schema(checkpoint, f"state/{schema}")
        for name in _operator_files(checkpoint, level, files):
            _check_operator_file(checkpoint, level, name)


def relocate_state_metadata(checkpoint: Folder, files: Collection[str]) -> None:
    """Correct the paths of the schemas in a checkpoint that was copied or moved. Spark records absolute paths.

    ``files``: The names of the files in the folder ``state``.
    """
    for level in _levels(files):
        for name in _operator_files(checkpoint, level, files):
            content = _operator_metadata(checkpoint.read(name) or b"")
            before = json.dumps(content)
            for store in content["stateStoreInfo"]:
                paths = store["stateSchemaFilePaths"]
                store["stateSchemaFilePaths"] = [checkpoint.uri(_schema_file(level, path)) for path in paths]
            if json.dumps(content) != before:
                folder, _, number = name.rpartition("/")
                checkpoint.delete(f"{folder}/.{number}.crc")
                checkpoint.write(name, f"{_VERSION}\n{json.dumps(content)}".encode())


def _levels(files: Iterable[str]) -> list[int]:
    names = {file.partition("/")[0] for file in files}
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


# --- StateLayout.BLOB: a schema for each level ------------------------------------------------------------------------


def _check_blob_schema(checkpoint: Folder, name: str) -> None:
    try:
        _check_schema(checkpoint.read(name) or b"")
    except ValueError as error:
        raise CorruptDataError(
            f"{checkpoint.place(name)} is damaged: {_describe(error)}. {_NO_CONTENTS}, or delete it; Spark then writes "
            f"a new one."
        ) from error


# --- StateLayout.MAP: a metadata file for each level, which names the files of its schemas ----------------------------


def _operator_files(checkpoint: Folder, level: int, files: Iterable[str]) -> list[str]:
    folder = f"{level}/_metadata/v2/"
    found = sorted(file for file in files if file.startswith(folder) and file.removeprefix(folder).isdigit())
    if not found and any(file.startswith(f"{level}/_stateSchema/") for file in files):
        raise CorruptDataError(f"{checkpoint.place(f'state/{folder}')}0 is missing. {_remedy(level)}")
    return [f"state/{file}" for file in found]


def _check_operator_file(checkpoint: Folder, level: int, name: str) -> None:
    try:
        content = _operator_metadata(checkpoint.read(name) or b"")
        paths = [path for store in content["stateStoreInfo"] for path in store["stateSchemaFilePaths"]]
        schemas = [_schema_file(level, path) for path in paths]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"{checkpoint.place(name)} is damaged: {_describe(error)}. {_remedy(level)}") from error
    for schema in schemas:
        data = checkpoint.read(schema)
        if data is None:
            raise CorruptDataError(
                f"{checkpoint.place(schema)}, which {checkpoint.place(name)} names, is missing. {_remedy(level)}"
            )
        try:
            _check_schema(data)
        except ValueError as error:
            raise CorruptDataError(
                f"{checkpoint.place(schema)} is damaged: {_describe(error)}. {_remedy(level)}"
            ) from error


def _remedy(level: int) -> str:
    return (
        f"{_NO_CONTENTS}, or run the same program with a new checkpoint_location for one micro-batch, and replace "
        f"state/{level}/_metadata and state/{level}/_stateSchema with the ones from there."
    )


def _operator_metadata(data: bytes) -> Any:
    version, _, content = data.decode("utf-8").partition("\n")
    if version != _VERSION:
        raise ValueError(f"it begins with {version[:40]!r} instead of {_VERSION!r}")
    return json.loads(content)


def _schema_file(level: int, path: str) -> str:
    """Return the name in the checkpoint of the schema that was written at ``path``."""
    schemas = f"state/{level}/_stateSchema/"
    _, found, file = path.rpartition(schemas)
    if not found:
        raise ValueError(f"it names {path!r}, which is not a file of {schemas}")
    return schemas + file


# --- The format of schemas --------------------------------------------------------------------------------------------


class _JavaData:
    """Reads the format of Java's ``DataOutputStream``. Raises ``ValueError`` if the data ends too early."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def text(self) -> str:
        return self._take(self.number(2)).decode("utf-8")

    def json_object(self) -> None:
        """Read a JSON object that is stored in several strings."""
        text = "".join([self.text() for _ in range(self.number(4))])
        if not isinstance(json.loads(text), dict):
            raise ValueError("a schema is not a JSON object")

    def is_at_end(self) -> bool:
        return not self._rest

    def _take(self, size: int) -> bytes:
        if len(self._rest) < size:
            raise ValueError("it is truncated")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def _check_schema(data: bytes) -> None:
    """Check a schema file. Spark checks schemas of later versions itself."""
    schema = _JavaData(data)
    version = schema.text()
    if not (version.startswith("v") and version[1:].isdigit()):
        raise ValueError(f"it begins with {version[:40]!r} instead of a version")
    if version == "v2":
        schema.json_object()  # of keys
        schema.json_object()  # of values
    elif version == "v3":
        for _ in range(schema.number(4)):
            _check_column_family(schema)
        if not schema.is_at_end():
            raise ValueError("it has data after its schemas")


def _check_column_family(schema: _JavaData) -> None:
    schema.text()  # its name
    for _ in ("keys", "values"):
        schema.number(2)  # the number of the schema
        schema.json_object()
    schema.json_object()  # how keys are encoded
    schema.json_object()  # the type of the keys of a map


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
