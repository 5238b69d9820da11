"""Timestamps of records and timers: whole numbers of ms since the epoch that fit 64 bits, as event time itself.

Anything else would be lost without an error: NaN is never the greatest timestamp, and event time never reaches 2⁶³.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from dsv2.errors import ContractError
from dsv2.spi.failures import FailedRecordError
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN

__all__ = ("check_timestamp", "check_window_end", "greatest_timestamp")


def check_timestamp(value: object) -> None:
    """Raise ``ContractError`` if ``value`` cannot be a timestamp."""
    if not isinstance(value, int) or not LONG_MIN <= value <= LONG_MAX:
        _refuse(value)


def greatest_timestamp(records: Sequence[object], timestamps: Sequence[Any]) -> int:
    """The greatest of the ``timestamps`` of ``records``, of which there is at least one.

    Raises ``FailedRecordError``, from a ``ContractError``, for the first record whose timestamp cannot be one.
    """
    try:
        greatest = max(timestamps)
        # As quick as can be: the sum of numbers is an int only if all of them are.
        if type(sum(timestamps)) is int and min(timestamps) >= LONG_MIN and greatest <= LONG_MAX:
            return int(greatest)
    except (TypeError, ValueError, ArithmeticError):
        pass  # not all of them are numbers
    for record, timestamp in zip(records, timestamps, strict=True):
        try:
            check_timestamp(timestamp)
        except ContractError as error:
            raise FailedRecordError(record) from error
    return int(max(timestamps))


def check_window_end(last: int, what: str) -> None:
    """Raise ``ContractError`` if ``what`` ends only after ``last`` ms, a time that does not come."""
    if last > LONG_MAX:
        raise ContractError(
            f"{what} ends after {last} ms, but event time ends at 2**63 - 1 ms. Is the timestamp of the record in ms "
            f"since the epoch?"
        )


def _refuse(value: object) -> NoReturn:
    wrong = "does not fit 64 bits" if isinstance(value, int) else f"is of type {type(value).__name__}"
    advice = ""
    if value is None:
        advice = " Where a source gives none, say where to find it: new_watermark_generator_builder(extract)."
    raise ContractError(f"A timestamp is a whole number of ms since the epoch, but {value!r:.200} {wrong}.{advice}")
