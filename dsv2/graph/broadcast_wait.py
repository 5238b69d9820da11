"""The waiting of the main side of a broadcast connection for its broadcast side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsv2.checks.arguments import check_whole_number
from dsv2.errors import ConfigurationError
from dsv2.watermark import BoolWatermarkDeclaration, Watermark, WatermarkDeclaration


@dataclass(frozen=True)
class WaitForBroadcast:
    """The main side waits until the broadcast side has ended, or has sent a watermark.

    Records and watermarks of the main side are buffered in order, in the state of the subtask. They are processed as
    soon as the wait is over. ``JobProgress`` reports the number of records as ``records_held``. The state with them is
    written in each micro-batch, so the wait should be short.

    Args:
        until: The watermark that ends the wait. Given the declaration of a flag, its value True; given another
            declaration, any value; given a watermark (``DECLARATION.new_watermark(5)``), its value or a higher one: a
            superset, or a vector with no smaller entry. Values without an order must be equal. What counts is the value
            combined over the channels of the broadcast side. None: the end of the broadcast side.
        max_records: The number of records that each subtask may buffer. With more the job fails.

    Raises:
        ConfigurationError: ``until`` or ``max_records`` is invalid.
    """

    until: WatermarkDeclaration | Watermark | None = None
    max_records: int = 1_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.until, WatermarkDeclaration | Watermark | None):
            raise ConfigurationError(
                f"WaitForBroadcast: until must be a watermark, its declaration or None, not {self.until!r}."
            )
        check_whole_number(self.max_records, "WaitForBroadcast: max_records")

    @property
    def identifier(self) -> str | None:
        """The identifier of the watermark that ends the wait."""
        return None if self.until is None else self.until.identifier

    def is_over(self, identifier: str, value: Any) -> bool:
        """Return whether a watermark of the broadcast side ends the wait."""
        if identifier != self.identifier:
            return False
        if isinstance(self.until, Watermark):
            return _has_reached(value, self.until.value)
        return value is True or not isinstance(self.until, BoolWatermarkDeclaration)

    def __str__(self) -> str:
        return "its end" if self.until is None else f"its watermark {self.identifier!r}"


def _has_reached(value: Any, least: Any) -> bool:
    try:
        return bool(value >= least)
    except TypeError:  # values of this type are not ordered
        return bool(value == least)
