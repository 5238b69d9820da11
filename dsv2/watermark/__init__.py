"""Generalized watermarks (FLIP-467): typed signals in the stream of records. This package does no I/O.

A function declares a watermark with ``new_builder`` (Flink ``WatermarkDeclarations.newBuilder``), emits it with the
watermark manager of its context, and receives watermarks in ``on_watermark``, combined over the channels of the input.
"""

from dsv2.watermark.builder import (
    BoolWatermarkBuilder,
    LongWatermarkBuilder,
    WatermarkDeclarationBuilder,
    WatermarkDeclarations,
    new_builder,
)
from dsv2.watermark.declaration import (
    BoolWatermarkCombinationFunction,
    BoolWatermarkDeclaration,
    LongWatermarkDeclaration,
    NumericWatermarkCombinationFunction,
    WatermarkCombinationFunction,
    WatermarkCombinationPolicy,
    WatermarkDeclaration,
    WatermarkHandlingStrategy,
)
from dsv2.watermark.handling import WatermarkHandlingResult
from dsv2.watermark.watermark import BoolWatermark, LongWatermark, Watermark

__all__ = (
    "BoolWatermark",
    "BoolWatermarkBuilder",
    "BoolWatermarkCombinationFunction",
    "BoolWatermarkDeclaration",
    "LongWatermark",
    "LongWatermarkBuilder",
    "LongWatermarkDeclaration",
    "NumericWatermarkCombinationFunction",
    "Watermark",
    "WatermarkCombinationFunction",
    "WatermarkCombinationPolicy",
    "WatermarkDeclaration",
    "WatermarkDeclarationBuilder",
    "WatermarkDeclarations",
    "WatermarkHandlingResult",
    "WatermarkHandlingStrategy",
    "new_builder",
)
