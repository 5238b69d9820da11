"""``EventTimeExtension``: the way in (Flink ``EventTimeExtension``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from dsv2.extension.event_time import declarations
from dsv2.extension.event_time.generator import EventTimeWatermarkGeneratorBuilder, WatermarkStrategyBuilder
from dsv2.watermark import BoolWatermarkDeclaration, LongWatermarkDeclaration, Watermark
from dsv2.watermark.event_time import EVENT_TIME, IDLE_STATUS, USE_PROCESSING_TIME

__all__ = ("EventTimeExtension",)

T = TypeVar("T")


class EventTimeExtension:
    """Event time as three generalized watermarks, and what makes and uses them.

    Functions with event time need no wrapping, as in Flink: ``process`` knows them by their class.
    """

    EVENT_TIME_WATERMARK_DECLARATION: Final[LongWatermarkDeclaration] = declarations.EVENT_TIME
    """The greatest event time (ms) up to which all records have come."""
    IDLE_STATUS_WATERMARK_DECLARATION: Final[BoolWatermarkDeclaration] = declarations.IDLE_STATUS
    """True: nothing comes for now, do not wait."""
    USE_PROCESSING_TIME_WATERMARK_DECLARATION: Final[BoolWatermarkDeclaration] = declarations.USE_PROCESSING_TIME
    """True: event time is the wall clock from now on (FLIP-326's ``new Watermark(timestamp, true)``).

    Who has sent it sends no event time any more, and not before the wall clock is where event time is. What combines
    several channels or inputs has it once all of them have, those that are idle included.
    """

    @staticmethod
    def is_event_time_watermark(watermark: Watermark | str) -> bool:
        """Whether a watermark, or an identifier, is that of event time."""
        return _identifier(watermark) == EVENT_TIME

    @staticmethod
    def is_idle_status_watermark(watermark: Watermark | str) -> bool:
        """Whether a watermark, or an identifier, is that of idleness."""
        return _identifier(watermark) == IDLE_STATUS

    @staticmethod
    def is_use_processing_time_watermark(watermark: Watermark | str) -> bool:
        """Whether a watermark, or an identifier, is the flag that makes event time the wall clock."""
        return _identifier(watermark) == USE_PROCESSING_TIME

    @staticmethod
    def new_watermark_generator_builder(
        extract_timestamp: Callable[[T], int],
    ) -> EventTimeWatermarkGeneratorBuilder[T]:
        """Start a generator. ``extract_timestamp(record)`` gives the record's event time in ms since the epoch."""
        return EventTimeWatermarkGeneratorBuilder(extract_timestamp)

    @staticmethod
    def new_watermark_strategy_builder() -> WatermarkStrategyBuilder[object]:
        """Start watermarks of a source that gives its records timestamps: those of Kafka's messages, say.

        (Flink ``WatermarkStrategy`` without ``withTimestampAssigner``)
        """
        return WatermarkStrategyBuilder()


def _identifier(watermark: Watermark | str) -> str:
    return watermark if isinstance(watermark, str) else watermark.identifier
