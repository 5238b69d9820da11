"""Checks timestamps of records and timers: integers, in ms since the epoch, that fit in 64 bits like event time.

Other values would fail silently: NaN is never the greatest timestamp, and event time never reaches 2⁶³.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from dsv2.errors import ContractError
from dsv2.spi.failures import FailedRecordError
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN


def check_timestamp(value: object) -> None:
    """Check a timestamp.

    Raises:
        ContractError: ``value`` is not an integer that fits in 64 bits.
    """
    if not isinstance(value, int) or not LONG_MIN <= value <= LONG_MAX:
        _refuse(value)


def greatest_timestamp(records: Sequence[object], timestamps: Sequence[Any]) -> int:
    """Return the greatest of the ``timestamps`` of one or more ``records``.

    Raises:
        FailedRecordError: From a ``ContractError``, for the first record with an invalid timestamp.
    """
    try:
        greatest = max(timestamps)
        # The fastest check: the sum is an int only if all timestamps are.
        if type(sum(timestamps)) is int and min(timestamps) >= LONG_MIN and greatest <= LONG_MAX:
            return int(greatest)
    except (TypeError, ValueError, ArithmeticError):
        pass  # some are not numbers
    for record, timestamp in zip(records, timestamps, strict=True):
        try:
            check_timestamp(timestamp)
        except ContractError as error:
            raise FailedRecordError(record) from error
    return int(max(timestamps))


def last_of(start: int, size: int) -> int:
    """Return the last timestamp of a window of ``size`` ms, so that event time can pass it before the input ends."""
    return min(start + size, LONG_MAX) - 1


def check_window_end(last: int, what: str) -> None:
    """Check that event time can pass the end of a window.

    Args:
        last: The last timestamp of the window, in ms.
        what: The window, for the error message.

    Raises:
        ContractError: ``last`` does not fit in 64 bits.
    """
    if last > LONG_MAX:
        raise ContractError(
            f"{what} ends after {last} ms, but event time ends at 2**63 - 1 ms. Is the timestamp of the record in ms "
            f"since the epoch?"
        )


def _refuse(value: object) -> NoReturn:
    wrong = "does not fit in 64 bits" if isinstance(value, int) else f"is of type {type(value).__name__}"
    advice = ""
    if value is None:
        advice = " If the source has no timestamps, extract them with new_watermark_generator_builder(extract)."
    raise ContractError(f"A timestamp must be an integer, in ms since the epoch, but {value!r:.200} {wrong}.{advice}")
