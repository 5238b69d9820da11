"""The decision to forward a received watermark, by the function's result and the declaration's strategy.

============  ===================  ===========
result        FORWARD              IGNORE
============  ===================  ===========
PEEK          forwarded            dropped
POLL          dropped              dropped
============  ===================  ===========

With POLL the function has consumed the watermark and may emit one itself.
"""

from __future__ import annotations

from enum import Enum

from dsv2.watermark.declaration import WatermarkHandlingStrategy


class WatermarkHandlingResult(Enum):
    """The result of ``on_watermark`` (Flink ``WatermarkHandlingResult``)."""

    PEEK = "PEEK"
    POLL = "POLL"


def is_forwarded(result: WatermarkHandlingResult, strategy: WatermarkHandlingStrategy) -> bool:
    """Return whether the framework forwards the watermark. Called by the runtime after every ``on_watermark``."""
    return result is WatermarkHandlingResult.PEEK and strategy is WatermarkHandlingStrategy.FORWARD
