"""The start of a local run: with empty state, with a savepoint, or from its checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from uuid import uuid4

from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.description import Description, describe
from dsv2.checkpoint.dropped_state import dropped_state
from dsv2.checkpoint.file_folders import folders_of
from dsv2.checkpoint.key_samples import KeySample, readable_samples
from dsv2.checkpoint.restart import refusal, refuse_or_warn_of_dropped, restart_differences
from dsv2.checkpoint.savepoint_check import carried_differences, lost_records, warn_of_dropped
from dsv2.checks.paths import local_folder
from dsv2.dead_letters.replay import Replays, pending_replay
from dsv2.errors import IncompatibleCheckpointError
from dsv2.file_log.completion import has_batch
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.jobs.handle import RunOptions
from dsv2.local.checkpoint import StoredBatch
from dsv2.local.letters import job_letters
from dsv2.local.state_rows import state_rows
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.sources.continuation import check_kind
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import SourcePosition
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.source_positions import replayed
from dsv2.savepoint.start import check_began_with, check_next_batch, check_start
from dsv2.sinks.paths import normalized

_ONLY_LOCAL = "The local runtime cannot reach other file systems. Copy it to the local disk, or use Spark."
_LOG = logging.getLogger(__name__)


def on_disk(path: str | PathLike[str]) -> LocalFolder:
    """Open a folder. Raises ``ConfigurationError`` if it is on another file system."""
    return local_folder(path, _ONLY_LOCAL)


@dataclass(frozen=True)
class State:
    """The state with which a run begins. ``rows`` returns that of an operator; ``program`` wrote it to ``place``."""

    program: Description
    rows: Callable[[str], Iterable[StateRow]]
    place: str


@dataclass(frozen=True)
class LocalStart:
    """The start of a run.

    Attributes:
        job_id: The job, as sinks know it.
        checkpoint_id: The checkpoint.
        batch_id: The number of its first micro-batch.
        state: The state. None: it is empty.
        earlier: The programs that wrote the state, the last one last.
        positions: Where the sources continue, by uid. Others start at their beginning.
        keys: Samples of keys.
        replays: The dead letters that the job has processed again after its first micro-batch.
        savepoint: The savepoint from which the user started the job, or None.
        now_ms: The time that the job has reached, in ms.
        is_new: Whether the checkpoint has no micro-batch.
        complete: Whether all input has been processed to its end.
        pending: The last micro-batch, if it is not known whether the sinks have it, with the records that they lack.
        former_folders: The sinks of the earlier program, by uid, and the folders of those that write files.
    """

    job_id: str
    checkpoint_id: str
    batch_id: int = 0
    state: State | None = None
    earlier: Sequence[Description] = ()
    positions: Mapping[str, SourcePosition] = field(default_factory=dict)
    keys: Sequence[KeySample] = ()
    replays: Replays = field(default_factory=Replays)
    savepoint: str | None = None
    now_ms: int = 0
    is_new: bool = True
    complete: bool = False
    pending: StoredBatch | None = None
    former_folders: Sequence[tuple[str, str]] = ()


def beginning_of(
    plan: Plan, options: RunOptions, job_id: str, stored: StoredBatch | None = None, *, is_written: bool = True
) -> LocalStart:
    """Decide where a run begins.

    Args:
        plan: The program.
        options: The options of the start.
        job_id: Identifies the job if it is a new one.
        stored: The last micro-batch of the checkpoint, or None.
        is_written: Whether the sinks have it.

    Raises:
        ConfigurationError: The checkpoint did not begin with the savepoint of ``options``, that folder is not a
            savepoint, or the position of a source does not fit.
        IncompatibleCheckpointError: The program cannot continue from the state.
        CorruptDataError: The state is damaged.
    """
    savepoint = None if options.savepoint is None else on_disk(options.savepoint).path
    if stored is not None:
        if savepoint is not None:
            check_began_with(str(options.checkpoint_location), stored.savepoint, savepoint)
        pending = None if is_written else _pending(plan, stored, allow_dropped_state=options.allow_dropped_state)
        return _from_checkpoint(plan, options, stored, pending)
    if savepoint is not None:
        return _from_savepoint(plan, options, savepoint, job_id)
    return LocalStart(job_id, str(uuid4()))


def _from_savepoint(plan: Plan, options: RunOptions, path: str, job_id: str) -> LocalStart:
    savepoint = SavepointReader(on_disk(path))
    info = savepoint.info
    check_start(plan, savepoint, allow_dropped_state=options.allow_dropped_state)
    _check_sources(plan, info.sources)
    # Without a checkpoint, a run is an experiment, which must not write to the sinks of the job.
    continues = options.checkpoint_location is not None and not options.as_new_job
    if continues:
        check_next_batch(path, plan, info)
    return LocalStart(
        info.origin.job_id if continues else job_id,
        str(uuid4()),
        info.origin.batch_id + 1 if continues else 0,
        State(info.program, savepoint.rows, f"The savepoint {path}"),
        info.programs,
        info.sources,
        info.keys,
        info.replays if continues else Replays(),  # letters belong to a job
        path,
        former_folders=[(uid, sink.folder) for uid, sink in info.sinks.items()] if continues else (),
    )


def _from_checkpoint(plan: Plan, options: RunOptions, stored: StoredBatch, pending: StoredBatch | None) -> LocalStart:
    assert options.checkpoint_location is not None
    _check_program(plan, options, options.checkpoint_location, stored)
    _check_sources(plan, stored.sources)
    codec = Codec(TypeRegistry.of(plan))
    rows: dict[str, list[StateRow]] = {}
    for head, subtask, snapshot in stored.states:
        for uid, row in state_rows(snapshot, subtask, codec, f"State of operator {head!r}, subtask {subtask}"):
            rows.setdefault(uid, []).append(row)
    replays, positions = _add_replays(plan, options, stored, rows)
    return LocalStart(
        stored.job_id,
        stored.checkpoint_id,
        stored.batch_id + 1,
        State(stored.programs[-1], lambda uid: rows.get(uid, []), f"The checkpoint {options.checkpoint_location}"),
        stored.programs,
        positions,
        [sample for sample, _ in readable_samples(plan, stored.keys, codec)],
        replays,
        stored.savepoint,
        stored.now_ms,
        False,
        stored.complete and all(operator.uid in stored.sources for operator in _sources(plan)),
        pending,
        [(uid, sink["folder"]) for uid, sink in stored.sinks.items()],
    )


def _add_replays(
    plan: Plan, options: RunOptions, stored: StoredBatch, rows: dict[str, list[StateRow]]
) -> tuple[Replays, Mapping[str, SourcePosition]]:
    """Add the dead letters to ``rows`` that the job has to process again.

    Returns all that it has then processed again, and the positions of its sources, with the letters of sources.
    """
    letters = job_letters(plan, options, stored.job_id)
    pending = None if letters is None else pending_replay(letters, stored.replays, stored.batch_id + 1)
    if letters is None or pending is None:
        return stored.replays, stored.sources
    found, positions = replayed(plan, pending, stored.sources, stored.ended, None)
    for uid, row in found:
        rows.setdefault(uid, []).append(row)
    if pending.letters:
        _LOG.warning("%s: %d dead letters are processed again.", letters.path, len(pending.letters))
    return pending.after, positions


def _check_program(plan: Plan, options: RunOptions, path: str, stored: StoredBatch) -> None:
    """Compare the program with those that wrote the checkpoint, by the rules for a restart on Spark."""
    types, programs = TypeRegistry.of(plan), stored.programs
    found = restart_differences(plan, programs, describe(plan), types, stored.keys)
    if not found:
        dropped = dropped_state(plan, programs, stored.fields)
        refuse_or_warn_of_dropped(path, dropped, allowed=options.allow_dropped_state)
        return
    if options.on_change == "refuse":
        raise refusal(path, found)
    carried = carried_differences(
        "checkpoint",
        path,
        plan,
        programs,
        [*found, *lost_records(plan, programs[-1], stored.holding)],
        allow_dropped_state=options.allow_dropped_state,
        fields=stored.fields,
    )
    warn_of_dropped(path, carried)
    _LOG.warning("The program has changed: %s. Migrating the checkpoint %s.", "; ".join(map(str, found)), path)


def _check_sources(plan: Plan, positions: Mapping[str, SourcePosition]) -> None:
    for operator in _sources(plan):
        if operator.uid in positions:
            check_kind(operator, positions[operator.uid].offset)


def _sources(plan: Plan) -> list[Operator]:
    return [operator for operator in plan.operators if operator.kind is OperatorKind.SOURCE]


def _pending(plan: Plan, stored: StoredBatch, *, allow_dropped_state: bool) -> StoredBatch:
    """Return the last micro-batch with the records that its sinks may not have.

    If a file sink has moved, its former folder has the micro-batch as a whole or not at all. In that case the new
    folder gets it.

    Raises:
        IncompatibleCheckpointError: A sink that lacks records was removed, or has the folder of another one, which may
            have its own records of the micro-batch. Not if this is allowed.
    """
    sinks = {operator.uid for operator in plan.operators if operator.kind is OperatorKind.SINK}
    before = {uid: normalized(sink["folder"]) for uid, sink in stored.sinks.items() if sink["folder"]}
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
