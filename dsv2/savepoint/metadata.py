"""The description of a savepoint, which is its file ``savepoint.json``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from dsv2.base.folders import Folder
from dsv2.checkpoint.folder_kinds import SAVEPOINT_FILE, FolderKind, kind_of_folder
from dsv2.checkpoint.program import FURTHER
from dsv2.checkpoint.record import JobRecord, check_part, converted
from dsv2.checks.json_documents import from_json, write_document
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.savepoint.tables import SavepointTable

PYTHON_VERSION: Final = "{}.{}.{}".format(*sys.version_info[:3])

_NAME = "[a-zA-Z0-9][a-zA-Z0-9._=-]*"  # all names that writers use, and none that a file system or Spark interprets
_FOLDER = re.compile(f"state(/{_NAME})+")
_FILE = re.compile(_NAME)


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """The output of a sink up to a savepoint.

    Attributes:
        kind: The class of the sink.
        target: Where it writes, without secrets.
        exactly_once: Whether it writes each record once, also across this savepoint.
        job_id: The job, as the sink knows it.
        batch_id: The last micro-batch that it has written; -1: none.
        folder: The folder of a file sink, with its scheme. Empty: another sink, or it has not run.
    """

    kind: str
    target: str
    exactly_once: bool
    job_id: str
    batch_id: int
    folder: str


class SavepointFile(Struct, frozen=True):
    """A file of a savepoint: its size in bytes and its SHA-256 digest, in hexadecimal."""

    size: int
    sha256: str


class SavepointInfo(JobRecord, frozen=True, kw_only=True):
    """The description of a savepoint.

    Attributes:
        savepoint_id: Unique.
        tables: The tables with the state of operators. An operator without tables has no state.
        files: The files, by their path in the savepoint.
        python: The version of Python that wrote it.
        spark: The version of Spark that wrote it, or None.
    """

    savepoint_id: str = ""
    tables: Sequence[SavepointTable] = []
    files: Mapping[str, SavepointFile] = {}
    python: str = PYTHON_VERSION
    spark: str | None = None

    @property
    def sink_positions(self) -> dict[str, SinkPosition]:
        """The positions of the sinks, by uid."""
        return {
            uid: SinkPosition(sink.kind, sink.target, sink.exactly_once, self.job_id, self.batch_id, sink.folder)
            for uid, sink in self.sinks.items()
        }

    @property
    def states(self) -> dict[str, Sequence[str]]:
        """The names of the declared states of each operator, by uid, without those that are kept in windows."""
        return {uid: own_states(operator.states) for uid, operator in sorted(self.program.operators.items())}


def own_states(states: Iterable[str]) -> Sequence[str]:
    """Return the names of the states that are not kept in windows, in order."""
    return tuple(sorted(name for name in states if not name.endswith(FURTHER)))


def write_info(folder: Folder, info: SavepointInfo) -> None:
    """Write the description. A folder becomes a savepoint with it, so it is written last."""
    write_document(folder, SAVEPOINT_FILE, info)


def read_info(folder: Folder) -> SavepointInfo:
    """Read the description.

    Raises:
        ConfigurationError: The folder is not a savepoint.
        IncompatibleCheckpointError: The format has a version that is not known here.
        CorruptDataError: The description is damaged.
    """
    data = folder.read(SAVEPOINT_FILE)
    if data is None:
        raise _no_savepoint(folder)
    place = folder.place(SAVEPOINT_FILE)
    try:
        info = converted(SavepointInfo, from_json(data), place)
        _check_structure(info)
    except ValueError as error:
        raise CorruptDataError(f"{place} is damaged: {error}. Restore it from a backup.") from error
    return info


def _check_structure(info: SavepointInfo) -> None:
    """Check the tables and the files of a description. What passes names no file outside of the savepoint.

    Raises:
        ValueError: A part is not valid, or a name is that of a file outside of the savepoint.
    """
    folders = {table.folder for table in info.tables}
    for folder in folders:
        nested = any(f"{folder}/".startswith(f"{other}/") for other in folders - {folder})
        check_part("a folder", folder, _FOLDER.fullmatch(folder) is not None and not nested)
    check_part("the tables", info.tables, len(folders) == len({table.id for table in info.tables}) == len(info.tables))
    without = folders - {name.rpartition("/")[0] for name in info.files}
    check_part("a table without files", without, not without)
    for name in info.files:
        folder, _, own_name = name.rpartition("/")
        check_part("a file", name, folder in folders and _FILE.fullmatch(own_name) is not None)


def _no_savepoint(folder: Folder) -> ConfigurationError:
    kind = kind_of_folder(folder)
    if kind is FolderKind.OTHER:
        return ConfigurationError(
            f"{folder.path} is not a savepoint: it has no {SAVEPOINT_FILE}. A savepoint that was not completed has "
            f"none either: take it again, in another folder."
        )
    return ConfigurationError(
        f"{folder.path} is {kind.value}, not a savepoint. To continue that job, pass it as checkpoint_location. To "
        f"start from its state elsewhere, take a savepoint of it: dsv2 savepoint create {folder.path} PATH"
    )
