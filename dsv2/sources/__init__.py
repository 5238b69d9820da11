"""The API of sources, and the built-in ones."""

from dsv2.sources.assigners import HashSplitAssigner, RoundRobinSplitAssigner, SplitAssigner
from dsv2.sources.assignment import (
    AssigningEnumerator,
    AssigningSource,
    AssignmentState,
    AssignmentStateSerializer,
    SplitDiscovery,
    SplitSource,
)
from dsv2.sources.base import BaseSource
from dsv2.sources.dataframe import ContinuedDataFrameSource, DataFrameSource
from dsv2.sources.hybrid import HybridSource, HybridSplit, HybridState
from dsv2.sources.indexed import CollectionSource, DataGeneratorSource, Halt, IndexedSource, ReadSchedule
from dsv2.sources.serializers import DataclassSerializer, JsonValue, Serializer
from dsv2.sources.source import (
    Portion,
    ReaderInfo,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
    SupportsPauseOrResumeSplits,
    SupportsSplitReassignmentOnRecovery,
)
from dsv2.sources.split_batch import SplitBatch
from dsv2.sources.watermarks import WatermarkAlignment, WatermarkStrategy

__all__ = (
    "AssigningEnumerator",
    "AssigningSource",
    "AssignmentState",
    "AssignmentStateSerializer",
    "BaseSource",
    "CollectionSource",
    "ContinuedDataFrameSource",
    "DataFrameSource",
    "DataGeneratorSource",
    "DataclassSerializer",
    "Halt",
    "HashSplitAssigner",
    "HybridSource",
    "HybridSplit",
    "HybridState",
    "IndexedSource",
    "JsonValue",
    "Portion",
    "ReadSchedule",
    "ReaderInfo",
    "RoundRobinSplitAssigner",
    "Serializer",
    "Source",
    "SourceReader",
    "SourceReaderContext",
    "SourceSplit",
    "SplitAssigner",
    "SplitBatch",
    "SplitDiscovery",
    "SplitEnumerator",
    "SplitEnumeratorContext",
    "SplitSource",
    "SupportsPauseOrResumeSplits",
    "SupportsSplitReassignmentOnRecovery",
    "WatermarkAlignment",
    "WatermarkStrategy",
)
