"""Checks of what the methods of ``SavepointEditor`` are called with, before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime

from dsv2.base.callables import takes
from dsv2.checkpoint.class_changes import Classes
from dsv2.checkpoint.program import OperatorDescription, StateDescription
from dsv2.checkpoint.type_shapes import shown
from dsv2.dead_letters import StoredLetter
from dsv2.dead_letters.letter_ids import LetterIds
from dsv2.errors import ConfigurationError
from dsv2.graph import OperatorKind
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.migrations import split_name
from dsv2.savepoint.difference import RowBuckets
from dsv2.savepoint.metadata import SavepointInfo
from dsv2.savepoint.table_state import GivenState, StateData, local_values
from dsv2.savepoint.tables import TableId
from dsv2.state import RedistributionMode, StateDeclaration
from dsv2.state.types import classes_in

_FORM = ("kind", "mode", "time_to_live")


def listed(names: Collection[str]) -> str:
    """Return names for an error."""
    return ", ".join(map(repr, sorted(names))) or "none"


def classes_of_state(declaration: StateDeclaration) -> set[type]:
    """Return the classes that the values of a state may contain."""
    return set[type]().union(*map(classes_in, declaration.types))


def check_callable(function: object, method: str, form: str) -> None:
    """Check the function of an edit."""
    if not callable(function) or not takes(function, form.partition(")")[0].count(",") + 1):
        raise ConfigurationError(f"{method} takes a function {form}, not {function!r}.")


def check_versions(uid: str, name: str, stored: str, tables: Iterable[TableId]) -> None:
    """Check that a state has no values of an earlier version."""
    found = {table.state for table in tables if table.uid == uid and table.kind.is_of_state}
    others = sorted(other for other in found if other and other != stored and split_name(other)[0] == name)
    if others:
        raise ConfigurationError(
            f"State {name!r} of {uid!r} holds values of version {split_name(others[0])[1]}, which the job has not "
            f"converted yet. It does so when it reads them, with migrate=..."
        )


def check_classes(uid: str, name: str, classes: Classes, types: TypeRegistry) -> None:
    """Check that the classes of a state are known."""
    unknown = sorted(kind for kind in classes if types.class_named(kind) is None)
    if unknown:
        raise ConfigurationError(
            f"State {name!r} of {uid!r} holds values of {', '.join(unknown)}. To map them, name the classes: "
            f"edit(types=[...])."
        )


def check_converted(uid: str, name: str, before: StateDescription, after: StateDescription, new_name: str) -> None:
    """Check the declaration of converted values."""
    parts = [("name", name, new_name), *((part, getattr(before, part), getattr(after, part)) for part in _FORM)]
    for part, was, is_now in parts:
        if was != is_now:
            raise ConfigurationError(
                f"State {name!r} of {uid!r}: its {part.replace('_', ' ')} is {was}, and the declaration has {is_now}."
            )
    if after.version < before.version:
        raise ConfigurationError(
            f"State {name!r} of {uid!r}: its version is {before.version}, and the declaration has "
            f"{after.version}. A version only increases."
        )


def check_declaration(uid: str, name: str, before: StateDescription, after: StateDescription) -> None:
    """Check that a declaration is that of the program."""
    for part in (*_FORM, "types", "version"):
        if getattr(before, part) != getattr(after, part):
            was, is_now = (_shown(getattr(of, part)) for of in (before, after))
            raise ConfigurationError(
                f"State {name!r} of {uid!r}: its {part.replace('_', ' ')} is {was}, and the declaration has {is_now}. "
                f"To declare it differently, drop it first: drop_state({uid!r}, {name!r})."
            )


def check_can_hold(uid: str, operator: OperatorDescription, declaration: StateDeclaration) -> None:
    """Check that an operator can have a state."""
    if not isinstance(declaration, StateDeclaration):
        raise ConfigurationError(
            f"put_state takes a declaration, such as StateDeclarations.value_state(...), not {declaration!r}."
        )
    if operator.kind is OperatorKind.SOURCE or operator.stateless:
        raise ConfigurationError(f"Operator {uid!r} is a source, or runs in one, so it has no states.")
    if declaration.redistribution_mode is RedistributionMode.NONE and not operator.is_keyed:
        raise ConfigurationError(f"{declaration} belongs to keys, and operator {uid!r} has none.")


def check_given(state: GivenState, data: StateData) -> None:
    """Convert the values of a table, and check that no key occurs twice."""
    rows = (row._replace(value=None) for row in state.rows(local_values(state, data)))
    with RowBuckets(row for row in rows if row.key is not None) as buckets:
        for of_bucket in buckets:
            keys = Counter(row.key for row in of_bucket)
            if len(keys) < len(of_bucket):
                key = Codec(state.types).loads(keys.most_common(1)[0][0] or b"", state.shown)
                raise ConfigurationError(f"{state.shown}: the key {shorten(key)} occurs twice.")


def expiry_of(uid: str, declaration: StateDeclaration, written_at: datetime | None) -> int | None:
    """Return when given values expire, in ms."""
    ttl = declaration.time_to_live
    if (ttl is None) != (written_at is None):
        needs = "has no time to live, so omit written_at" if ttl is None else "has a time to live: give written_at=..."
        raise ConfigurationError(f"State {declaration.name!r} of {uid!r} {needs}.")
    if ttl is None or written_at is None:
        return None
    if not isinstance(written_at, datetime) or written_at.utcoffset() is None:
        raise ConfigurationError(f"written_at must be a datetime with a time zone, not {written_at!r}.")
    return round(written_at.timestamp() * 1000) + ttl.duration_ms


def _shown(value: object) -> str:
    return ", ".join(map(shown, value)) if isinstance(value, tuple) else str(value)


def check_letters(info: SavepointInfo, letters: Iterable[StoredLetter]) -> None:
    """Check that the job of a savepoint can process dead letters again.

    Raises:
        ConfigurationError: It cannot; the message names the first that it cannot.
    """
    origin, done, seen = info.origin, LetterIds(info.replays.letters), set[str]()
    for letter in letters:
        if letter.obstacle is not None:
            problem = letter.obstacle
        elif letter.job_id != origin.job_id:
            problem = f"it is of the job {letter.job_id}, and the savepoint of {origin.job_id}"
        elif letter.batch_id > origin.batch_id:
            problem = f"the savepoint was taken after micro-batch {origin.batch_id}, so its record is read again"
        elif letter.id in done or letter.id in seen:
            problem = "it was processed again already"
        elif letter.operator not in (info.program.operators if letter.input is not None else info.sources):
            problem = "the savepoint has no such operator"
        else:
            seen.add(letter.id)
            continue
        raise ConfigurationError(f"{letter} cannot be processed again: {problem}.")
