"""Edits of a savepoint, as they change its rows. They can be pickled, because Spark applies them in its tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dsv2.checkpoint.program import StateDescription
from dsv2.checkpoint.value_shapes import misfit
from dsv2.errors import CorruptDataError, Dsv2Error, JobError
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.placeholders import StandIns
from dsv2.runtime.serde.references import Reference
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.fields import KEPT
from dsv2.runtime.state.handles import Handle
from dsv2.runtime.state.migrations import split_name
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.tables import TableId, without_expiry

EditRow: TypeAlias = Callable[[str, StateRow], tuple[str, StateRow] | None]
"""Returns the uid and the row that replace a row; None if it is dropped."""

_EXPIRY = "expiry"


class Edit(ABC):
    """One edit. It sees the names that the edits before it have given."""

    @abstractmethod
    def touches(self, table: TableId) -> bool:
        """Return whether the edit may change rows of ``table``, in more than the uid of their operator."""

    def moved(self, table: TableId) -> TableId | None:
        """Return the table that ``table`` becomes; None if it is dropped."""
        return table

    @abstractmethod
    def begin(self) -> EditRow:
        """Return a function that edits rows. Called once in each process or task."""


def edit_rows(edits: Sequence[Edit]) -> EditRow:
    """Return a function that applies ``edits`` in order."""
    steps = [edit.begin() for edit in edits]

    def edited(uid: str, row: StateRow) -> tuple[str, StateRow] | None:
        found: tuple[str, StateRow] | None = uid, row
        for step in steps:
            if found is None:
                return None
            found = step(*found)
        return found

    return edited


@dataclass(frozen=True)
class RenameOperator(Edit):
    """Gives an operator another uid."""

    old: str
    new: str

    def touches(self, table: TableId) -> bool:
        return table.kind == RowKind.EDGE

    def moved(self, table: TableId) -> TableId | None:
        return replace(table, uid=self.new) if table.uid == self.old else table

    def begin(self) -> EditRow:
        codec = Codec(StandIns())
        renamed = {self.old: self.new}

        def edit(uid: str, row: StateRow) -> tuple[str, StateRow]:
            if row.kind is RowKind.EDGE:
                (sender, output, target, number), position = _decoded(codec, uid, row)
                name = renamed.get(sender, sender), output, renamed.get(target, target), number
                row = row._replace(value=codec.dumps((name, position)))
            return renamed.get(uid, uid), row

        return edit


@dataclass(frozen=True)
class DropOperator(Edit):
    """Drops an operator, and the positions of the edges to it, so that it is a new consumer if it comes back."""

    uid: str

    def touches(self, table: TableId) -> bool:
        return table.kind == RowKind.EDGE

    def moved(self, table: TableId) -> TableId | None:
        return None if table.uid == self.uid else table

    def begin(self) -> EditRow:
        codec = Codec(StandIns())

        def edit(uid: str, row: StateRow) -> tuple[str, StateRow] | None:
            if uid == self.uid:
                return None
            if row.kind is RowKind.EDGE:
                (_, _, target, _), _ = _decoded(codec, uid, row)
                return None if target == self.uid else (uid, row)
            return uid, row

        return edit


@dataclass(frozen=True)
class RenameState(Edit):
    """Renames a state, and the references to it in fields of the function."""

    uid: str
    old: str
    new: str

    def touches(self, table: TableId) -> bool:
        return table.uid == self.uid and (table.kind == RowKind.PART or _is_of(table.kind, table.state, self.old))

    def moved(self, table: TableId) -> TableId | None:
        if not _is_of(table.kind, table.state, self.old) or table.uid != self.uid:
            return table
        return replace(table, state=self._renamed(table.state))

    def _renamed(self, stored: str | None) -> str:
        assert stored is not None
        return f"{self.new}{stored.removeprefix(self.old)}"

    def begin(self) -> EditRow:
        fields = _References(self.old, self.new)

        def edit(uid: str, row: StateRow) -> tuple[str, StateRow]:
            if uid == self.uid:
                if _is_of(row.kind, row.state, self.old):
                    row = row._replace(state=self._renamed(row.state))
                elif row.kind is RowKind.PART and row.state == "fields":
                    row = row._replace(value=fields.renamed(uid, row))
            return uid, row

        return edit


@dataclass(frozen=True)
class DropState(Edit):
    """Drops a state. The function still knows the keys that had a value.

    Attributes:
        uid: The operator.
        name: The state.
        was_last_to_expire: Whether it had a time to live, and no other state of the operator has one.
    """

    uid: str
    name: str
    was_last_to_expire: bool

    def touches(self, table: TableId) -> bool:
        is_of_timers = self.was_last_to_expire and table.kind == RowKind.TIMERS
        return table.uid == self.uid and (is_of_timers or _is_of(table.kind, table.state, self.name))

    def moved(self, table: TableId) -> TableId | None:
        if table.uid != self.uid or not _is_of(table.kind, table.state, self.name):
            return table
        return TableId(table.uid, RowKind.KEY, None) if table.kind.has_key else None

    def begin(self) -> EditRow:
        def edit(uid: str, row: StateRow) -> tuple[str, StateRow] | None:
            if uid == self.uid:
                if _is_of(row.kind, row.state, self.name):
                    return _without_value(uid, row)
                if self.was_last_to_expire and row.kind is RowKind.TIMERS and row.state == _EXPIRY:
                    return None
            return uid, row

        return edit


@dataclass(frozen=True)
class FilterKeys(Edit):
    """Drops everything that belongs to keys for which ``keep`` is false."""

    uid: str
    keep: Callable[[Any], object]
    types: TypeRegistry

    def touches(self, table: TableId) -> bool:
        return table.uid == self.uid and table.kind.has_key

    def begin(self) -> EditRow:
        codec = Codec(self.types)

        def edit(uid: str, row: StateRow) -> tuple[str, StateRow] | None:
            if uid != self.uid or row.key is None:
                return uid, row
            key = _loaded(codec, row.key, f"A key of {uid}")
            return (uid, row) if _call(f"filter_keys({uid!r})", key, self.keep, key) else None

        return edit


@dataclass(frozen=True)
class ConvertState(Edit):
    """Replaces the values of a state by what ``convert`` returns for key and value.

    Attributes:
        uid: The operator.
        stored: The stored name of the state.
        convert: The function.
        types: The classes of keys and values.
        renamed: The stored name of the new values.
        declared: The state of the new values.
    """

    uid: str
    stored: str
    convert: Callable[[Any, Any], Any]
    types: TypeRegistry
    renamed: str
    declared: StateDescription

    def touches(self, table: TableId) -> bool:
        return table.uid == self.uid and table.kind.is_of_state and table.state == self.stored

    def moved(self, table: TableId) -> TableId | None:
        return replace(table, state=self.renamed) if self.touches(table) else table

    def begin(self) -> EditRow:
        codec = Codec(self.types)

        def edit(uid: str, row: StateRow) -> tuple[str, StateRow] | None:
            if uid != self.uid or not row.kind.is_of_state or row.state != self.stored:
                return uid, row
            owner = f"State {split_name(self.stored)[0]!r} of {uid}"
            key = None if row.key is None else _loaded(codec, row.key, owner)
            assert row.value is not None
            before = _loaded(codec, row.value, owner)
            value = without_expiry(before) if row.kind is RowKind.EXPIRING else before
            after = self._converted(key, value)
            if after is None or (self.declared.holds_several_values and not after):
                return _without_value(uid, row)
            stored = _with_expiry(after, before) if row.kind is RowKind.EXPIRING else after
            return uid, row._replace(state=self.renamed, value=codec.dumps(stored))

        return edit

    def _converted(self, key: Any, value: Any) -> Any:
        what = f"map_state({self.uid!r}, {split_name(self.stored)[0]!r})"
        after = _call(what, key, self.convert, key, value)
        reason = None if after is None else misfit(after, self.declared.shape, self.declared.classes)
        if reason is not None:
            raise JobError(f"{what}: the value that the function returned for the key {shorten(key)}: {reason}.")
        return after


class _References:
    """Renames the references to a state in the fields of a function."""

    def __init__(self, old: str, new: str) -> None:
        self._codec = Codec(StandIns())
        self._references = {**KEPT, Handle.reference_kind: self._reference}
        self._old = old
        self._new = new
        self._found = False

    def renamed(self, uid: str, row: StateRow) -> bytes | None:
        """Return the value of a row with the fields of a function."""
        data = _decoded(self._codec, uid, row)
        return self._codec.dumps(self._in_fields(data)) if isinstance(data, bytes) else row.value

    def _in_fields(self, data: bytes) -> bytes:
        self._found = False
        state = self._codec.loads(data, "Fields of a function", self._references)
        if self._found:
            return self._codec.dumps(state)
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], bytes):  # of a wrapped function
            try:
                return self._codec.dumps((self._in_fields(state[0]), state[1]))
            except CorruptDataError:
                return data
        return data

    def _reference(self, name: str) -> Reference:
        if name == self._old:
            self._found = True
            name = self._new
        kept: Reference = KEPT[Handle.reference_kind](name)
        return kept


def _is_of(kind: RowKind, stored: str | None, name: str) -> bool:
    return kind.is_of_state and stored is not None and split_name(stored)[0] == name


def _without_value(uid: str, row: StateRow) -> tuple[str, StateRow] | None:
    """The key alone, because a function may visit all keys that it has seen; nothing for a state of the subtask."""
    return None if row.key is None else (uid, StateRow(row.subtask, RowKind.KEY, None, row.key, None))


def _with_expiry(after: Any, before: Any) -> Any:
    """New values expire with those that they replace, other ones with the last of them."""
    if isinstance(before, list):
        last = max(expiry for _, expiry in before)
        expiries = [expiry for _, expiry in before] if len(after) == len(before) else [last] * len(after)
        return list(zip(after, expiries, strict=True))
    if isinstance(before, dict):
        last = max(expiry for _, expiry in before.values())
        return {key: (value, before[key][1] if key in before else last) for key, value in after.items()}
    return after, before[1]


def _decoded(codec: Codec, uid: str, row: StateRow) -> Any:
    if row.value is None:
        raise CorruptDataError(f"State of {uid}, subtask {row.subtask}: a row has no value.")
    return codec.loads(row.value, f"State of {uid}, subtask {row.subtask}")


def _loaded(codec: Codec, data: bytes, owner: str) -> Any:
    try:
        return codec.loads(data, owner)
    except CorruptDataError as error:
        raise CorruptDataError(f"{error} To edit a savepoint, name its classes: edit(types=[...]).") from error


def _call(what: str, key: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Dsv2Error:
        raise
    except Exception as error:
        raise JobError(
            f"{what}: the function raised {type(error).__name__} for the key {shorten(key)}: {error}"
        ) from error
