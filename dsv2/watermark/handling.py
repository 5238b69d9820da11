"""Who sends a received watermark on: the one place where PEEK/POLL meets FORWARD/IGNORE.

============  ===================  ===========
answered      FORWARD              IGNORE
============  ===================  ===========
PEEK          framework forwards   swallowed
POLL          swallowed            swallowed
============  ===================  ===========

POLL means that the function has taken the watermark over and may emit one itself.
"""

from __future__ import annotations

from enum import Enum

from dsv2.watermark.declaration import WatermarkHandlingStrategy

__all__ = ("WatermarkHandlingResult", "is_forwarded")


class WatermarkHandlingResult(Enum):
    """What ``on_watermark`` answers (Flink ``WatermarkHandlingResult``)."""

    PEEK = "PEEK"
    POLL = "POLL"


def is_forwarded(result: WatermarkHandlingResult, strategy: WatermarkHandlingStrategy) -> bool:
    """Whether the framework sends the watermark on; called by the runtime after every ``on_watermark``."""
    return result is WatermarkHandlingResult.PEEK and strategy is WatermarkHandlingStrategy.FORWARD
