"""Watermark values (FLIP-467; Flink ``LongWatermark``, ``BoolWatermark``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

from typing_extensions import TypeVar

LONG_MIN = -(2**63)
LONG_MAX = 2**63 - 1

V_co = TypeVar("V_co", covariant=True, default=Any)


@dataclass(frozen=True, slots=True)
class Watermark(Generic[V_co]):
    """A watermark with a value of type ``V_co``. Create it with ``new_watermark`` of its declaration.

    Attributes:
        value: The value, which is immutable.
        identifier: That of the declaration.
    """

    value: V_co
    identifier: str


@dataclass(frozen=True, slots=True)
class LongWatermark(Watermark[int]):
    """A watermark with a 64-bit integer value. Create it with ``LongWatermarkDeclaration.new_watermark``."""


@dataclass(frozen=True, slots=True)
class BoolWatermark(Watermark[bool]):
    """A watermark with a boolean value. Create it with ``BoolWatermarkDeclaration.new_watermark``."""
