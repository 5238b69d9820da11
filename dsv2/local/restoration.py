"""The start of a local run: with empty state, with a savepoint, or from its checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from uuid import uuid4

from msgspec.structs import replace

from dsv2.base.folders import LocalFolder
from dsv2.base.quantities import counted
from dsv2.checkpoint.file_folders import folders_of
from dsv2.checkpoint.program import ProgramDescription
from dsv2.checkpoint.record import JobRecord
from dsv2.checkpoint.start import Action, Start, Stored, decide
from dsv2.checks.paths import local_folder
from dsv2.dead_letters.replay import pending_replay
from dsv2.errors import IncompatibleCheckpointError
from dsv2.file_log.completion import has_batch
from dsv2.graph import OperatorKind, Plan
from dsv2.jobs.handle import RunOptions
from dsv2.local.checkpoint import LocalCheckpoint, StoredBatch
from dsv2.local.letters import job_letters
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.reader import SavepointReader
from dsv2.sinks.paths import normalized

_ONLY_LOCAL = "The local runtime cannot reach other file systems. Copy it to the local disk, or use Spark."
_LOG = logging.getLogger(__name__)


def on_disk(path: str | PathLike[str], *, durable: bool = True) -> LocalFolder:
    """Open a folder. Raises ``ConfigurationError`` if it is on another file system.

    ``durable``: Whether files are forced to the disk when they are written.
    """
    return local_folder(path, _ONLY_LOCAL, durable=durable)


@dataclass(frozen=True)
class State:
    """The state with which a run begins.

    Attributes:
        program: The program that wrote it.
        rows: Returns the rows of an operator.
        place: Where it is stored.
        is_unchanged: Whether the checkpoint has it in the form in which the program continues.
    """

    program: ProgramDescription
    rows: Callable[[str], Iterable[StateRow]]
    place: str
    is_unchanged: bool = False


@dataclass(frozen=True)
class LocalStart:
    """The start of a run.

    Attributes:
        record: The job with which it begins, with the sinks of the earlier program.
        checkpoint_id: The checkpoint.
        state: The state. None: it is empty.
        now_ms: The time that the job has reached, in ms.
        is_new: Whether the checkpoint has no micro-batch.
        complete: Whether all input has been processed to its end.
        pending: The last micro-batch, if it is not known whether the sinks have it, with the records that they lack.
    """

    record: JobRecord
    checkpoint_id: str
    state: State | None = None
    now_ms: int = 0
    is_new: bool = True
    complete: bool = False
    pending: StoredBatch | None = None

    @property
    def batch_id(self) -> int:
        """The number of its first micro-batch."""
        return self.record.batch_id + 1


def beginning_of(plan: Plan, options: RunOptions, job_id: str, checkpoint: LocalCheckpoint | None = None) -> LocalStart:
    """Read what a run begins with.

    Args:
        plan: The program.
        options: The options of the start.
        job_id: Identifies the job if it is a new one.
        checkpoint: The checkpoint; None: there is none.

    Raises:
        ConfigurationError: The checkpoint did not begin with the savepoint of ``options``, that folder is not a
            savepoint, or the position of a source does not fit.
        IncompatibleCheckpointError: The program cannot continue from the state.
        CorruptDataError: The state is damaged.
    """
    savepoint = None if options.savepoint is None else on_disk(options.savepoint).path
    stored = None if checkpoint is None else checkpoint.last()
    if checkpoint is not None and stored is not None:
        return _from_checkpoint(plan, options, checkpoint, stored, savepoint)
    if savepoint is None:
        return LocalStart(decide(None, plan, options, job_id).record, str(uuid4()))
    reader = SavepointReader(on_disk(savepoint))
    found = Stored(reader.info, savepoint, is_savepoint=True, replays=reader.replays())
    start = decide(found, plan, options, job_id)
    start.check()
    start.warn_of_dropped(savepoint)
    return LocalStart(start.record, str(uuid4()), State(reader.info.program, reader.rows, f"The savepoint {savepoint}"))


def _from_checkpoint(
    plan: Plan, options: RunOptions, checkpoint: LocalCheckpoint, stored: StoredBatch, savepoint: str | None
) -> LocalStart:
    path, letters = checkpoint.folder.path, job_letters(plan, options, stored.job_id)
    replay = None if letters is None else pending_replay(letters, stored.replays, stored.batch_id + 1)
    start = decide(Stored(stored, path, pending=replay, asked=savepoint), plan, options, stored.job_id)
    start.check()
    start.warn_of_dropped(path)
    pending = None if checkpoint.is_written else _pending(plan, stored, allow_dropped_state=options.allow_dropped_state)
    if start.changes:
        _LOG.warning(
            "The program has changed: %s. Migrating the checkpoint %s.", "; ".join(map(str, start.changes)), path
        )
    if letters is not None and replay is not None and replay.letters:
        _LOG.warning("Processing %s again.", counted(len(replay.letters), "dead letter"))
    sources = {operator.uid for operator in plan.operators if operator.kind is OperatorKind.SOURCE}
    return LocalStart(
        start.record,
        stored.checkpoint_id,
        _state_of(plan, checkpoint, stored, start),
        stored.now_ms,
        is_new=False,
        complete=stored.complete and sources <= stored.sources.keys(),
        pending=pending,
    )


def _state_of(plan: Plan, checkpoint: LocalCheckpoint, stored: StoredBatch, start: Start) -> State:
    codec = Codec(TypeRegistry.of(plan))

    def rows(uid: str) -> Iterator[StateRow]:
        for subtask in subtasks:
            yield from (row for _, row in subtask.rows(codec, uid))
        yield from (row for owner, row in start.rows if owner == uid)

    subtasks = checkpoint.subtasks()
    place = f"The checkpoint {checkpoint.folder.path}"
    return State(stored.program, rows, place, is_unchanged=start.action is Action.CONTINUE)


def _pending(plan: Plan, stored: StoredBatch, *, allow_dropped_state: bool) -> StoredBatch:
    """Return the last micro-batch with the records that its sinks may not have.

    If a file sink has moved, its former folder has the micro-batch as a whole or not at all. In that case the new
    folder gets it.

    Raises:
        IncompatibleCheckpointError: A sink that lacks records was removed, or has the folder of another one, which may
            have its own records of the micro-batch. Not if this is allowed.
    """
    sinks = {operator.uid for operator in plan.operators if operator.kind is OperatorKind.SINK}
    before = {uid: normalized(folder) for uid, folder in stored.file_folders() if folder}
    now = {uid: normalized(folder) for uid, folder in folders_of(plan, on_disk).items()}
    moved = {uid for uid, folder in before.items() if now.get(uid) != folder}
    complete = {uid for uid in moved if has_batch(on_disk(before[uid]), stored.batch_id)}
    lacking = {output.uid for output in stored.outputs} - complete
    exchanged = {uid for uid in moved & lacking if now.get(uid) in before.values()}
    if (dropped := sorted((lacking - sinks) | exchanged)) and not allow_dropped_state:
        uid = dropped[0]
        change = "now writes to the folder of another sink" if uid in exchanged else "no longer has"
        where = f" in {before[uid]}" if uid in before else ""
        raise IncompatibleCheckpointError(
            f"The checkpoint holds records of micro-batch {stored.batch_id} for the sink {uid!r}{where}, which the "
            f"program {change}. Start the program that wrote them once more, which completes the micro-batch. "
            f"To drop the records, start with allow_dropped_state=True."
        )
    outputs = [output for output in stored.outputs if output.uid in lacking - exchanged]
    return replace(stored, outputs=outputs)
