"""Declared aggregates: ``keyed.aggregate(Total, user=Key(), total=Sum("amount"))``, also of windows.

They run on columns where the records have columns, and record by record elsewhere, with the same results.
"""

from dsv2.aggregates.result_field import (
    Aggregate,
    Count,
    First,
    Key,
    Last,
    Max,
    Mean,
    Min,
    Part,
    Sum,
    WindowEnd,
    WindowStart,
)

__all__ = (
    "Aggregate",
    "Count",
    "First",
    "Key",
    "Last",
    "Max",
    "Mean",
    "Min",
    "Part",
    "Sum",
    "WindowEnd",
    "WindowStart",
)
