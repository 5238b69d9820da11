"""Writes an edited savepoint in this process. Memory is bounded by a file of each table that is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dsv2.base.folders import Folder
from dsv2.checkpoint.folder_kinds import SAVEPOINT_FILE
from dsv2.errors import ConfigurationError
from dsv2.graph import Operator, Plan
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.placeholders import StandIns
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import SavepointInfo
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.row_edits import Edit, edit_rows
from dsv2.savepoint.table_state import GivenState, StateData, local_values
from dsv2.savepoint.tables import SavepointTable, TableId, rows_in
from dsv2.savepoint.writer import SavepointTableWriter, check_unused


@dataclass(frozen=True)
class Given:
    """A state that was given, after a number of edits."""

    after: int
    state: GivenState
    data: StateData


@dataclass(frozen=True)
class Replay:
    """Dead letters to process again, after a number of edits: rows, each with the uid of its operator."""

    after: int
    rows: Sequence[tuple[str, StateRow]]


@dataclass(frozen=True)
class Draft:
    """A savepoint and its edits.

    Attributes:
        info: The edited description.
        types: The classes of keys and values.
        original: The savepoint that is edited; None: there is none.
        edits: The edits of rows, in order.
        given: The states that were given.
        replays: The dead letters to process again.
        plan: The program, if no other has run.
        added: The operators that were added, by uid.
    """

    info: SavepointInfo
    types: TypeRegistry
    original: SavepointReader | None = None
    edits: tuple[Edit, ...] = ()
    given: tuple[Given, ...] = ()
    replays: tuple[Replay, ...] = ()
    plan: Plan | None = None
    added: Mapping[str, Operator] = field(default_factory=dict)

    def tables(self) -> Iterator[tuple[TableId, SavepointTable, bool]]:
        """Return the tables of the original that are left: what each has become, the table, if rows may change."""
        for table in () if self.original is None else self.original.info.tables:
            becomes: TableId | None = table.id
            changes = False
            for edit in self.edits:
                if becomes is not None:
                    changes = changes or edit.touches(becomes)
                    becomes = edit.moved(becomes)
            if becomes is not None:
                yield becomes, table, changes


def write_edited(folder: Folder, draft: Draft) -> None:
    """Write a savepoint.

    Args:
        folder: Where to write. Must be empty.
        draft: What to write.

    Raises:
        ConfigurationError: ``folder`` is in use, or a given value does not fit.
        CorruptDataError: A file of the original is damaged; names it.
        JobError: A function of the user failed.
    """
    check_new_folder(folder, draft)
    files = SavepointTableWriter(folder, draft.info.program, Codec(StandIns()))
    try:
        for becomes, table, changes in draft.tables():
            assert draft.original is not None
            contents = draft.original.contents(table)
            if not changes:
                files.copy(replace(table, id=becomes), (data for _, data in contents))
                continue
            edit = edit_rows(draft.edits)
            for name, data in contents:
                files.add(edited for row in rows_in(data, name) if (edited := edit(table.id.uid, row)) is not None)
        for given in draft.given:
            edit = edit_rows(draft.edits[given.after :])
            rows = given.state.rows(local_values(given.state, given.data))
            files.add(edited for row in rows if (edited := edit(given.state.uid, row)) is not None)
        for replay in draft.replays:
            edit = edit_rows(draft.edits[replay.after :])
            files.add(edited for uid, row in replay.rows if (edited := edit(uid, row)) is not None)
        files.finish(draft.info)
    except BaseException:
        remove_unfinished(folder)
        raise


def check_new_folder(folder: Folder, draft: Draft) -> None:
    """Raise ``ConfigurationError`` if the folder of an edited savepoint is in use, or in that of the original."""
    if draft.original is not None and f"{folder.path}/".startswith(f"{draft.original.folder.path}/"):
        raise ConfigurationError(f"{folder.path} is in the folder of the original savepoint, which must not change.")
    check_unused(folder)


def remove_unfinished(folder: Folder) -> None:
    """Remove what a failed edit has written."""
    folder.delete(SAVEPOINT_FILE)
    folder.remove("state")
