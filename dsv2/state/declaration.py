"""Declarations of states, and their builders."""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias, TypedDict, Unpack, final, overload

from typing_extensions import TypeForm, TypeVar

from dsv2.base.callables import takes
from dsv2.base.type_variables import ACC, IN, OUT, K, T, T_co, V
from dsv2.checks.arguments import as_choice
from dsv2.errors import StateDeclarationError
from dsv2.state.aggregate import AggregateFunction
from dsv2.state.handles import AggregatingState, BroadcastState, ListState, MapState, ReducingState, ValueState
from dsv2.state.ttl import StateTtl
from dsv2.state.types import check_type, fits

R_co = TypeVar("R_co", covariant=True, default=T | None)

Migrate: TypeAlias = Callable[[Any, int], Any]
"""Converts a stored value: ``(old_value, old_version) -> new value``."""


class VersionOptions(TypedDict, total=False):
    """The optional arguments of all state declarations."""

    version: int
    migrate: Migrate | None


class StateOptions(VersionOptions, total=False):
    """The optional arguments of declarations of states whose values may have a time to live."""

    ttl: StateTtl | None


_VERSIONED = re.compile(r".*@\d+", re.DOTALL)  # how values are stored in later versions
_CODE = {"is_code": True}  # marks fields that hold functions, which are different objects in every process


class RedistributionMode(Enum):
    """The redistribution of a state when the parallelism changes.

    ``NONE``: the state belongs to a key and moves with it. ``REDISTRIBUTABLE``: it belongs to a subtask, and its
    elements are redistributed. ``IDENTICAL``: it is the same in all subtasks, and a new subtask gets a copy.
    """

    NONE = "none"
    REDISTRIBUTABLE = "redistributable"
    IDENTICAL = "identical"


class RedistributionStrategy(Enum):
    """The redistribution of the elements of REDISTRIBUTABLE lists.

    ``SPLIT``: each element goes to one subtask, round-robin. ``UNION``: every subtask gets all elements and keeps those
    it needs.
    """

    SPLIT = "split"
    UNION = "union"


RedistributionModeChoice: TypeAlias = RedistributionMode | Literal["none", "redistributable", "identical"]
RedistributionStrategyChoice: TypeAlias = RedistributionStrategy | Literal["split", "union"]


@dataclass(frozen=True)
class StateDeclaration(ABC):
    """Base class of state declarations.

    Args:
        name: Case-sensitive and unique within a function.
        version: The version of the stored values. Increase it when ``migrate`` has to convert earlier ones.
        migrate: Converts what an earlier program has stored: ``migrate(old_value, old_version)`` returns the new value.
            Called for the value of a key, for each element of a list, and for each value of a map, when it is first
            read, and again if that micro-batch is repeated. If it returns None for the value of a key, the key has no
            value any more. None: no conversion.

    Raises:
        StateDeclarationError: The declaration is invalid.
    """

    name: str
    version: int = field(default=1, kw_only=True)
    migrate: Migrate | None = field(default=None, kw_only=True, repr=False, metadata=_CODE)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise StateDeclarationError(f"The name of a state must be a non-empty string, not {self.name!r}.")
        if _VERSIONED.fullmatch(self.name):
            raise StateDeclarationError(f"{self}: the name must not end with @ and a number. Use version=...")
        if type(self.version) is not int or self.version < 1:
            raise StateDeclarationError(f"{self}: version must be a whole number of at least 1, not {self.version!r}.")
        if self.migrate is not None and not takes(self.migrate, 2):
            raise StateDeclarationError(
                f"{self}: migrate must be a callable (old_value, old_version) -> value, not {self.migrate!r}."
            )
        for form in self.types:
            check_type(form, str(self))
        if self.time_to_live is not None and not isinstance(self.time_to_live, StateTtl):
            raise StateDeclarationError(f"{self}: ttl must be a StateTtl, not {self.time_to_live!r}.")

    @property
    def redistribution_mode(self) -> RedistributionMode:
        """The redistribution mode. Default: NONE."""
        return RedistributionMode.NONE

    @property
    def types(self) -> tuple[object, ...]:
        """The types of the stored values, in the order of the parameters: the fields ``..._type``."""
        return tuple(getattr(self, part.name) for part in fields(self) if part.name.endswith("_type"))

    @property
    @abstractmethod
    def time_to_live(self) -> StateTtl | None:
        """Return the time for which a value is kept. None: until it is removed."""

    def matches(self, other: object) -> bool:
        """Return whether ``other`` is the same declaration, ignoring fields that hold functions."""
        return type(self) is type(other) and all(
            getattr(self, part.name) == getattr(other, part.name)
            for part in fields(self)
            if not part.metadata.get("is_code")
        )

    def __str__(self) -> str:
        return f"{type(self).__name__.removesuffix('Declaration')} {self.name!r}"


class Declares(Generic[T_co]):
    """A declaration of a state with a handle of type ``T_co``."""


@dataclass(frozen=True)
class ExpiringStateDeclaration(StateDeclaration, Declares[T_co], Generic[T_co]):
    """Base class of the declarations of states whose values may have a time to live."""

    ttl: StateTtl | None = field(default=None, kw_only=True)

    @property
    def time_to_live(self) -> StateTtl | None:
        return self.ttl


@final
@dataclass(frozen=True)
class ValueStateDeclaration(ExpiringStateDeclaration[ValueState[T, R_co]], Generic[T, R_co]):
    """Declares one value per key.

    Args:
        name: The name of the state.
        value_type: The type of the value.
        default: The result of ``value()`` if no value is stored. A mutable default is copied each time. None: no
            default.
        **options: ``ttl``, the time for which a value is kept (None: until it is removed); ``version`` and ``migrate``,
            see ``StateDeclaration``.
    """

    value_type: TypeForm[T]
    default: T | None = field(default=None, hash=False)

    if TYPE_CHECKING:  # as the generated constructor, but with a default value() is never None

        @overload
        def __init__(
            self: ValueStateDeclaration[T, T | None],
            name: str,
            value_type: TypeForm[T],
            default: None = None,
            **options: Unpack[StateOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: ValueStateDeclaration[T, T],
            name: str,
            value_type: TypeForm[T],
            default: T,
            **options: Unpack[StateOptions],
        ) -> None: ...
        def __init__(
            self, name: str, value_type: TypeForm[T], default: T | None = None, **options: Unpack[StateOptions]
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.default is not None and not fits(self.default, self.value_type):
            raise StateDeclarationError(f"{self}: the default {self.default!r} is not of type {self.value_type!r}.")


@final
@dataclass(frozen=True)
class ListStateDeclaration(ExpiringStateDeclaration[ListState[T]], Generic[T]):
    """Declares a list per key, or (REDISTRIBUTABLE, IDENTICAL) a list per subtask that its keys share.

    Args:
        name: The name of the state.
        element_type: The type of the elements.
        mode: How the list is redistributed. Default: NONE, a list per key.
        strategy: How the elements of a REDISTRIBUTABLE list are redistributed.
        **options: ``ttl``, the time for which an element is kept (only for mode NONE; None: until it is removed);
            ``version`` and ``migrate``, see ``StateDeclaration``.
    """

    element_type: TypeForm[T]
    mode: RedistributionMode = RedistributionMode.NONE
    strategy: RedistributionStrategy = RedistributionStrategy.SPLIT

    if TYPE_CHECKING:  # as the generated constructor, but choices may be strings

        def __init__(
            self,
            name: str,
            element_type: TypeForm[T],
            mode: RedistributionModeChoice = RedistributionMode.NONE,
            strategy: RedistributionStrategyChoice = RedistributionStrategy.SPLIT,
            **options: Unpack[StateOptions],
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        for parameter, kind in (("mode", RedistributionMode), ("strategy", RedistributionStrategy)):
            chosen = as_choice(kind, getattr(self, parameter), f"{self}: {parameter}", error=StateDeclarationError)
            object.__setattr__(self, parameter, chosen)
        if self.ttl is not None and self.mode is not RedistributionMode.NONE:
            raise StateDeclarationError(f"{self}: ttl requires keyed state (mode NONE), not mode {self.mode.name}.")

    @property
    def redistribution_mode(self) -> RedistributionMode:
        return self.mode


@final
@dataclass(frozen=True)
class MapStateDeclaration(ExpiringStateDeclaration[MapState[K, V]], Generic[K, V]):
    """Declares a map per key of the stream. ``ttl`` is how long an entry is kept."""

    key_type: TypeForm[K]
    value_type: TypeForm[V]


@final
@dataclass(frozen=True)
class BroadcastStateDeclaration(StateDeclaration, Declares[BroadcastState[K, V]], Generic[K, V]):
    """Declares a map with a copy in each subtask (mode IDENTICAL), for functions with a broadcast input."""

    key_type: TypeForm[K]
    value_type: TypeForm[V]

    @property
    def redistribution_mode(self) -> RedistributionMode:
        return RedistributionMode.IDENTICAL

    @property
    def time_to_live(self) -> None:
        return None


@final
@dataclass(frozen=True)
class ReducingStateDeclaration(ExpiringStateDeclaration[ReducingState[T]], Generic[T]):
    """Declares one value per key. An added value replaces it with ``reduce(current, added)``."""

    value_type: TypeForm[T]
    reduce: Callable[[T, T], T] = field(metadata=_CODE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not takes(self.reduce, 2):
            raise StateDeclarationError(
                f"{self}: reduce must be a callable (value, value) -> value, not {self.reduce!r}."
            )


@final
@dataclass(frozen=True)
class AggregatingStateDeclaration(ExpiringStateDeclaration[AggregatingState[IN, OUT]], Generic[IN, ACC, OUT]):
    """Declares one accumulator per key, of type ``accumulator_type``, updated by ``function``."""

    accumulator_type: TypeForm[ACC]
    function: AggregateFunction[IN, ACC, OUT] = field(metadata=_CODE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.function, AggregateFunction):
            raise StateDeclarationError(
                f"{self}: function must be an AggregateFunction (or aggregate_of(...)), not {self.function!r}."
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
