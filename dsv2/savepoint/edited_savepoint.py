"""A savepoint that is being edited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dsv2.graph import Operator, Plan
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import SavepointInfo
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.row_edits import Edit
from dsv2.savepoint.table_state import GivenState, StateData
from dsv2.savepoint.tables import SavepointTable, TableId


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
