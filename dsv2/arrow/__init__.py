"""Vectorized functions and sinks that process Arrow tables. They can be mixed with functions on single records.

Requires pyarrow and numpy: ``pip install "dsv2[arrow]"``. The extra ``spark`` includes them.
"""

from dsv2.checks.client_library import require_client_library

for library in ("pyarrow", "numpy"):
    require_client_library(library, "arrow", "dsv2.arrow")

from dsv2.arrow.functions import (  # noqa: E402 - names the extra, where a library is missing
    ArrowCollector,
    ArrowContext,
    ArrowEventTimeProcessFunction,
    ArrowNonPartitionedContext,
    ArrowProcessFunction,
    map_tables,
)
from dsv2.arrow.keyed.lists import ArrowKeyedLists, ArrowKeyedRows  # noqa: E402
from dsv2.arrow.keyed.state import ArrowKeyedState  # noqa: E402
from dsv2.arrow.keyed.timers import ArrowTimers  # noqa: E402
from dsv2.arrow.records import records_of  # noqa: E402
from dsv2.arrow.schema import schema_of  # noqa: E402
from dsv2.arrow.sinks import ArrowForeachBatchSink, ArrowSink, ArrowSinkBatch  # noqa: E402
from dsv2.arrow.table_source import TableSource  # noqa: E402

__all__ = (
    "ArrowCollector",
    "ArrowContext",
    "ArrowEventTimeProcessFunction",
    "ArrowForeachBatchSink",
    "ArrowKeyedLists",
    "ArrowKeyedRows",
    "ArrowKeyedState",
    "ArrowNonPartitionedContext",
    "ArrowProcessFunction",
    "ArrowSink",
    "ArrowSinkBatch",
    "ArrowTimers",
    "TableSource",
    "map_tables",
    "records_of",
    "schema_of",
)
