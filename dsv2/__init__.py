"""dsv2: Apache Flink's DataStream V2 for Python, on Apache Spark.

The names that most programs need. Further ones are in packages: ``dsv2.errors``, ``dsv2.functions``, ``dsv2.jobs``
(progress and listeners), ``dsv2.model`` (contexts, policies, batches), ``dsv2.state``, ``dsv2.watermark``,
``dsv2.streams``, ``dsv2.sources`` and ``dsv2.sinks``. Windows, joins and event time are in ``dsv2.extension``,
connectors in ``dsv2.connectors``, functions on Arrow tables in ``dsv2.arrow``.
"""

from dsv2.environment import ExecutionEnvironment
from dsv2.errors import Dsv2Error, JobError
from dsv2.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
    on,
)
from dsv2.jobs import JobHandle, JobResult, JobStatus, Trigger
from dsv2.model import (
    Collector,
    DeadLetter,
    ErrorPolicy,
    NonPartitionedContext,
    OutputTag,
    PartitionedContext,
    Resource,
    RuntimeContext,
    RuntimeExecutionMode,
    TwoOutputNonPartitionedContext,
    TwoOutputPartitionedContext,
)
from dsv2.sinks import CollectSink, FileSink, ForeachBatchSink, PrintSink
from dsv2.state import StateDeclaration, StateDeclarations, StateTtl
from dsv2.streams import BroadcastStream, GlobalStream, KeyedPartitionStream, NonKeyedPartitionStream
from dsv2.version import __version__
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkDeclarations, WatermarkHandlingResult, new_builder

__all__ = (
    "BroadcastStream",
    "CollectSink",
    "Collector",
    "DeadLetter",
    "Dsv2Error",
    "ErrorPolicy",
    "ExecutionEnvironment",
    "FileSink",
    "FilterFunction",
    "FlatMapFunction",
    "ForeachBatchSink",
    "GlobalStream",
    "JobError",
    "JobHandle",
    "JobResult",
    "JobStatus",
    "KeyedPartitionStream",
    "MapFunction",
    "NonKeyedPartitionStream",
    "NonPartitionedContext",
    "OneInputStreamProcessFunction",
    "OutputTag",
    "PartitionedContext",
    "PrintSink",
    "Resource",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "StateDeclaration",
    "StateDeclarations",
    "StateTtl",
    "Trigger",
    "TwoInputBroadcastStreamProcessFunction",
    "TwoInputNonBroadcastStreamProcessFunction",
    "TwoOutputNonPartitionedContext",
    "TwoOutputPartitionedContext",
    "TwoOutputStreamProcessFunction",
    "Watermark",
    "WatermarkDeclaration",
    "WatermarkDeclarations",
    "WatermarkHandlingResult",
    "__version__",
    "new_builder",
    "on",
)
