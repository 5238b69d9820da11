"""``SavepointEditor``: changes a savepoint into a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec import structs

from dsv2.checkpoint.column_types import ColumnType
from dsv2.checkpoint.description import describe, describe_state
from dsv2.checkpoint.program import FURTHER, OperatorDescription, StateDescription
from dsv2.checkpoint.record import sinks_of
from dsv2.checkpoint.replayed_letters import with_values
from dsv2.checks.paths import local_folder
from dsv2.dead_letters import StoredLetter
from dsv2.dead_letters.replay import replay_rows, replayed_values
from dsv2.errors import ConfigurationError
from dsv2.graph import OperatorKind, Plan
from dsv2.graph.keys import declared_key
from dsv2.model.context import RuntimeExecutionMode
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.migrations import split_name, stored_name, versioned_name
from dsv2.savepoint.edit_writer import Draft, Given, Replay, write_edited
from dsv2.savepoint.edited_metadata import (
    with_operator,
    with_position,
    with_renamed_operator,
    with_renamed_state,
    with_state,
    without_operator,
    without_state,
)
from dsv2.savepoint.editor_checks import (
    check_callable,
    check_can_hold,
    check_classes,
    check_converted,
    check_declaration,
    check_given,
    check_letters,
    check_versions,
    classes_of_state,
    expiry_of,
    listed,
)
from dsv2.savepoint.metadata import PYTHON_VERSION, SavepointInfo, own_states
from dsv2.savepoint.row_edits import (
    ConvertState,
    DropOperator,
    DropState,
    Edit,
    FilterKeys,
    RenameOperator,
    RenameState,
)
from dsv2.savepoint.source_positions import check_first_position, check_new_position
from dsv2.savepoint.table_state import GivenState, StateData, is_on_spark
from dsv2.state import StateDeclaration
from dsv2.state.types import classes_in
from dsv2.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SavepointEditor:
    """Changes a savepoint into a new one. Create one with ``Savepoint.edit`` or ``bootstrap``.

    Each method returns another editor, with the change; the names in later changes are the new ones. ``write`` writes
    the result. The original savepoint never changes.

    The result continues the job of the original, so exactly-once sinks stay exactly-once.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    @property
    def operators(self) -> Mapping[str, Sequence[str]]:
        """The names of the declared states of each operator, by uid, after the changes so far."""
        return self._draft.info.states

    @property
    def positions(self) -> Mapping[str, Mapping[str, Any]]:
        """The offset of each source, by uid, after the changes so far."""
        return self._draft.info.offsets

    def rename_operator(self, old: str, new: str) -> SavepointEditor:
        """Give an operator or a source another uid.

        Its state, timers, windows and position keep their content. Sinks cannot be renamed, because their outputs
        know them by their uid.

        Raises:
            ConfigurationError: There is no operator ``old``, or there already is one with the uid ``new``.
        """
        self._operator(old)
        if not isinstance(new, str) or not new:
            raise ConfigurationError(f"The uid of an operator is a non-empty string, not {new!r}.")
        if new in self._draft.info.program.operators:
            raise ConfigurationError(f"Operator {old!r} cannot be renamed to {new!r}: there is an operator {new!r}.")
        return self._with(RenameOperator(old, new), with_renamed_operator(self._draft.info, old, new))

    def drop_operator(self, uid: str) -> SavepointEditor:
        """Drop an operator or a source with everything that it holds.

        If the program still has it, it begins as in a new job, and the operators after it get a new sender.

        Raises:
            ConfigurationError: There is no such operator.
        """
        self._operator(uid)
        return self._with(DropOperator(uid), without_operator(self._draft.info, uid))

    def add_operator(self, plan: Plan, uid: str) -> SavepointEditor:
        """Add an operator of a new program, so that ``put_state`` can fill its states.

        It begins as in a new job: ``open`` is called, and each key finds the values that it was given. An operator that
        begins without state need not be added.

        Args:
            plan: The program that will start: ``env.build_plan("the name of the job")``.
            uid: The operator.

        Raises:
            ConfigurationError: The program has no such operator, it is a source or a sink, or the savepoint has it.
        """
        if uid in self.operators:
            raise ConfigurationError(f"There is an operator {uid!r} in the savepoint. Drop it first to replace it.")
        found = next((operator for operator in plan.operators if operator.uid == uid), None)
        if found is None or found.kind in (OperatorKind.SOURCE, OperatorKind.SINK):
            raise ConfigurationError(f"The program has no operator {uid!r} that keeps state.")
        info = with_operator(self._draft.info, uid, describe(plan).operators[uid])
        return SavepointEditor(replace(self._draft, info=info, added={**self._draft.added, uid: found}))

    def rename_state(self, uid: str, old: str, new: str) -> SavepointEditor:
        """Rename a state of an operator.

        Raises:
            ConfigurationError: There is no such operator or state, there already is a state ``new``, or ``old`` is
                kept in windows.
        """
        self._state(uid, old)
        if not isinstance(new, str) or not new or split_name(new) != (new, 1):
            raise ConfigurationError(
                f"The name of a state is a non-empty string that does not end with @ and a number, not {new!r}."
            )
        if any(new in program.states_of(uid) for program in self._draft.info.programs):
            raise ConfigurationError(
                f"State {old!r} of {uid!r} cannot be renamed to {new!r}: there is a state {new!r}."
            )
        return self._with(RenameState(uid, old, new), with_renamed_state(self._draft.info, uid, old, new))

    def drop_state(self, uid: str, name: str) -> SavepointEditor:
        """Drop a state of an operator. Its keys stay known, and so do their timers.

        Raises:
            ConfigurationError: There is no such operator or state, or it is kept in windows.
        """
        self._state(uid, name)
        return self._with(self._dropped(uid, name), without_state(self._draft.info, uid, name))

    def map_state(
        self,
        uid: str,
        name: str,
        convert: Callable[[Any, Any], Any],
        *,
        declaration: StateDeclaration | None = None,
    ) -> SavepointEditor:
        """Replace the values of a state by the results of a function.

        Args:
            uid: The operator.
            name: The state.
            convert: Called with the key and the value, which is a list or dict for a state of several values; returns
                the new value. None removes the value, and so does an empty list or dict for a state of several values.
                For a state of the subtask, such as a broadcast state, the key is None. On Spark it is called in the
                tasks.
            declaration: Declares the new values, if their type or version changes. Name, kind, mode and whether there
                is a time to live must stay.

        Raises:
            ConfigurationError: There is no such operator or state, it is kept in windows, it holds values that the job
                has not yet converted to the current version, or ``declaration`` does not fit.
        """
        before = self._state(uid, name)
        check_callable(convert, "map_state", "(key, value) -> value")
        stored = versioned_name(name, before.version)
        check_versions(uid, name, stored, [table for table, *_ in self._draft.tables()])
        info, after, types, renamed = self._draft.info, before, self._draft.types, stored
        if declaration is not None:
            after = describe_state(declaration)
            check_converted(uid, name, before, after, declaration.name)
            info = with_state(info, uid, name, after)
            types = types.with_classes(classes_of_state(declaration))
            renamed = stored_name(declaration)
        check_classes(uid, name, before.classes, types)
        edit = ConvertState(uid, stored, convert, types, renamed, after)
        return self._with(edit, info)

    def filter_keys(self, uid: str, keep: Callable[[Any], object]) -> SavepointEditor:
        """Keep only some keys of an operator. Values, timers and windows of all other keys are dropped.

        Fields of the function, and records that wait behind an aligned watermark, stay.

        Args:
            uid: The operator.
            keep: Called with a key; returns whether it is kept. On Spark it is called in the tasks.

        Raises:
            ConfigurationError: There is no such operator, or it has no keys.
        """
        if not self._operator(uid).is_keyed:
            raise ConfigurationError(f"Operator {uid!r} has no keys.")
        check_callable(keep, "filter_keys", "(key) -> bool")
        return self._with(FilterKeys(uid, keep, self._draft.types), self._draft.info)

    def set_position(self, uid: str, offset: Mapping[str, Any] | None) -> SavepointEditor:
        """Set where a source continues.

        Args:
            uid: The source.
            offset: The offset, in the form of ``positions``: for a source with splits, change only its splits and its
                enumerator. None: it begins as in a new job.

        Raises:
            ConfigurationError: There is no such source, or it cannot have that position.
        """
        if self._operator(uid).kind is not OperatorKind.SOURCE:
            raise ConfigurationError(f"{uid!r} is not a source, so it has no position.")
        draft = self._draft
        if draft.plan is not None:
            check_first_position(draft.plan, uid, offset)
        elif uid in draft.info.sources:
            check_new_position(uid, draft.info.sources[uid].offset, offset)
        else:
            raise ConfigurationError(
                f"Source {uid!r} has no position in the savepoint. Set where it begins with its own options."
            )
        new = None if offset is None else dict(offset)
        return SavepointEditor(replace(draft, info=with_position(draft.info, uid, new)))

    def put_state(
        self,
        uid: str,
        declaration: StateDeclaration,
        data: StateData,
        *,
        key_type: object = None,
        written_at: datetime | None = None,
    ) -> SavepointEditor:
        """Fill a state with the values of a table, in place of those that it has.

        Args:
            uid: The operator.
            declaration: The state, as the function declares it. It may be new to the operator.
            data: A dict, a ``pyarrow.Table`` or ``pyarrow.dataset.Dataset``, or a DataFrame of pandas or Spark, with
                the columns ``key`` and ``value``. A state of the subtask has the column ``value`` only: one row for
                each subtask, or a single one for a state that is the same in all of them.
            key_type: The class of keys, for keys that are named tuples, dataclasses, enumerations or ``UUID``.
            written_at: When the values count as written. Required for a state with a time to live.

        Raises:
            ConfigurationError: There is no such operator, the operator declares the state differently, a key or a
                value does not fit, or a key occurs twice. Rows of a Spark DataFrame are checked by ``write``.
        """
        operator, draft = self._operator(uid), self._draft
        check_can_hold(uid, operator, declaration)
        described, name = describe_state(declaration), declaration.name
        if name in operator.states:
            check_declaration(uid, name, operator.states[name], described)
        elif draft.plan is not None or uid in draft.added:
            raise ConfigurationError(
                f"Operator {uid!r} declares no state {name!r}. It declares: {listed(operator.states)}."
            )
        key_type = self._key_type(uid) if key_type is None else key_type
        types = draft.types.with_classes({*classes_in(key_type), *classes_of_state(declaration)})
        state = GivenState(
            uid,
            declaration,
            operator.parallelism,
            operator.max_parallelism,
            key_type,
            self._key_column(uid),
            types,
            expiry_of(uid, declaration, written_at),
        )
        if not is_on_spark(data):
            check_given(state, data)
        edits = (*draft.edits, self._dropped(uid, name))
        given = (*draft.given, Given(len(edits), state, data))
        info = with_state(draft.info, uid, name, described)
        return SavepointEditor(replace(draft, edits=edits, given=given, info=info, types=types))

    def replay(self, letters: Iterable[StoredLetter], *, state_key: bytes | None = None) -> SavepointEditor:
        """Let the job process dead letters again, before anything else, when it starts from the result.

        For a checkpoint on Spark use ``dsv2 dead-letters replay`` instead, which needs no savepoint.

        Args:
            letters: Letters from before the savepoint, of the job from which it was taken. See ``DeadLetters``.
            state_key: ``StateKey.value`` of the job, if its state is signed.

        Raises:
            ConfigurationError: A letter has no record, belongs to another job or to a micro-batch after the savepoint,
                was processed again already, or its operator is not in the savepoint.
            CorruptDataError: A letter was changed, or is signed with another key.
        """
        info, chosen = self._draft.info, list(letters)
        check_letters(info, chosen)
        replay = Replay(len(self._draft.edits), replay_rows(chosen, state_key))
        sources = with_values(info.sources, replayed_values(chosen, state_key))
        replays = info.replays.with_more([], [letter.id for letter in chosen])
        info = structs.replace(info, sources=sources, replays=replays)
        return SavepointEditor(replace(self._draft, info=info, replays=(*self._draft.replays, replay)))

    def write(self, path: str | PathLike[str], *, spark: SparkSession | None = None) -> str:
        """Write the savepoint.

        Args:
            path: A folder that does not exist or is empty.
            spark: A session, with which the state is read and written in parallel, and ``path`` may be on any file
                system. None (default): in this process, one file at a time.

        Returns:
            The path.

        Raises:
            ConfigurationError: ``path`` is in use or cannot be used, or rows that were given do not fit.
            CorruptDataError: A file of the original is damaged, or holds values of unknown classes.
            JobError: A function failed, or returned a value of another type. Nothing is left in ``path``.
        """
        draft = self._draft
        info = structs.replace(draft.info, dsv2=__version__, python=PYTHON_VERSION, spark=None)
        if spark is not None:
            write = import_module("runtime_spark.savepoint.edit").write_on_spark
            written: str = write(spark, fspath(path), replace(draft, info=info))
            return written
        if any(is_on_spark(one.data) for one in draft.given):
            raise ConfigurationError("A state was given as a DataFrame of Spark. Use write(path, spark=...).")
        folder = local_folder(path, "Use write(path, spark=...).")
        write_edited(folder, replace(draft, info=info))
        return folder.path

    def __repr__(self) -> str:
        return f"<editor of a savepoint of {self._draft.info.origin.job_name!r}>"

    def _with(self, edit: Edit, info: SavepointInfo) -> SavepointEditor:
        return SavepointEditor(replace(self._draft, edits=(*self._draft.edits, edit), info=info))

    def _operator(self, uid: str) -> OperatorDescription:
        operators = self._draft.info.program.operators
        if uid not in operators:
            raise ConfigurationError(f"There is no operator {uid!r} in the savepoint. It has: {listed(operators)}.")
        return operators[uid]

    def _state(self, uid: str, name: str) -> StateDescription:
        states = self._operator(uid).states
        if name not in states and f"{name}{FURTHER}" not in states:
            raise ConfigurationError(f"Operator {uid!r} has no state {name!r}. It has: {listed(own_states(states))}.")
        if name not in states or name.endswith(FURTHER):
            raise ConfigurationError(
                f"State {name.removesuffix(FURTHER)!r} of {uid!r} is kept in windows, so it cannot be edited."
            )
        return states[name]

    def _dropped(self, uid: str, name: str) -> DropState:
        expiring = [state for state, of in self._operator(uid).states.items() if of.time_to_live]
        return DropState(uid, name, was_last_to_expire=expiring == [name])

    def _key_type(self, uid: str) -> object:
        """The type of keys that the program declares, if it is known."""
        draft = self._draft
        operators = (*draft.added.values(), *(() if draft.plan is None else draft.plan.operators))
        return next((declared_key(operator) for operator in operators if operator.uid == uid), None)

    def _key_column(self, uid: str) -> ColumnType | None:
        """The column type of the keys that the operator has."""
        columns = (table.key for becomes, table, _ in self._draft.tables() if becomes.uid == uid)
        return next((column for column in columns if column is not None), None)


def bootstrap(plan: Plan) -> SavepointEditor:
    """Begin a savepoint for a job that has not run. Fill its states with ``put_state``.

    Operators begin as in a new job: ``open`` is called, and each key finds the values that it was given.

    Args:
        plan: The program: ``env.build_plan("the name of the job")``. Start the job from the savepoint with the same
            pipeline, also with another parallelism.

    Raises:
        ConfigurationError: The job is a BATCH job, which has no state to restore.

    Source: Flink ``SavepointWriter.newSavepoint``.
    """
    if plan.mode is RuntimeExecutionMode.BATCH:
        raise ConfigurationError("A BATCH job has no state to restore, so it cannot start from a savepoint.")
    info = SavepointInfo(job_id=str(uuid4()), batch_id=-1, programs=[describe(plan)], sinks=sinks_of(plan))
    return SavepointEditor(Draft(info, TypeRegistry.of(plan), plan=plan))
