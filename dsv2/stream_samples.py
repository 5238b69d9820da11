"""Looks at the records of a stream while a pipeline is written: ``take``, ``show`` and ``to_pandas``."""

from __future__ import annotations

import sys
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dsv2.arguments import as_seconds, check_whole_number
from dsv2.errors import ConfigurationError
from dsv2.graph import InputRef, PlanBuilder
from dsv2.graph.builder import caller_location
from dsv2.sinks import CollectSink
from dsv2.sources import BaseSource
from dsv2.tracebacks import short_traceback

if TYPE_CHECKING:
    import pandas as pd

__all__ = ("StreamSamples",)

T_co = TypeVar("T_co", covariant=True)

_SECONDS_WITHOUT_END = 10.0


class StreamSamples(Generic[T_co]):
    """The methods, as a base of all streams."""

    _builder: PlanBuilder
    _ref: InputRef

    @short_traceback
    def take(self, n: int, *, timeout: timedelta | None = None) -> list[T_co]:
        """Return the first records of this stream, for notebooks and experiments.

        Runs what is upstream of the stream on the local runtime, in this process, until there are ``n`` records.
        Sources are read from their beginning, and nothing is stored, committed or written to sinks. A later ``execute``
        does not run what was only looked at. With a parallelism above 1, the order is one of those that are possible.

        Args:
            n: How many records.
            timeout: After this time, return the records that there are. Default: no limit if all sources are bounded,
                otherwise 10 seconds.

        Raises:
            ConfigurationError: The local runtime cannot read a source, such as a DataFrame of Spark, or an argument is
                out of range.
            PlanError: The pipeline is invalid.
            UserFunctionError: A callback raised an exception.
        """
        check_whole_number(n, "n")
        return self._sample("take", n, as_seconds(timeout, "timeout"))

    @short_traceback
    def show(self, n: int = 20, *, timeout: timedelta | None = None) -> None:
        """Print the first records of this stream as a table, in a notebook as HTML. Otherwise like ``take``.

        The fields of named tuples, data classes and dicts are columns. A keyed stream also shows the key.
        """
        from dsv2.record_table import RecordTable

        check_whole_number(n, "n")
        records = self._sample("show", n, as_seconds(timeout, "timeout"))
        selector = self._ref.key_selector
        table = RecordTable(records, None if selector is None else [selector(record) for record in records], limit=n)
        if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
            shell.display_pub.publish({"text/plain": str(table), "text/html": table.html()})
        else:
            print(table)

    @short_traceback
    def to_pandas(self, n: int = 1000, *, timeout: timedelta | None = None) -> pd.DataFrame:
        """Return the first records of this stream as a pandas DataFrame. Otherwise like ``take``.

        The fields of named tuples, data classes and dicts are columns. Others are in one column, ``record``.
        """
        from dsv2.record_table import RecordTable

        check_whole_number(n, "n")
        try:
            pandas: Any = import_module("pandas")
        except ImportError as error:
            raise ConfigurationError("to_pandas requires pandas: pip install pandas") from error
        table = RecordTable(self._sample("to_pandas", n, as_seconds(timeout, "timeout")))
        frame: pd.DataFrame = pandas.DataFrame(table.rows, columns=table.columns)
        return frame

    def _sample(self, method: str, limit: int, seconds: float | None) -> list[T_co]:
        from dsv2.graph.upstream import pipeline_to

        where = f"{method} at {caller_location()}"
        self._builder.require_open()
        part = pipeline_to(CollectSink[T_co](max_records=None, max_bytes=None), self._builder, self._ref)
        plan = part.plan_of(part, where)
        if seconds is None and any(isinstance(o.body, BaseSource) and not o.body.bounded for o in plan.operators):
            seconds = _SECONDS_WITHOUT_END
        try:
            records: list[T_co] = import_module("dsv2.local.sample").sample(plan, limit, seconds)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where} runs the pipeline up to here on the local runtime. {error}") from error
        return records
