"""``StateDeclarations``: the short way to declare a state (Flink ``StateDeclarations``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

from typing_extensions import TypeForm

from dsv2.state.aggregate import AggregateFunction
from dsv2.state.declaration import (
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    RedistributionMode,
    RedistributionModeChoice,
    RedistributionStrategyChoice,
    ReducingStateDeclaration,
    ValueStateDeclaration,
)
from dsv2.state.ttl import StateTtl

__all__ = ("ListStateBuilder", "MapStateBuilder", "StateDeclarations")

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


class StateDeclarations:
    """Makes declarations of every kind.

    A type is written as in an annotation: ``int``, ``list[str]``, ``Order | None``. Values are not held to it while the
    job runs; type checkers are, and the classes in it are those that a checkpoint may be read back with. ``ttl``: how
    long a value is kept, by default until it is removed. All raise ``StateDeclarationError`` for what cannot be meant.

    >>> StateDeclarations.value_state("count", int, default=0).default
    0
    """

    @overload
    @staticmethod
    def value_state(
        name: str, value_type: TypeForm[T], default: None = None, *, ttl: StateTtl | None = None
    ) -> ValueStateDeclaration[T]: ...
    @overload
    @staticmethod
    def value_state(
        name: str, value_type: TypeForm[T], default: T, *, ttl: StateTtl | None = None
    ) -> ValueStateDeclaration[T, T]: ...
    @staticmethod
    def value_state(name: str, value_type: Any, default: Any = None, *, ttl: StateTtl | None = None) -> Any:
        """One value for each key; ``default`` is what stands for a value that was not stored."""
        return ValueStateDeclaration(name, value_type, default, ttl=ttl)

    @staticmethod
    def list_state(name: str, element_type: TypeForm[T], *, ttl: StateTtl | None = None) -> ListStateDeclaration[T]:
        """A list for each key."""
        return ListStateDeclaration(name, element_type, ttl=ttl)

    @staticmethod
    def list_state_builder(name: str, element_type: TypeForm[T], *, ttl: StateTtl | None = None) -> ListStateBuilder[T]:
        """Start the declaration of a list of any mode; NONE, for each key, unless said otherwise."""
        return ListStateBuilder(ListStateDeclaration(name, element_type, ttl=ttl))

    @staticmethod
    def map_state(
        name: str, key_type: TypeForm[K], value_type: TypeForm[V], *, ttl: StateTtl | None = None
    ) -> MapStateDeclaration[K, V]:
        """A map for each key of the stream."""
        return MapStateDeclaration(name, key_type, value_type, ttl=ttl)

    @staticmethod
    def map_state_builder(name: str, key_type: TypeForm[K], value_type: TypeForm[V]) -> MapStateBuilder[K, V]:
        """Start the declaration of a map that is broadcast."""
        return MapStateBuilder(name, key_type, value_type)

    @staticmethod
    def reducing_state(
        name: str, value_type: TypeForm[T], reduce: Callable[[T, T], T], *, ttl: StateTtl | None = None
    ) -> ReducingStateDeclaration[T]:
        """One value for each key: ``reduce(so_far, added)``."""
        return ReducingStateDeclaration(name, value_type, reduce, ttl=ttl)

    @staticmethod
    def aggregating_state(
        name: str,
        accumulator_type: TypeForm[ACC],
        function: AggregateFunction[IN, ACC, OUT],
        *,
        ttl: StateTtl | None = None,
    ) -> AggregatingStateDeclaration[IN, ACC, OUT]:
        """One accumulator for each key. ``function``: an ``AggregateFunction``, or ``aggregate_of(...)``."""
        return AggregatingStateDeclaration(name, accumulator_type, function, ttl=ttl)


class ListStateBuilder(Generic[T]):
    """Says where a list belongs."""

    def __init__(self, declaration: ListStateDeclaration[T]) -> None:
        self._declaration = declaration

    def redistribute_by(self, strategy: RedistributionStrategyChoice) -> Self:
        """Belong to a subtask (REDISTRIBUTABLE), the elements dealt out by ``strategy``."""
        return self._with(mode=RedistributionMode.REDISTRIBUTABLE, strategy=strategy)

    def redistribute_with_mode(self, mode: RedistributionModeChoice) -> Self:
        """Set the mode."""
        return self._with(mode=mode)

    def build(self) -> ListStateDeclaration[T]:
        """The finished declaration."""
        return self._declaration

    def _with(self, **changes: Any) -> Self:
        return type(self)(dataclasses.replace(self._declaration, **changes))


@dataclasses.dataclass(frozen=True)
class MapStateBuilder(Generic[K, V]):
    """Says where a map belongs."""

    name: str
    key_type: TypeForm[K]
    value_type: TypeForm[V]

    def build(self) -> MapStateDeclaration[K, V]:
        """A map for each key of the stream, as ``map_state``."""
        return MapStateDeclaration(self.name, self.key_type, self.value_type)

    def build_broadcast(self) -> BroadcastStateDeclaration[K, V]:
        """A map that each subtask has a copy of (IDENTICAL)."""
        return BroadcastStateDeclaration(self.name, self.key_type, self.value_type)
