"""State that the user gives as a table, as rows of a savepoint. It can be pickled, for the tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dsv2.checkpoint.class_changes import classes_of
from dsv2.checkpoint.column_types import ColumnType, column_type_of_value
from dsv2.checkpoint.description import describe_state
from dsv2.checkpoint.type_shapes import TypeShape, shape_of
from dsv2.checkpoint.value_shapes import misfit
from dsv2.errors import ConfigurationError, InvalidKeyError, SerializationError
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.migrations import stored_name
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.arrow_values import value_maker
from dsv2.savepoint.columns import arrow_type
from dsv2.state import (
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    RedistributionMode,
    StateDeclaration,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame


StateData: TypeAlias = "Mapping[Any, Any] | pa.Table | Dataset | pd.DataFrame | DataFrame"
"""The values of a state by key: a dict, or a table with the columns ``key`` and ``value``."""

Given: TypeAlias = tuple[Any, Any]
"""The key, None for a state of the subtask, and the value of a row of the user's table."""

_ROWS_AT_ONCE = 10_000
_IGNORED = "subtask"  # of a table that ``StateTable`` has returned


@dataclass(frozen=True)
class GivenState:
    """Makes the rows of a state.

    Attributes:
        uid: The operator.
        declaration: The state.
        parallelism: The parallelism of the operator.
        max_parallelism: Its number of key groups.
        key_type: The type of keys; None: as they are.
        key_column: The column type of the keys that the operator has; None: it has none, or they have no column type.
        types: The classes of keys and values.
        expiry: When the values expire, in ms; None: they do not.
    """

    uid: str
    declaration: StateDeclaration
    parallelism: int
    max_parallelism: int
    key_type: object
    key_column: ColumnType | None
    types: TypeRegistry
    expiry: int | None

    @property
    def has_keys(self) -> bool:
        """True if the state belongs to keys."""
        return self.declaration.redistribution_mode is RedistributionMode.NONE

    @property
    def shown(self) -> str:
        """Names the state in errors."""
        return f"State {self.declaration.name!r} of {self.uid!r}"

    def rows(self, given: Iterable[Given]) -> Iterator[StateRow]:
        """Convert and check values.

        Raises:
            ConfigurationError: A key or a value does not fit; names it.
        """
        codec, stored, described = Codec(self.types), stored_name(self.declaration), describe_state(self.declaration)
        make = _checked(self, "value", form_of(self.declaration), described.shape)
        if not self.has_keys:
            yield from self._rows_of_subtasks(given, make, codec, stored)
            return
        make_key = self._key_maker()
        kind = RowKind.KEYED if self.expiry is None else RowKind.EXPIRING
        for key, value in given:
            made_key = make_key(key, key)
            made = make(value, key)
            if described.holds_several_values and not made:
                continue
            yield StateRow(
                self._owner_of(made_key), kind, stored, self._dumped(codec, made_key), self._value(codec, made)
            )

    def _rows_of_subtasks(
        self, given: Iterable[Given], make: Callable[[Any, Any], Any], codec: Codec, stored: str
    ) -> Iterator[StateRow]:
        values = [make(value, number) for number, (_, value) in enumerate(given)]
        is_copied = self.declaration.redistribution_mode is RedistributionMode.IDENTICAL
        most = 1 if is_copied else self.parallelism
        if len(values) > most:
            raise ConfigurationError(
                f"{self.shown} belongs to the subtask. Give a table with at most {most} rows, not {len(values)}."
            )
        for subtask, value in enumerate(values * self.parallelism if is_copied else values):
            if value:
                yield StateRow(subtask, RowKind.SUBTASK_STATE, stored, None, self._dumped(codec, value))

    def _key_maker(self) -> Callable[[Any, Any], Any]:
        if self.key_type is not None:
            return _checked(self, "key", self.key_type, shape_of(self.key_type))

        def plain(key: Any, _: Any) -> Any:
            if isinstance(key, dict):
                if list(key) != [f"_{number}" for number in range(1, len(key) + 1)]:
                    raise ConfigurationError(
                        f"{self.shown}: the key {shorten(key)} is a struct. Name its class: key_type=..."
                    )
                key = tuple(key.values())
            try:
                key = value_maker(type(key))(key)
            except ValueError as error:
                raise ConfigurationError(f"{self.shown}: the key {shorten(key)}: {error}.") from error
            return key + 0.0 if isinstance(key, float) else key  # -0.0 is equal to 0.0

        return plain

    def _owner_of(self, key: Any) -> int:
        found = column_type_of_value(key)
        if self.key_column is not None and found != self.key_column:
            raise ConfigurationError(
                f"{self.shown}: the key {shorten(key)} cannot be one of this operator, whose keys are "
                f"{arrow_type(self.key_column)}. If they are of a class, name it: key_type=..."
            )
        try:
            return subtask_of(key, self.max_parallelism, self.parallelism)
        except InvalidKeyError as error:
            raise ConfigurationError(f"{self.shown}: the key {shorten(key)}: {error}") from error

    def _value(self, codec: Codec, value: Any) -> bytes:
        if self.expiry is not None:
            if isinstance(self.declaration, ListStateDeclaration):
                value = [(element, self.expiry) for element in value]
            elif isinstance(self.declaration, MapStateDeclaration):
                value = {key: (element, self.expiry) for key, element in value.items()}
            else:
                value = value, self.expiry
        return self._dumped(codec, value)

    def _dumped(self, codec: Codec, value: Any) -> bytes:
        try:
            return codec.dumps(value)
        except SerializationError as error:
            raise ConfigurationError(f"{self.shown}: {shorten(value)} cannot be stored. {error}") from error


def _checked(state: GivenState, what: str, form: object, shape: TypeShape) -> Callable[[Any, Any], Any]:
    make, classes = value_maker(form), classes_of([form])

    def checked(given: Any, key: Any) -> Any:
        value, reason = None, "it is null" if given is None else None
        try:
            if reason is None:
                value = make(given)
                reason = misfit(value, shape, classes)
        except Exception as error:  # of the constructor of a class, or a part that is missing
            reason = f"{shorten(given)} cannot be converted: {type(error).__name__}: {error}"
        if reason is not None:
            raise ConfigurationError(f"{state.shown}: the {what} of the row with the key {shorten(key)}: {reason}.")
        return value

    return checked


def form_of(declaration: StateDeclaration) -> object:
    """Return the type of a stored value of a state."""
    if isinstance(declaration, ListStateDeclaration):
        return GenericAlias(list, declaration.types)
    if isinstance(declaration, MapStateDeclaration | BroadcastStateDeclaration):
        return GenericAlias(dict, declaration.types)
    return declaration.types[0]


def is_on_spark(data: StateData) -> bool:
    """Return whether ``data`` is a DataFrame of Spark."""
    return type(data).__module__.startswith("pyspark.sql")


def columns_of(state: GivenState, names: Iterable[str]) -> list[str]:
    """Return the columns that a table for ``state`` is read from. Raises ``ConfigurationError`` for another table."""
    needed = ["key", "value"] if state.has_keys else ["value"]
    found = list(names)
    if sorted(name for name in found if name != _IGNORED) != needed:
        raise ConfigurationError(
            f"{state.shown}: the table must have the columns {', '.join(needed)}, and has {', '.join(found) or 'none'}."
        )
    return needed


def local_values(state: GivenState, data: StateData) -> Iterator[Given]:
    """Iterate over data in the memory of this process, or in a dataset of files. It may be called again.

    Raises:
        ConfigurationError: ``data`` is of another type, or has other columns.
    """
    if isinstance(data, Mapping):
        if not state.has_keys:
            raise ConfigurationError(f"{state.shown} belongs to the subtask. Give a table with the column value.")
        yield from data.items()
        return
    for batch in _batches(state, data):
        columns = [batch.column(name).to_pylist() for name in columns_of(state, batch.schema.names)]
        yield from zip(*columns, strict=True) if state.has_keys else ((None, value) for value in columns[0])


def _batches(state: GivenState, data: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if isinstance(data, pa.Table):
        columns_of(state, data.schema.names)
        yield from data.to_batches(_ROWS_AT_ONCE)
    elif type(data).__module__.startswith("pyarrow") and hasattr(data, "scanner"):
        columns_of(state, data.schema.names)
        yield from cast("Dataset", data).to_batches(batch_size=_ROWS_AT_ONCE)
    elif type(data).__module__.startswith("pandas"):
        try:
            table = pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ConfigurationError(f"{state.shown}: the pandas DataFrame is no Arrow table: {error}") from error
        yield from _batches(state, table)
    else:
        raise ConfigurationError(
            f"{state.shown}: give a dict, a pyarrow Table or Dataset, or a DataFrame of pandas or Spark, not "
            f"{type(data).__name__}."
        )
