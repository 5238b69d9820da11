"""``StateDeclarations``: factory methods for state declarations (Flink ``StateDeclarations``)."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, Self, Unpack

from typing_extensions import TypeForm

from dsv2.base.type_variables import K, T, V
from dsv2.state.declaration import (
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    RedistributionMode,
    RedistributionModeChoice,
    RedistributionStrategyChoice,
    ReducingStateDeclaration,
    StateOptions,
    ValueStateDeclaration,
    VersionOptions,
)


class StateDeclarations:
    """Creates state declarations.

    Types are given as in an annotation: ``int``, ``list[str]``, ``Order | None``. They are not checked while the job
    runs. Type checkers use them, and their classes are allowed when a checkpoint is read. ``ttl`` is how long a value
    is kept; by default it is kept until it is removed. ``version`` and ``migrate`` convert values that an earlier
    program has stored; see ``StateDeclaration``. All methods raise ``StateDeclarationError`` for invalid arguments.

    Examples:
        >>> StateDeclarations.value_state("count", int, default=0).default
        0
    """

    value_state = ValueStateDeclaration
    """Declare one value per key. ``default`` is returned if no value is stored."""

    map_state = MapStateDeclaration
    """Declare a map per key of the stream."""

    reducing_state = ReducingStateDeclaration
    """Declare one value per key that added values are reduced to: ``reduce(current, added)``."""

    aggregating_state = AggregatingStateDeclaration
    """Declare one accumulator per key. ``function`` is an ``AggregateFunction`` or ``aggregate_of(...)``."""

    @staticmethod
    def list_state(name: str, element_type: TypeForm[T], **options: Unpack[StateOptions]) -> ListStateDeclaration[T]:
        """Declare a list per key."""
        return ListStateDeclaration(name, element_type, **options)

    @staticmethod
    def list_state_builder(
        name: str, element_type: TypeForm[T], **options: Unpack[StateOptions]
    ) -> ListStateBuilder[T]:
        """Start the declaration of a list of any mode. The default mode is NONE: a list per key."""
        return ListStateBuilder(ListStateDeclaration(name, element_type, **options))

    @staticmethod
    def map_state_builder(
        name: str, key_type: TypeForm[K], value_type: TypeForm[V], **options: Unpack[VersionOptions]
    ) -> MapStateBuilder[K, V]:
        """Start the declaration of a map, per key or as broadcast state."""
        return MapStateBuilder(name, key_type, value_type, options)


class ListStateBuilder(Generic[T]):
    """Builds the declaration of a list: per key, or per subtask."""

    def __init__(self, declaration: ListStateDeclaration[T]) -> None:
        self._declaration = declaration

    def redistribute_by(self, strategy: RedistributionStrategyChoice) -> Self:
        """Set the mode to REDISTRIBUTABLE: a list per subtask, redistributed by ``strategy``."""
        return self._with(mode=RedistributionMode.REDISTRIBUTABLE, strategy=strategy)

    def redistribute_with_mode(self, mode: RedistributionModeChoice) -> Self:
        """Set the redistribution mode."""
        return self._with(mode=mode)

    def build(self) -> ListStateDeclaration[T]:
        """Build the declaration."""
        return self._declaration

    def _with(self, **changes: Any) -> Self:
        return type(self)(dataclasses.replace(self._declaration, **changes))


@dataclasses.dataclass(frozen=True)
class MapStateBuilder(Generic[K, V]):
    """Builds the declaration of a map: per key, or per subtask as broadcast state."""

    name: str
    key_type: TypeForm[K]
    value_type: TypeForm[V]
    options: VersionOptions

    def build(self) -> MapStateDeclaration[K, V]:
        """Build the declaration of a map per key of the stream, as ``map_state``."""
        return MapStateDeclaration(self.name, self.key_type, self.value_type, **self.options)

    def build_broadcast(self) -> BroadcastStateDeclaration[K, V]:
        """Build the declaration of broadcast state: a map with a copy in each subtask (IDENTICAL)."""
        return BroadcastStateDeclaration(self.name, self.key_type, self.value_type, **self.options)
