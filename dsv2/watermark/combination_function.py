"""The combination functions that Flink does not have. Each has a name and a value, like members of an enumeration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol

from dsv2.base.type_variables import V


class CombinationFunction(Protocol):
    """A combination function of any kind."""

    @property
    def name(self) -> str:
        """Its name in the description of a program."""

    @property
    def value(self) -> str:
        """Its name in plans, such as ``min`` or ``quantile(0.5)``."""


class NamedByValue(ABC):
    """Has a name and a value, like a member of an enumeration."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """Its name in the description of a program."""
        return self.value.upper()

    @property
    @abstractmethod
    def value(self) -> str:
        """Its name in plans."""


class GeneralCombinationFunction(Enum):
    """Combinations of the values of several channels, in addition to minimum, maximum, AND and OR."""

    SUM = "sum"
    COUNT = "count"
    LAST = "last"
    UNION = "union"
    INTERSECTION = "intersection"


@dataclass(frozen=True, slots=True)
class Quantile(NamedByValue):
    """The value of a channel such that the fraction ``quantile`` of the channels has no greater one."""

    quantile: float

    @property
    def value(self) -> str:
        return f"quantile({self.quantile:g})"


@dataclass(frozen=True, slots=True)
class AtLeastChannels(NamedByValue):
    """The greatest value that at least ``channels`` channels have reached."""

    channels: int

    @property
    def value(self) -> str:
        return f"at_least({self.channels})"


@dataclass(frozen=True, slots=True)
class CustomCombination(NamedByValue, Generic[V]):
    """A function of the program. ``idempotent``: whether the combination of a value with itself is that value."""

    function: Callable[[V, V], V]
    idempotent: bool

    @property
    def value(self) -> str:
        return f"combine({getattr(self.function, '__qualname__', type(self.function).__qualname__)})"


def family_of(function: CombinationFunction) -> str:
    """The name of ``function`` without its parameters."""
    return function.value.partition("(")[0]


def is_idempotent(function: CombinationFunction) -> bool:
    """Return whether the combination of copies of a value is that value, so that every receiver may send it on."""
    if isinstance(function, CustomCombination):
        return function.idempotent
    return family_of(function) not in ("sum", "count", "at_least")
