"""``EventTimeExtension``: the entry point to event time (Flink ``EventTimeExtension``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, overload

from typing_extensions import TypeVar

from dsv2.extension.event_time import declarations
from dsv2.extension.event_time.generator import EventTimeWatermarkGeneratorBuilder, WatermarkStrategyBuilder
from dsv2.watermark import BoolWatermarkDeclaration, LongWatermarkDeclaration, Watermark
from dsv2.watermark.event_time import EVENT_TIME, IDLE_STATUS, USE_PROCESSING_TIME

# Without the bound, the parameter of a lambda is an object to pyright. Without the default, the result is unknown.
ExtractedT = TypeVar("ExtractedT", bound=Any, default=object)


class EventTimeExtension:
    """Event time as three generalized watermarks, and the builders of generators.

    Unlike in Flink, event-time functions are not wrapped: ``process`` recognizes their class.
    """

    EVENT_TIME_WATERMARK_DECLARATION: Final[LongWatermarkDeclaration] = declarations.EVENT_TIME
    """The event time (ms) up to which all records have arrived."""
    IDLE_STATUS_WATERMARK_DECLARATION: Final[BoolWatermarkDeclaration] = declarations.IDLE_STATUS
    """True: the sender is idle, so receivers do not wait for it."""
    USE_PROCESSING_TIME_WATERMARK_DECLARATION: Final[BoolWatermarkDeclaration] = declarations.USE_PROCESSING_TIME
    """True: event time is the wall clock from now on (FLIP-326: ``new Watermark(timestamp, true)``).

    It can be emitted once the wall clock has reached the event time of the sender, which cannot emit event time
    afterwards. A receiver with several channels or inputs follows the wall clock once all of them have sent the flag,
    including idle ones.
    """

    @staticmethod
    def is_event_time_watermark(watermark: Watermark | str) -> bool:
        """Return whether a watermark, or an identifier, is the event-time watermark."""
        return _identifier(watermark) == EVENT_TIME

    @staticmethod
    def is_idle_status_watermark(watermark: Watermark | str) -> bool:
        """Return whether a watermark, or an identifier, is the idle-status watermark."""
        return _identifier(watermark) == IDLE_STATUS

    @staticmethod
    def is_use_processing_time_watermark(watermark: Watermark | str) -> bool:
        """Return whether a watermark, or an identifier, is the flag that switches event time to the wall clock."""
        return _identifier(watermark) == USE_PROCESSING_TIME

    @overload
    @staticmethod
    def new_watermark_generator_builder(
        extract_timestamp: Callable[[ExtractedT], int],
    ) -> EventTimeWatermarkGeneratorBuilder[ExtractedT]: ...
    @overload  # for mypy, which tries it with a lambda that does not work for any object
    @staticmethod
    def new_watermark_generator_builder(  # type: ignore[overload-cannot-match]
        extract_timestamp: Callable[[Any], int],
    ) -> EventTimeWatermarkGeneratorBuilder[object]: ...
    @staticmethod
    def new_watermark_generator_builder(
        extract_timestamp: Callable[[Any], int],
    ) -> EventTimeWatermarkGeneratorBuilder[Any]:
        """Start a generator for ``process`` or ``from_source``.

        Args:
            extract_timestamp: Returns the event time of a record in ms since the epoch. The type of the record may be
                left out, as in a lambda: the stream or the source keeps its own.

        Raises:
            ConfigurationError: ``extract_timestamp`` is not a callable (record) -> ms.
        """
        return EventTimeWatermarkGeneratorBuilder(extract_timestamp)

    @staticmethod
    def new_watermark_strategy_builder() -> WatermarkStrategyBuilder[object]:
        """Start a watermark strategy for a source that assigns timestamps itself, such as Kafka.

        (Flink ``WatermarkStrategy`` without ``withTimestampAssigner``.)
        """
        return WatermarkStrategyBuilder()


def _identifier(watermark: Watermark | str) -> str:
    return watermark if isinstance(watermark, str) else watermark.identifier
