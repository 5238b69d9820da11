"""The types of watermark values: which values they admit, how they are ordered, and how they can be combined."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from functools import reduce
from math import isfinite
from typing import Any, Generic, cast

from dsv2.base.type_variables import T, V
from dsv2.checks.arguments import is_whole_number
from dsv2.errors import WatermarkDeclarationError
from dsv2.watermark.vector_clock import VectorClock
from dsv2.watermark.watermark import LONG_MAX, LONG_MIN

_FOR_ALL = ("last", "combine")
_ORDERED = ("min", "max", "quantile", "at_least")


class ValueType(ABC, Generic[V]):
    """A type of watermark values. Types are equal if they admit the same values.

    All values are immutable and hashable, and data that can be sent between processes.
    """

    __slots__ = ()

    name: str
    """The name of the type in plans and messages, such as ``long``."""
    requirement: str
    """The requirement for a value, such as ``a signed 64-bit integer``."""
    kind: type[Any]
    """The class of the values."""
    combinations: tuple[str, ...]
    """The families of combination functions that accept values of this type."""

    @abstractmethod
    def admits(self, value: object) -> bool:
        """Return whether ``value`` is a value of this type, of the class ``kind``."""

    @property
    def builder_call(self) -> str:
        """The call by which the builder chooses the type, such as ``type_long()``."""
        return f"type_{self.name}()"

    @property
    def classes(self) -> tuple[type, ...]:
        """The classes that must be known to decode values."""
        return (self.kind,)

    def normalized(self, value: V) -> V:
        """Return the equal value of the class ``kind``, if there is one. Otherwise ``value``."""
        return value

    def least(self, values: Sequence[V]) -> V:
        """Return a value that is not ahead of any of ``values``. There must be at least one.

        Several subtasks may know different values of a channel. When they are merged, this becomes its value.
        """
        return cast(V, min(cast(Any, values)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueType) and type(self) is type(other) and self.classes == other.classes

    def __hash__(self) -> int:
        return hash((type(self), self.classes))

    def __repr__(self) -> str:
        return self.builder_call


class LongType(ValueType[int]):
    """Signed 64-bit integers. A bool is not one."""

    __slots__ = ()

    name = "long"
    requirement = "a signed 64-bit integer"
    kind = int
    combinations = (*_ORDERED, "sum", "count", *_FOR_ALL)

    def admits(self, value: object) -> bool:
        return (type(value) is int or is_whole_number(value)) and LONG_MIN <= value <= LONG_MAX


class BoolType(ValueType[bool]):
    """True and False."""

    __slots__ = ()

    name = "bool"
    requirement = "True or False"
    kind = bool
    combinations = ("and", "or", "at_least", *_FOR_ALL)

    def admits(self, value: object) -> bool:
        return isinstance(value, bool)

    def normalized(self, value: bool) -> bool:
        return bool(value)


class FloatType(ValueType[float]):
    """Finite floating-point numbers. An int is converted."""

    __slots__ = ()

    name = "float"
    requirement = "a finite number"
    kind = float
    combinations = (*_ORDERED, "sum", *_FOR_ALL)

    def admits(self, value: object) -> bool:
        return type(value) is float and isfinite(value)

    def normalized(self, value: float) -> float:
        try:
            return float(value) if is_whole_number(value) else value
        except OverflowError:
            return value


class StrType(ValueType[str]):
    """Strings."""

    __slots__ = ()

    name = "str"
    requirement = "a str"
    kind = str
    combinations = (*_ORDERED, *_FOR_ALL)

    def admits(self, value: object) -> bool:
        return type(value) is str


class VectorType(ValueType[Mapping[str, int]]):
    """Vector clocks. Any mapping of strings to 64-bit integers is converted to a ``VectorClock``."""

    __slots__ = ()

    name = "vector"
    requirement = "a mapping of strings to signed 64-bit integers"
    kind = VectorClock
    combinations = ("min", "max", *_FOR_ALL)

    def admits(self, value: object) -> bool:
        return isinstance(value, VectorClock) and all(
            type(name) is str and LONG.admits(number) for name, number in value.entries
        )

    def normalized(self, value: Mapping[str, int]) -> Mapping[str, int]:
        is_plain = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
        return VectorClock(value) if is_plain and not isinstance(value, VectorClock) else value

    def least(self, values: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
        common = set(values[0]).intersection(*values[1:])
        merged = VectorClock.merged(values, min)
        return VectorClock({name: number for name, number in merged.items() if name in common})


class SetType(ValueType[Set[T]]):
    """Sets with members of one class. Any set is converted to a ``frozenset``."""

    __slots__ = ("member", "name", "requirement")
    kind = frozenset
    combinations = ("union", "intersection", *_FOR_ALL)

    def __init__(self, member: type[T]) -> None:
        _check_immutable(member, "type_set", builtin=(str, int, bool, float, bytes))
        self.member = member
        self.name = f"set of {member.__qualname__}"
        self.requirement = f"a {self.name}"

    @property
    def builder_call(self) -> str:
        return f"type_set({self.member.__qualname__})"

    @property
    def classes(self) -> tuple[type, ...]:
        return (frozenset, self.member)

    def admits(self, value: object) -> bool:
        return type(value) is frozenset and all(self._admits_member(member) for member in value)

    def _admits_member(self, member: object) -> bool:
        # NaN differs from itself, so a set with it would differ from its copies.
        return type(member) is self.member and (not isinstance(member, float) or isfinite(member))

    def normalized(self, value: Set[T]) -> Set[T]:
        return frozenset(value) if isinstance(value, Set) else value

    def least(self, values: Sequence[Set[T]]) -> Set[T]:
        return reduce(lambda one, other: one & other, values)


class DataType(ValueType[V]):
    """Instances of a frozen dataclass or a NamedTuple class. They are ordered if the class defines an order."""

    __slots__ = ("combinations", "is_ordered", "kind", "name", "requirement")

    def __init__(self, data_class: type[V]) -> None:
        _check_immutable(data_class, "type_of")
        self.kind = data_class
        self.name = data_class.__qualname__
        self.requirement = f"an instance of {self.name} that is hashable"
        self.is_ordered = data_class.__lt__ is not object.__lt__  # type: ignore[operator]
        """True if the class defines ``<``."""
        self.combinations = (*_ORDERED, *_FOR_ALL) if self.is_ordered else _FOR_ALL

    @property
    def builder_call(self) -> str:
        return f"type_of({self.name})"

    def admits(self, value: object) -> bool:
        if type(value) is not self.kind:
            return False
        try:
            hash(value)
        except TypeError:
            return False
        return True

    def least(self, values: Sequence[V]) -> V:
        return cast(V, min(cast(Any, values))) if self.is_ordered else values[0]


LONG = LongType()
BOOL = BoolType()
FLOAT = FloatType()
STR = StrType()
VECTOR = VectorType()


def _check_immutable(kind: object, call: str, builtin: tuple[type, ...] = ()) -> None:
    if kind in builtin:
        return
    params = getattr(kind, "__dataclass_params__", None)
    is_frozen = dataclasses.is_dataclass(kind) and params is not None and params.frozen
    is_named_tuple = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    if not isinstance(kind, type) or not (is_frozen or is_named_tuple) or kind.__hash__ is None:
        also = "".join(f"{one.__name__}, " for one in builtin)
        raise WatermarkDeclarationError(
            f"{call} requires {also}a frozen dataclass that is hashable, or a NamedTuple class, not {kind!r}. Values "
            f"of watermarks are shared, so they must not change: declare the class with @dataclass(frozen=True)."
        )
