"""The elements of a channel in tests: records with timestamps, and signals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

from dsv2.base.type_variables import T, T_co
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import END, STATUS, WATERMARK, Control
from dsv2.runtime.exchange.frames import Frame
from dsv2.spi import check_timestamp
from dsv2.watermark import KeyedWatermark, Watermark, WatermarkDeclaration


@dataclass(frozen=True, slots=True)
class StampedRecord(Generic[T_co]):
    """A record with its timestamp.

    Attributes:
        record: The record.
        timestamp: In ms since the epoch; None if the record has none.
    """

    record: T_co
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class IdleStatus:
    """Marks a channel as idle or as active again."""

    idle: bool


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Marks the end of a channel."""


Element: TypeAlias = StampedRecord[T] | Watermark | IdleStatus | EndOfInput
"""An element of a channel."""


def to_frame(elements: Iterable[Element[Any]]) -> tuple[RecordBatch[Any], list[Control]]:
    """Convert ``elements`` to the records and controls of a frame."""
    records: list[Any] = []
    timestamps: list[int | None] = []
    controls: list[Control] = []
    for element in elements:
        if isinstance(element, StampedRecord):
            if element.timestamp is not None:
                check_timestamp(element.timestamp)
            records.append(element.record)
            timestamps.append(element.timestamp)
        else:
            controls.append((len(records), *_signal(element)))
    has_timestamps = any(time is not None for time in timestamps)
    return RecordBatch(records, timestamps if has_timestamps else None), controls


def _signal(element: Watermark | IdleStatus | EndOfInput) -> tuple[int, str, Any]:
    if isinstance(element, IdleStatus):
        return STATUS, "", element.idle
    if isinstance(element, EndOfInput):
        return END, "", 0
    if isinstance(element, KeyedWatermark):
        return WATERMARK, element.identifier, (element.key, element.value)
    return WATERMARK, element.identifier, element.value


def from_frame(frame: Frame, declarations: Mapping[str, WatermarkDeclaration]) -> list[Element[Any]]:
    """Return the elements of ``frame``. Controls that only open a subtask are omitted."""
    records = [StampedRecord(*pair) for pair in frame.batch.pairs()]
    elements: list[Element[Any]] = []
    done = 0
    for position, kind, identifier, value in frame.controls:
        elements += records[done:position]
        done = position
        if kind == WATERMARK:
            elements.append(declarations[identifier].watermark_of(value))
        elif kind == STATUS:
            elements.append(IdleStatus(bool(value)))
        elif kind == END:
            elements.append(EndOfInput())
    return elements + records[done:]
