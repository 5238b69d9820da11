"""The start of a job, decided from its record, the program and the options, without input and output."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from dsv2.checkpoint.description import describe
from dsv2.checkpoint.difference import Difference, listed
from dsv2.checkpoint.differences import differences
from dsv2.checkpoint.dropped_state import dropped_state
from dsv2.checkpoint.history import continued_programs
from dsv2.checkpoint.key_samples import changed_keys, readable_samples
from dsv2.checkpoint.operator_differences import at
from dsv2.checkpoint.program import ProgramDescription
from dsv2.checkpoint.record import JobRecord, SourcePosition, extended, new_record
from dsv2.checkpoint.replayed_letters import replayed
from dsv2.checkpoint.stored_classes import unreadable_classes
from dsv2.dead_letters.replay import PendingReplay, Replays, check_replays
from dsv2.errors import ConfigurationError, DroppedStateWarning, Dsv2Error, IncompatibleCheckpointError
from dsv2.graph import OperatorKind, Plan
from dsv2.jobs.handle import OnChange, RunOptions
from dsv2.runtime.serde.codec import FORMAT_VERSION, Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.sources.continuation import check_kind
from dsv2.runtime.state.rows import StateRow
from dsv2.sinks import Sink
from dsv2.sources import DataFrameSource


class Action(Enum):
    """The beginning of a run."""

    NEW = "with empty state"
    CONTINUE = "with the state as it is"
    MIGRATE = "with a savepoint of the state"
    REFUSE = "not at all"


@dataclass(frozen=True)
class Stored:
    """The stored job from which a start continues.

    Attributes:
        record: The job.
        path: The checkpoint or savepoint, for errors.
        is_savepoint: Whether it is a savepoint.
        is_empty: Whether the checkpoint has no complete micro-batch, so it can start over.
        has_foreign_state: Whether the engine has state that no savepoint contains.
        differences: Differences that the runtime has found.
        pending: The dead letters that the job has to process again; None if there are none.
        replays: The rows of dead letters in a savepoint, each with the uid of its operator.
        discarded: A later attempt to continue, which is discarded. Its sinks may have a part of the next micro-batch.
        asked: The savepoint that the options name, as the runtime opens it.
        key: The key of the job, if its state is signed.
    """

    record: JobRecord
    path: str
    is_savepoint: bool = False
    is_empty: bool = False
    has_foreign_state: bool = False
    differences: Sequence[Difference] = ()
    pending: PendingReplay | None = None
    replays: Iterable[tuple[str, StateRow]] = ()
    discarded: JobRecord | None = None
    asked: str | None = None
    key: bytes | None = None


@dataclass(frozen=True)
class Start:
    """The decision about a start.

    Attributes:
        action: How the run begins.
        record: The job with which it begins: its programs, positions and replays, and the sinks of the former program.
        changes: The differences of the program.
        dropped: Stored states and fields that the program does not use.
        replay: The dead letters that the run processes again. None: there are none, or they wait for the next start.
        rows: These letters, as state, each with the uid of its operator.
        refusal: Why the job does not start.
    """

    action: Action
    record: JobRecord
    changes: Sequence[Difference] = ()
    dropped: Sequence[Difference] = ()
    replay: PendingReplay | None = None
    rows: Sequence[tuple[str, StateRow]] = ()
    refusal: Dsv2Error | None = None

    def check(self) -> None:
        """Raise the refusal, if there is one."""
        if self.refusal is not None:
            raise self.refusal

    def warn_of_dropped(self, path: str) -> None:
        """Warn of the state that is dropped. ``path``: Where it is stored."""
        for difference in (*self.changes, *self.dropped):
            if not difference.drops_state:
                continue
            if difference.location:
                file, _, line = difference.location.rpartition(":")
                warnings.warn_explicit(f"{path}: {difference}.", DroppedStateWarning, file, int(line))
            else:
                warnings.warn(f"{path}: {difference}.", DroppedStateWarning, stacklevel=3)


def decide(stored: Stored | None, plan: Plan, options: RunOptions, job_id: str) -> Start:
    """Decide how a job starts.

    Args:
        stored: The stored job; None: there is none.
        plan: The program.
        options: The options of the start.
        job_id: Identifies the job if it is a new one.
    """
    if stored is None:
        return Start(Action.NEW, new_record(plan, job_id))
    return _Decision(stored, plan, options).start(job_id)


class _Decision:
    def __init__(self, stored: Stored, plan: Plan, options: RunOptions) -> None:
        self._stored = stored
        self._record = record = stored.record
        self._plan = plan
        self._options = options
        self._types = TypeRegistry.of(plan)
        self._now = describe(plan)
        self._samples = readable_samples(plan, record.keys, Codec(self._types))
        self._changes = list(self._changed())
        if stored.has_foreign_state:
            self._changes = [dataclasses.replace(change, carried=False) for change in self._changes]
        self._dropped = list(self._dropped_state())

    def start(self, job_id: str) -> Start:
        try:
            return self._from_savepoint(job_id) if self._stored.is_savepoint else self._from_checkpoint(job_id)
        except Dsv2Error as error:
            return Start(Action.REFUSE, self._record, self._changes, self._dropped, refusal=error)

    def _changed(self) -> Iterator[Difference]:
        """The differences of the program from all that wrote the state."""
        programs = self._record.programs
        yield from dict.fromkeys(change for earlier in programs for change in differences(earlier, self._now))
        yield from self._stored.differences
        yield from unreadable_classes(programs, self._now, self._types)
        yield from changed_keys(self._plan, self._samples)
        for uid in sorted(set(self._record.holding) - {operator.uid for operator in self._plan.operators}):
            place = at(uid, self._record.program.operators[uid].defined_at)
            text = f"{place} was removed, or has another uid, while it holds back records behind an aligned watermark"
            advice = "keep it, or take the savepoint when no channel is blocked"
            yield Difference(uid, text, carried=True, advice=advice, drops_state=True)

    def _dropped_state(self) -> Iterator[Difference]:
        for operator, what in dropped_state(self._plan, self._record.program, self._record.fields):
            place = at(operator.uid, operator.location)
            text = f"{place}: the {self._kind} holds {what}, which the program no longer uses"
            advice = "if it was renamed, the new name begins empty"
            yield Difference(operator.uid, text, True, advice, drops_state=True, location=operator.location)

    @property
    def _kind(self) -> str:
        return "savepoint" if self._stored.is_savepoint else "checkpoint"

    def _from_checkpoint(self, job_id: str) -> Start:
        stored, record, changes, replay = self._stored, self._record, self._changes, self._stored.pending
        self._check_began_with()
        starts_over = stored.is_empty and changes and self._options.on_change is not OnChange.REFUSE
        if not starts_over:
            self._check_carried()
        if stored.discarded is not None:
            self._check_next_batch(stored.discarded)
        if record.has_begun_next and not changes:
            replay = None  # sinks would get other records with the same batch id
        if changes or replay is not None:
            self._check_next_batch(record)
        if starts_over:
            return Start(Action.NEW, replace(record, programs=[self._now]), changes)
        self._check_positions(confirmed=not changes and replay is None)
        rows, sources = self._replayed(replay)
        carries = bool(changes) or replay is not None
        if carries:
            programs = continued_programs(record.programs, self._now)
        else:
            essence = self._now.essence
            programs = [*(one for one in record.programs if one.essence != essence), self._now]
        continued = replace(
            self._continued(programs), sources=sources, replays=record.replays if replay is None else replay.after
        )
        action = Action.MIGRATE if carries else Action.CONTINUE
        return Start(action, continued, changes, self._dropped, replay, rows)

    def _from_savepoint(self, job_id: str) -> Start:
        record, options = self._record, self._options
        self._check_carried()
        check_replays(self._plan, self._stored.replays, self._types, offsets=record.offsets)
        self._check_positions(confirmed=False)
        begun = replace(
            self._continued(continued_programs(record.programs, self._now)),
            fields={},  # subtasks report those that they restore
            holding=[],
            has_begun_next=False,
            savepoint=self._stored.path,
        )
        # Without a checkpoint, a run is an experiment, which must not write to the sinks of the job.
        if options.checkpoint_location is None or options.as_new_job:
            begun = replace(begun, job_id=job_id, batch_id=-1, replays=Replays(), sinks={})  # letters belong to a job
        else:
            self._check_next_batch(record)
        return Start(Action.MIGRATE, begun, self._changes, self._dropped)

    def _continued(self, programs: Sequence[ProgramDescription]) -> JobRecord:
        record = extended(JobRecord, self._record)
        return replace(record, programs=programs, keys=[sample for sample, _ in self._samples])

    def _replayed(
        self, replay: PendingReplay | None
    ) -> tuple[Sequence[tuple[str, StateRow]], Mapping[str, SourcePosition]]:
        if replay is None:
            return (), self._record.sources
        return replayed(self._plan, replay, self._record.sources, self._record.ended, self._stored.key)

    def _check_carried(self) -> None:
        """Check that the state of the program can be carried, and that no state is dropped without permission."""
        found, options, stored = [*self._changes, *self._dropped], self._options, self._stored
        if not stored.is_savepoint and self._record.program.format_version != FORMAT_VERSION:
            advice = (
                "Only the version that wrote it can read it: take a savepoint with that version, and start from it."
            )
        elif not all(difference.carried for difference in found):
            advice = "Undo the changes that a savepoint does not carry"
            advice += "." if stored.is_savepoint else ", or start from a new checkpoint_location with empty state."
        elif self._changes and not stored.is_savepoint and options.on_change is OnChange.REFUSE:
            advice = (
                "Undo the changes, or start with on_change='migrate', which takes a savepoint of this checkpoint and "
                "continues with it."
            )
        elif not options.allow_dropped_state and any(difference.drops_state for difference in found):
            advice = "State would be dropped. To allow this, start with allow_dropped_state=True."
        else:
            return
        verb = "start" if stored.is_savepoint else "continue"
        raise IncompatibleCheckpointError(
            f"This program cannot {verb} from the {self._kind} {stored.path}:\n{listed(found)}\n{advice}"
        )

    def _check_began_with(self) -> None:
        """Check that the checkpoint began with the savepoint that the options name."""
        asked, began_with = self._stored.asked, self._record.savepoint
        if asked is not None and asked != began_with:
            began = "without a savepoint" if began_with is None else f"from the savepoint {began_with}"
            raise ConfigurationError(
                f"The checkpoint {self._stored.path} began {began}, so it cannot start from the savepoint {asked}. Use "
                f"a new checkpoint_location, or omit savepoint to continue from the checkpoint."
            )

    def _check_next_batch(self, record: JobRecord) -> None:
        """Check that the sinks may get other records of a micro-batch that an earlier run has begun.

        ``FileSink``, ``KafkaSink`` and ``PostgresSink`` notice themselves what they have written of it.
        """
        if not record.has_begun_next:
            return
        for operator in self._plan.operators:
            sink = operator.body
            if isinstance(sink, Sink) and not sink.accepts_other_records and operator.uid in record.sinks:
                raise IncompatibleCheckpointError(
                    f"The sink {operator}, defined at {operator.location}, may have written a part of micro-batch "
                    f"{record.batch_id + 1}, {self._why_it_is_not_repeated(record)}"
                )

    def _why_it_is_not_repeated(self, record: JobRecord) -> str:
        if self._stored.is_savepoint:
            return (
                f"which had begun when the savepoint {self._stored.path} was taken. A start from the savepoint may "
                f"give it other records with the same batch id. Start the job once from its checkpoint, which "
                f"completes the micro-batch, and take the savepoint with stop_with_savepoint. If that is impossible, "
                f"start with as_new_job=True and other outputs."
            )
        if record.batch_id < 0:
            otherwise = "start with a new checkpoint_location: no micro-batch is complete"
        else:
            otherwise = "start from a savepoint with as_new_job=True and other outputs"
        return (
            f"which is not complete. The program has changed, so it would get other records with the same batch id. "
            f"Start the program that began this micro-batch once, without the changes: it completes the micro-batch. "
            f"Then start the changed program. If that is impossible, {otherwise}."
        )

    def _check_positions(self, *, confirmed: bool) -> None:
        """Check that the sources can continue. ``confirmed``: Streaming DataFrames continue from Spark's own log."""
        for operator in self._plan.operators:
            if operator.kind is not OperatorKind.SOURCE or operator.uid not in self._record.sources:
                continue
            offset = self._record.sources[operator.uid].offset
            check_kind(operator, offset)
            if confirmed or operator.uid in self._options.continued_sources:
                continue
            if isinstance(operator.body, DataFrameSource) and "streams" in offset:
                raise ConfigurationError(
                    f"The source {operator}, defined at {operator.location}, is a streaming DataFrame, whose position "
                    f"only its own options can set. The savepoint was taken at {offset['streams']}. Set the options so "
                    f"that it starts there, and confirm this with continued_sources=[{operator.uid!r}]."
                )
