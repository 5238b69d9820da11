"""The types of watermark values: which values they admit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar

from dsv2.arguments import is_whole_number
from dsv2.watermark.watermark import LONG_MAX, LONG_MIN

__all__ = ("BOOL", "LONG", "BoolType", "LongType", "ValueType")

V = TypeVar("V")


class ValueType(ABC, Generic[V]):
    """A type of watermark values. Types are equal if they admit the same values."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """How plans and messages show the type, such as ``long``."""

    @property
    @abstractmethod
    def builder_call(self) -> str:
        """The call by which the builder chooses the type, such as ``type_long()``."""

    @property
    @abstractmethod
    def requirement(self) -> str:
        """What a value must be, such as ``a signed 64-bit integer``."""

    @property
    @abstractmethod
    def kind(self) -> type[V]:
        """The class of the values."""

    @abstractmethod
    def admits(self, value: object) -> bool:
        """Whether ``value`` is a value of this type."""

    def normalized(self, value: V) -> V:
        """Return an equal value of the class ``kind``."""
        return value

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class LongType(ValueType[int]):
    """Signed 64-bit integers. A bool is not one."""

    @property
    def name(self) -> str:
        return "long"

    @property
    def builder_call(self) -> str:
        return "type_long()"

    @property
    def requirement(self) -> str:
        return "a signed 64-bit integer"

    @property
    def kind(self) -> type[int]:
        return int

    def admits(self, value: object) -> bool:
        return is_whole_number(value) and LONG_MIN <= value <= LONG_MAX


@dataclass(frozen=True, slots=True)
class BoolType(ValueType[bool]):
    """True and False."""

    @property
    def name(self) -> str:
        return "bool"

    @property
    def builder_call(self) -> str:
        return "type_bool()"

    @property
    def requirement(self) -> str:
        return "True or False"

    @property
    def kind(self) -> type[bool]:
        return bool

    def admits(self, value: object) -> bool:
        return isinstance(value, bool)


LONG = LongType()
BOOL = BoolType()
