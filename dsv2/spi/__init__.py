"""The interface between a runtime and extensions or built-in functions. User programs do not need it."""

from dsv2.spi.collector import StampedSideOutput, StampingCollector, stamping_collector
from dsv2.spi.columnar_function import ColumnarFunction, TwoInputColumnarFunction
from dsv2.spi.declaration import TwoInputDeclaration
from dsv2.spi.failures import FailedCallbackError, FailedRecordError
from dsv2.spi.keyed_columns import KeyedColumns
from dsv2.spi.kinds import (
    BatchFunction,
    EmitBatch,
    KeepsAggregates,
    KeptAggregates,
    KeyedBatchFunction,
    PaneFunction,
    ProcessOne,
    SkippableTimersFunction,
    TickingFunction,
    WrappingFunction,
    comes_with,
)
from dsv2.spi.process_function import AsyncFunction, Position, ProcessFunction
from dsv2.spi.return_check import check_returned, refuse_returned
from dsv2.spi.state import KeyEntry, Pane, Panes, PartitionAccess, partition_access
from dsv2.spi.timestamps import check_timestamp, check_window_end, greatest_timestamp, last_of
