"""Times, durations and numbers of things as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def time_text(time_ms: int) -> str:
    """Return a time in ms since the epoch in ISO format, or in ms if no calendar has it."""
    try:
        time = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    fraction = f".{time.microsecond // 1000:03}" if time.microsecond else ""
    return f"{time.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}Z"


def duration_text(duration_ms: int) -> str:
    """Return a duration in its two largest units. Up to two minutes are in seconds. What is left is cut off."""
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    if duration_ms < 120_000:
        return f"{duration_ms // 1000} s"
    parts: list[tuple[int, str]] = []
    left = duration_ms
    for name, size in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append((number, name))
    return " ".join(f"{number} {name}" for number, name in parts[:2] if number)


def counted(number: int, what: str) -> str:
    """A number of things, such as ``2 channels``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
