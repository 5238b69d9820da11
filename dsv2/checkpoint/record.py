"""The record of a job: what a checkpoint or savepoint knows of it, without its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from dsv2.checkpoint.description import class_name, describe
from dsv2.checkpoint.key_samples import KeySample
from dsv2.checkpoint.program import ProgramDescription
from dsv2.dead_letters.replay import Replays
from dsv2.errors import IncompatibleCheckpointError
from dsv2.graph import Plan
from dsv2.sinks import Sink
from dsv2.version import __version__

RECORD_VERSION: Final = 1
"""The version of the format of checkpoints and savepoints."""

JsonObject: TypeAlias = dict[str, Any]


class SourcePosition(Struct, frozen=True):
    """The position at which a source continues.

    Attributes:
        offset: The offset of the source. For sources with splits, ``dsv2.runtime.sources.offsets`` describes it.
        reports: The reports of its readers on the last micro-batch.
    """

    offset: JsonObject
    reports: list[JsonObject] = []


class SinkRecord(Struct, frozen=True):
    """A sink.

    Attributes:
        kind: Its class.
        target: Where it writes, without secrets.
        exactly_once: Whether it writes each record once, also across a savepoint.
        folder: The folder of a file sink, with its scheme. Empty: another sink, or it has not run.
    """

    kind: str
    target: str
    exactly_once: bool
    folder: str = ""


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


class JobRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as of a micro-batch, without its state.

    Sinks recognize what they have written by the job, their uid, and the number of the micro-batch. A start that
    continues the job writes the next one.

    Attributes:
        job_id: The job, as sinks know it.
        batch_id: The last complete micro-batch, as sinks count them; -1: there is none.
        programs: The descriptions of the programs that wrote the state, the last one last.
        sources: The positions of the sources, by uid.
        sinks: The sinks of the last program, by uid.
        keys: Samples of keys (``KeySample``), with which a changed key selector is noticed.
        fields: The names of the function fields in the state, by uid.
        holding: The uids of operators that hold back records behind an aligned watermark.
        ended: The uids of the sources that have ended.
        replays: The dead letters that the job has processed again, or processes again when it continues.
        has_begun_next: Whether the job had begun a further micro-batch, so that sinks may have a part of it.
        savepoint: The savepoint from which the user started the job, or None.
        version: The version of the format.
        dsv2: The version of dsv2 that wrote the record.
    """

    job_id: str
    batch_id: int
    programs: Annotated[Sequence[ProgramDescription], Meta(min_length=1)]
    sources: Mapping[str, SourcePosition] = {}
    sinks: Mapping[str, SinkRecord] = {}
    keys: Sequence[KeySample] = []
    fields: Mapping[str, Sequence[str]] = {}
    holding: Sequence[str] = []
    ended: Sequence[str] = []
    replays: Replays = msgspec.field(default_factory=Replays)
    has_begun_next: bool = False
    savepoint: str | None = None
    version: int = RECORD_VERSION
    dsv2: str = __version__

    @property
    def program(self) -> ProgramDescription:
        """The last program."""
        return self.programs[-1]

    @property
    def job_name(self) -> str:
        """The name of the job."""
        return self.program.job_name

    @property
    def offsets(self) -> dict[str, JsonObject]:
        """The offset of each source, by uid."""
        return {uid: source.offset for uid, source in self.sources.items()}

    @property
    def origin(self) -> Origin:
        """The job and the micro-batch."""
        return Origin(self.job_name, self.job_id, self.batch_id)

    def file_folders(self) -> list[tuple[str, str]]:
        """Return the uids of the sinks, and the folders of those that write files."""
        return [(uid, sink.folder) for uid, sink in self.sinks.items()]


def new_record(plan: Plan, job_id: str) -> JobRecord:
    """Return the record of a job that has not run."""
    return JobRecord(job_id=job_id, batch_id=-1, programs=[describe(plan)])


def sinks_of(plan: Plan, folders: Mapping[str, str] | None = None) -> dict[str, SinkRecord]:
    """Return the sinks of a program, by uid. They may change freely, so they are no part of its description.

    ``folders``: The folders to which file sinks write, by uid.
    """
    return {
        operator.uid: SinkRecord(
            class_name(operator),
            operator.body.describe_target(),
            operator.body.exactly_once,
            (folders or {}).get(operator.uid, ""),
        )
        for operator in plan.operators
        if isinstance(operator.body, Sink)
    }


R = TypeVar("R", bound=JobRecord)


def extended(kind: type[R], record: JobRecord, **parts: Any) -> R:
    """Return ``record`` as a record of a certain kind, with more parts."""
    shared = {name: getattr(record, name) for name in JobRecord.__struct_fields__}
    return kind(**shared, **parts)


def converted(kind: type[R], entry: JsonObject, place: str) -> R:
    """Return the record in a JSON object, which anybody may have written.

    Args:
        kind: Its kind.
        entry: The object.
        place: Its file, for errors.

    Raises:
        IncompatibleCheckpointError: It has a version that is not known here.
        ValueError: It is damaged; names the part.
    """
    version = entry.get("version")
    if isinstance(version, int) and version != RECORD_VERSION:
        raise IncompatibleCheckpointError(
            f"{place} has format version {version}, and this version of dsv2 ({__version__}) reads version "
            f"{RECORD_VERSION}. Use the version of dsv2 that wrote it ({entry.get('dsv2')})."
        )
    for part in kind.__struct_fields__:
        if part not in entry:
            raise ValueError(f"its part {part!r} is missing")
    record = msgspec.convert(entry, kind)
    for uid, source in record.sources.items():
        counts = [source.offset[name] for name in ("position", "batch") if name in source.offset]
        check_part(f"the position of {uid!r}", source.offset, all(type(count) is int for count in counts))
    check_part("holding", record.holding, set(record.holding) <= record.program.operators.keys())
    return record


def check_part(part: str, value: Any, valid: bool) -> None:
    """Raise ``ValueError`` if a part of a record is not valid."""
    if not valid:
        raise ValueError(f"{part} cannot be {str(value)[:200]!r}")
