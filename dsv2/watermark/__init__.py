"""Generalized watermarks (FLIP-467): typed signals in the stream of records. This package does no I/O.

A function declares a watermark with ``new_builder`` (Flink ``WatermarkDeclarations.newBuilder``), emits it with the
watermark manager of its context, and receives watermarks in ``on_watermark``, combined over the channels of the input.
"""

from dsv2.watermark.builder import (
    BoolWatermarkBuilder,
    DataWatermarkBuilder,
    FloatWatermarkBuilder,
    LongWatermarkBuilder,
    SetWatermarkBuilder,
    StrWatermarkBuilder,
    VectorWatermarkBuilder,
    WatermarkDeclarationBuilder,
    WatermarkDeclarations,
    new_builder,
)
from dsv2.watermark.combination_function import (
    AtLeastChannels,
    CustomCombination,
    GeneralCombinationFunction,
    Quantile,
)
from dsv2.watermark.declaration import (
    BarrierWait,
    BoolWatermarkCombinationFunction,
    BoolWatermarkDeclaration,
    LongWatermarkDeclaration,
    NumericWatermarkCombinationFunction,
    WatermarkCombinationFunction,
    WatermarkCombinationPolicy,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    WatermarkHandlingStrategy,
    WhenExceeded,
)
from dsv2.watermark.delivery import DeliverWhen, WatermarkDelivery
from dsv2.watermark.keyed import KeyedWatermark, KeyedWatermarkDeclaration, PerKeyBuilder
from dsv2.watermark.value_type import ValueType
from dsv2.watermark.vector_clock import VectorClock
from dsv2.watermark.watermark import BoolWatermark, LongWatermark, Watermark

__all__ = (
    "AtLeastChannels",
    "BarrierWait",
    "BoolWatermark",
    "BoolWatermarkBuilder",
    "BoolWatermarkCombinationFunction",
    "BoolWatermarkDeclaration",
    "CustomCombination",
    "DataWatermarkBuilder",
    "DeliverWhen",
    "FloatWatermarkBuilder",
    "GeneralCombinationFunction",
    "KeyedWatermark",
    "KeyedWatermarkDeclaration",
    "LongWatermark",
    "LongWatermarkBuilder",
    "LongWatermarkDeclaration",
    "NumericWatermarkCombinationFunction",
    "Quantile",
    "SetWatermarkBuilder",
    "StrWatermarkBuilder",
    "ValueType",
    "VectorClock",
    "VectorWatermarkBuilder",
    "PerKeyBuilder",
    "Watermark",
    "WatermarkCombinationFunction",
    "WatermarkCombinationPolicy",
    "WatermarkDeclaration",
    "WatermarkDeclarationBuilder",
    "WatermarkDeclarations",
    "WatermarkDelivery",
    "WatermarkHandlingResult",
    "WatermarkHandlingStrategy",
    "WhenExceeded",
    "new_builder",
)
