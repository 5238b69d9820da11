"""Watermark values (FLIP-467; Flink ``LongWatermark``, ``BoolWatermark``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ("BoolWatermark", "LongWatermark", "Watermark")

LONG_MIN = -(2**63)
LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LongWatermark:
    """A watermark with a 64-bit integer value. Create it with ``LongWatermarkDeclaration.new_watermark``."""

    value: int
    identifier: str


@dataclass(frozen=True, slots=True)
class BoolWatermark:
    """A watermark with a boolean value. Create it with ``BoolWatermarkDeclaration.new_watermark``."""

    value: bool
    identifier: str


Watermark: TypeAlias = LongWatermark | BoolWatermark
