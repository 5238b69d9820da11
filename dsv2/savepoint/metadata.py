"""The description of a savepoint, which is its file ``savepoint.json``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from dsv2.base.folders import Folder
from dsv2.checkpoint.column_types import is_column_type
from dsv2.checkpoint.description import FURTHER
from dsv2.checkpoint.description_check import check_description
from dsv2.checkpoint.folder_kinds import SAVEPOINT_FILE, FolderKind, kind_of_folder
from dsv2.checkpoint.key_samples import KeySample
from dsv2.checks.json_documents import from_json, to_json
from dsv2.dead_letters.replay import Replays
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.savepoint.tables import SavepointTable
from dsv2.version import __version__

SAVEPOINT_VERSION: Final = 1
"""The version of the format of savepoints. All versions stay readable."""

PYTHON_VERSION: Final = "{}.{}.{}".format(*sys.version_info[:3])

JsonObject: TypeAlias = dict[str, Any]

_NAME = "[a-zA-Z0-9][a-zA-Z0-9._=-]*"  # all names that writers use, and none that a file system or Spark interprets
_FOLDER = re.compile(f"state(/{_NAME})+")
_FILE = re.compile(_NAME)


@dataclass(frozen=True, slots=True)
class Origin:
    """The job and micro-batch from which a savepoint was taken.

    Attributes:
        job_name: The name of the job.
        job_id: The job, as sinks know it: it stays the same when a job continues from a savepoint.
        batch_id: The last micro-batch that it includes, as sinks count them.
    """

    job_name: str
    job_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The position at which a source continues.

    Attributes:
        offset: The offset of the source. For sources with splits, ``dsv2.runtime.sources.offsets`` describes it.
        reports: The reports of its readers on the last micro-batch.
    """

    offset: JsonObject
    reports: list[JsonObject] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """The output of a sink up to a savepoint.

    Sinks recognize what they have written by the job, their uid, and the number of the micro-batch. A start that
    continues the job writes the next one.

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
    folder: str = ""


def sink_positions(sinks: Mapping[str, JsonObject], origin: Origin) -> dict[str, SinkPosition]:
    """Return the positions of sinks, by uid, after the last micro-batch of ``origin``.

    ``sinks``: The result of ``describe_sinks``.
    """
    return {uid: SinkPosition(**sink, job_id=origin.job_id, batch_id=origin.batch_id) for uid, sink in sinks.items()}


@dataclass(frozen=True, slots=True)
class SavepointFile:
    """A file of a savepoint: its size in bytes and its SHA-256 digest, in hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SavepointInfo:
    """The description of a savepoint.

    Attributes:
        savepoint_id: Unique.
        origin: What it was taken from.
        programs: The descriptions of the programs that wrote the state (``dsv2.checkpoint``), the last one last.
        keys: Samples of keys (``KeySample``), with which a changed key selector is noticed.
        fields: The names of the function fields in the state, by uid.
        tables: The tables with the state of operators. An operator without tables has no state.
        sources: The positions of the sources, by uid.
        sinks: The positions of the sinks, by uid.
        files: The files, by their path in the savepoint.
        holding: The uids of operators that hold back records behind an aligned watermark.
        replays: The dead letters that the job has processed again, or processes again when it is restored.
        has_begun_next: Whether the job had begun a further micro-batch, so that sinks may have a part of it.
        dsv2: The version of dsv2 that wrote it.
        python: The version of Python that wrote it.
        spark: The version of Spark that wrote it, or None.
    """

    savepoint_id: str
    origin: Origin
    programs: Annotated[Sequence[JsonObject], Meta(min_length=1)]
    tables: Sequence[SavepointTable]
    sources: Mapping[str, SourcePosition]
    sinks: Mapping[str, SinkPosition]
    files: Mapping[str, SavepointFile]
    keys: Sequence[KeySample] = field(default_factory=list)
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    holding: Sequence[str] = field(default_factory=list)
    replays: Replays = field(default_factory=Replays)
    has_begun_next: bool = False
    dsv2: str = __version__
    python: str = PYTHON_VERSION
    spark: str | None = None

    @property
    def program(self) -> JsonObject:
        """The last program."""
        return self.programs[-1]

    @property
    def offsets(self) -> dict[str, JsonObject]:
        """The offset of each source, by uid."""
        return {uid: source.offset for uid, source in self.sources.items()}

    @property
    def states(self) -> dict[str, Sequence[str]]:
        """The names of the declared states of each operator, by uid, without those that are kept in windows."""
        operators = self.program["operators"]
        return {uid: own_states(operators[uid]["states"]) for uid in sorted(operators)}


def own_states(states: Iterable[str]) -> Sequence[str]:
    """Return the names of the states that are not kept in windows, in order."""
    return tuple(sorted(name for name in states if not name.endswith(FURTHER)))


def write_info(folder: Folder, info: SavepointInfo) -> None:
    """Write the description. A folder becomes a savepoint with it, so it is written last."""
    folder.write(SAVEPOINT_FILE, to_json({"savepoint_version": SAVEPOINT_VERSION, **msgspec.to_builtins(info)}))


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
        entry = from_json(data)
        version = entry.pop("savepoint_version")
        if version != SAVEPOINT_VERSION:
            raise IncompatibleCheckpointError(
                f"{place} has format version {version}. This version of dsv2 ({__version__}) reads up to version "
                f"{SAVEPOINT_VERSION}. Use the version of dsv2 that wrote it ({entry.get('dsv2')}) or a newer one."
            )
        info = msgspec.convert(entry, SavepointInfo)
        _check_structure(info)
    except (KeyError, ValueError) as error:
        raise CorruptDataError(f"{place} is damaged: {error}. Restore it from a backup.") from error
    return info


def _check_structure(info: SavepointInfo) -> None:
    """Check a description beyond its types. What passes names no file outside of the savepoint.

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
