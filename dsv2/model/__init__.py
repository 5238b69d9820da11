"""The objects that programs and functions handle: contexts, policies, tags, resources and batches."""

from dsv2.base.record_position import RecordPosition
from dsv2.model.async_resource import AsyncResource
from dsv2.model.async_settings import AsyncBatchSettings, AsyncSettings
from dsv2.model.change import Change, ChangeKind
from dsv2.model.context import (
    DEFAULT_BUCKETS,
    ApplyPartitionFunction,
    BatchContext,
    Collector,
    Counter,
    Histogram,
    JobInfo,
    MetricGroup,
    NonPartitionedContext,
    PartitionedContext,
    ProcessingTimeManager,
    RuntimeContext,
    RuntimeExecutionMode,
    StateManager,
    SubtaskStateManager,
    TaskInfo,
    TwoOutputApplyPartitionFunction,
    TwoOutputNonPartitionedContext,
    TwoOutputPartitionedContext,
    WatermarkManager,
)
from dsv2.model.error_policy import DeadLetter, ErrorPolicy
from dsv2.model.output_tag import MainOutput, OutputTag
from dsv2.model.record_batch import RecordBatch
from dsv2.model.resource import Resource

__all__ = (
    "DEFAULT_BUCKETS",
    "ApplyPartitionFunction",
    "AsyncBatchSettings",
    "AsyncResource",
    "AsyncSettings",
    "BatchContext",
    "Change",
    "ChangeKind",
    "Collector",
    "Counter",
    "DeadLetter",
    "ErrorPolicy",
    "Histogram",
    "JobInfo",
    "MainOutput",
    "MetricGroup",
    "NonPartitionedContext",
    "OutputTag",
    "PartitionedContext",
    "ProcessingTimeManager",
    "RecordBatch",
    "RecordPosition",
    "Resource",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "StateManager",
    "SubtaskStateManager",
    "TaskInfo",
    "TwoOutputApplyPartitionFunction",
    "TwoOutputNonPartitionedContext",
    "TwoOutputPartitionedContext",
    "WatermarkManager",
)
