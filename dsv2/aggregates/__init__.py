"""Declared aggregates: ``keyed.aggregate(Total, user=Key(), total=Sum("amount"))``, also of windows.

They run on columns where the records have columns, and record by record elsewhere, with the same results.
"""

from dsv2.aggregates.custom import Custom
from dsv2.aggregates.distinct import ApproxCountDistinct, CountDistinct
from dsv2.aggregates.neighbours import Lag, Lead
from dsv2.aggregates.result_field import (
    Aggregate,
    Count,
    First,
    Key,
    Last,
    Max,
    Min,
    Part,
    Sum,
    WindowEnd,
    WindowStart,
)
from dsv2.aggregates.selection import ArgMax, ArgMin, Collect
from dsv2.aggregates.statistics import Mean, StdDev, Variance

__all__ = (
    "Aggregate",
    "ApproxCountDistinct",
    "ArgMax",
    "ArgMin",
    "Collect",
    "Count",
    "CountDistinct",
    "Custom",
    "First",
    "Key",
    "Lag",
    "Last",
    "Lead",
    "Max",
    "Mean",
    "Min",
    "Part",
    "StdDev",
    "Sum",
    "Variance",
    "WindowEnd",
    "WindowStart",
)
