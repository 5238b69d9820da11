"""State declarations: what a state is called, what it holds, and where its parts go when the parallelism changes.

Functions return declarations from ``uses_states`` and give them to ``get_state`` (Flink ``api.common.state``). Each is
a plain frozen dataclass; ``StateDeclarations`` writes the same ones more shortly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, final, overload

from typing_extensions import TypeForm, TypeVar

from dsv2.arguments import as_choice
from dsv2.callables import takes
from dsv2.errors import StateDeclarationError
from dsv2.state.aggregate import AggregateFunction
from dsv2.state.ttl import StateTtl
from dsv2.state.types import check_type, fits

__all__ = (
    "AggregatingStateDeclaration",
    "BroadcastStateDeclaration",
    "ListStateDeclaration",
    "MapStateDeclaration",
    "RedistributionMode",
    "RedistributionModeChoice",
    "RedistributionStrategy",
    "RedistributionStrategyChoice",
    "ReducingStateDeclaration",
    "StateDeclaration",
    "ValueStateDeclaration",
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")
R_co = TypeVar("R_co", covariant=True, default=T | None)

_CODE = {"is_code": True}  # marks fields that are part of the program, and other objects in every process


class RedistributionMode(Enum):
    """Where a state belongs, and so where it goes when the parallelism changes.

    ``NONE``: to a key, and moves with it. ``REDISTRIBUTABLE``: to a subtask; its elements are dealt out anew.
    ``IDENTICAL``: to a subtask; all have the same, and a new one gets a copy.
    """

    NONE = "none"
    REDISTRIBUTABLE = "redistributable"
    IDENTICAL = "identical"


class RedistributionStrategy(Enum):
    """How the elements of REDISTRIBUTABLE lists are dealt out.

    ``SPLIT``: to one subtask each, in turns. ``UNION``: every subtask gets all of them, and keeps what it needs.
    """

    SPLIT = "split"
    UNION = "union"


RedistributionModeChoice: TypeAlias = RedistributionMode | Literal["none", "redistributable", "identical"]
RedistributionStrategyChoice: TypeAlias = RedistributionStrategy | Literal["split", "union"]


@dataclass(frozen=True)
class StateDeclaration(ABC):
    """What all declarations share. ``name`` is case-sensitive and unique within a function.

    Raises ``StateDeclarationError`` for a declaration that cannot be meant.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise StateDeclarationError(f"The name of a state is a non-empty string, not {self.name!r}.")
        for form in self.types:
            check_type(form, str(self))
        if self.time_to_live is not None and not isinstance(self.time_to_live, StateTtl):
            raise StateDeclarationError(f"{self}: a time to live is a StateTtl, not {self.time_to_live!r}.")

    @property
    def redistribution_mode(self) -> RedistributionMode:
        """NONE, unless the declaration can say otherwise and does."""
        return RedistributionMode.NONE

    @property
    @abstractmethod
    def types(self) -> tuple[object, ...]:
        """The types of what is kept, in the order of the parameters."""

    @property
    def time_to_live(self) -> StateTtl | None:
        """How long a value is kept; None: until it is removed."""
        return None

    def matches(self, other: object) -> bool:
        """Whether ``other`` is the same declaration, as far as that can be told without comparing functions."""
        return type(self) is type(other) and all(
            getattr(self, part.name) == getattr(other, part.name)
            for part in fields(self)
            if not part.metadata.get("is_code")
        )

    def __str__(self) -> str:
        return f"{type(self).__name__.removesuffix('Declaration')} {self.name!r}"


@final
@dataclass(frozen=True)
class ValueStateDeclaration(StateDeclaration, Generic[T, R_co]):
    """Declares one value for each key.

    ``default``: what ``value()`` returns where nothing is stored; a mutable one is copied each time. None: there is no
    default. ``ttl``: how long a value is kept.
    """

    value_type: TypeForm[T]
    default: T | None = field(default=None, hash=False)
    ttl: StateTtl | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:  # the generated constructor; but with a default, value() is never None

        @overload
        def __init__(
            self: ValueStateDeclaration[T, T | None],
            name: str,
            value_type: TypeForm[T],
            default: None = None,
            *,
            ttl: StateTtl | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self: ValueStateDeclaration[T, T],
            name: str,
            value_type: TypeForm[T],
            default: T,
            *,
            ttl: StateTtl | None = None,
        ) -> None: ...
        def __init__(
            self, name: str, value_type: TypeForm[T], default: T | None = None, *, ttl: StateTtl | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.default is not None and not fits(self.default, self.value_type):
            raise StateDeclarationError(f"{self}: the default {self.default!r} is not of type {self.value_type!r}.")

    @property
    def types(self) -> tuple[object, ...]:
        return (self.value_type,)

    @property
    def time_to_live(self) -> StateTtl | None:
        return self.ttl


@final
@dataclass(frozen=True)
class ListStateDeclaration(StateDeclaration, Generic[T]):
    """Declares a list: for each key, or (REDISTRIBUTABLE, IDENTICAL) for each subtask, shared by its keys.

    ``strategy``: how the elements of a REDISTRIBUTABLE one are dealt out. ``ttl``: how long an element is kept; only
    for lists of keys.
    """

    element_type: TypeForm[T]
    mode: RedistributionMode = RedistributionMode.NONE
    strategy: RedistributionStrategy = RedistributionStrategy.SPLIT
    ttl: StateTtl | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:  # the generated constructor; but choices may be given as strings

        def __init__(
            self,
            name: str,
            element_type: TypeForm[T],
            mode: RedistributionModeChoice = RedistributionMode.NONE,
            strategy: RedistributionStrategyChoice = RedistributionStrategy.SPLIT,
            *,
            ttl: StateTtl | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        for parameter, kind in (("mode", RedistributionMode), ("strategy", RedistributionStrategy)):
            chosen = as_choice(kind, getattr(self, parameter), f"{self}: {parameter}", error=StateDeclarationError)
            object.__setattr__(self, parameter, chosen)
        if self.ttl is not None and self.mode is not RedistributionMode.NONE:
            raise StateDeclarationError(
                f"{self}: only state of keys (mode NONE) has a time to live, not one of mode {self.mode.name}."
            )

    @property
    def redistribution_mode(self) -> RedistributionMode:
        return self.mode

    @property
    def types(self) -> tuple[object, ...]:
        return (self.element_type,)

    @property
    def time_to_live(self) -> StateTtl | None:
        return self.ttl


@final
@dataclass(frozen=True)
class MapStateDeclaration(StateDeclaration, Generic[K, V]):
    """Declares a map for each key of the stream. ``ttl``: how long an entry is kept."""

    key_type: TypeForm[K]
    value_type: TypeForm[V]
    ttl: StateTtl | None = field(default=None, kw_only=True)

    @property
    def types(self) -> tuple[object, ...]:
        return (self.key_type, self.value_type)

    @property
    def time_to_live(self) -> StateTtl | None:
        return self.ttl


@final
@dataclass(frozen=True)
class BroadcastStateDeclaration(StateDeclaration, Generic[K, V]):
    """Declares a map that each subtask has a copy of (mode IDENTICAL), for functions with a broadcast input."""

    key_type: TypeForm[K]
    value_type: TypeForm[V]

    @property
    def redistribution_mode(self) -> RedistributionMode:
        return RedistributionMode.IDENTICAL

    @property
    def types(self) -> tuple[object, ...]:
        return (self.key_type, self.value_type)


@final
@dataclass(frozen=True)
class ReducingStateDeclaration(StateDeclaration, Generic[T]):
    """Declares one value for each key, which ``reduce`` makes from the value so far and the one that is added."""

    value_type: TypeForm[T]
    reduce: Callable[[T, T], T] = field(metadata=_CODE)
    ttl: StateTtl | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not takes(self.reduce, 2):
            raise StateDeclarationError(f"{self}: reduce is a callable (value, value) -> value, not {self.reduce!r}.")

    @property
    def types(self) -> tuple[object, ...]:
        return (self.value_type,)

    @property
    def time_to_live(self) -> StateTtl | None:
        return self.ttl


@final
@dataclass(frozen=True)
class AggregatingStateDeclaration(StateDeclaration, Generic[IN, ACC, OUT]):
    """Declares one accumulator for each key, of type ``accumulator_type``, that ``function`` works on."""

    accumulator_type: TypeForm[ACC]
    function: AggregateFunction[IN, ACC, OUT] = field(metadata=_CODE)
    ttl: StateTtl | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.function, AggregateFunction):
            raise StateDeclarationError(
                f"{self}: it takes an AggregateFunction (or aggregate_of(...)), not {self.function!r}."
            )

    @property
    def types(self) -> tuple[object, ...]:
        return (self.accumulator_type,)

    @property
    def time_to_live(self) -> StateTtl | None:
        return self.ttl
