"""The base class of all streams: one output of an operator, to which further operators are added."""

from __future__ import annotations

import sys
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from dsv2.base.record_table import RecordTable
from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import as_seconds, check_whole_number
from dsv2.checks.missing_methods import missing_method
from dsv2.checks.tracebacks import short_traceback
from dsv2.errors import ConfigurationError, PlanError
from dsv2.functions import ProcessFunction, TwoInputBroadcastStreamProcessFunction
from dsv2.graph import Exchange, InputRef, KeySelector, OperatorKind, PlanBuilder, WaitForBroadcast
from dsv2.graph.builder import caller_location, kind_of
from dsv2.graph.upstream import pipeline_to
from dsv2.sinks import CollectSink, Sink
from dsv2.sources import BaseSource
from dsv2.streams.arguments import require, require_selector, require_version
from dsv2.streams.outputs import ConfiguredSink

if TYPE_CHECKING:
    import pandas as pd


_SECONDS_WITHOUT_END = 10.0
_WITHOUT_KEYS = "It is a method of streams without partitioning: call it before key_by, global_ or broadcast."
_OF_KEYS = "It is a method of keyed and global streams: call key_by before it, or global_ for all records together."
_BEFORE_BROADCAST = "Call it before broadcast. A broadcast stream is a side input of connect_and_process."
_TO_SINK = "Call to_sink(sink)."
_INSTEAD = {
    "add_sink": _TO_SINK,
    "aggregate": _OF_KEYS,
    "assign_timestamps_and_watermarks": "Pass watermarks=... to from_source, or process the stream with a generator.",
    "connect": "Call connect_and_process(other, function).",
    "count": f"Count is an aggregate: aggregate(..., n=Count()). {_OF_KEYS}",
    "deduplicate": _WITHOUT_KEYS,
    "filter": _BEFORE_BROADCAST,
    "flat_map": _BEFORE_BROADCAST,
    "for_each": "Call process(function), or to_sink(sink).",
    "foreach": "Call process(function), or to_sink(sink).",
    "get_side_output": "Call side_output(tag) on the result of process.",
    "group_by": "Call key_by(key_selector).",
    "join": "Call connect_and_process with a join of dsv2.extension.join.",
    "key_by": _BEFORE_BROADCAST,
    "limit": _WITHOUT_KEYS,
    "map": _BEFORE_BROADCAST,
    "name": "Call with_name(name).",
    "print": "Call to_sink(PrintSink()), or show() to look at some records.",
    "process": _BEFORE_BROADCAST,
    "rebalance": "Call shuffle().",
    "reduce": "Call window(strategy).reduce(function), or aggregate, after key_by.",
    "sample": _WITHOUT_KEYS,
    "select": "Call map(function).",
    "set_max_parallelism": "Call with_max_parallelism(n).",
    "set_parallelism": "Call with_parallelism(n).",
    "sink_to": _TO_SINK,
    "sum": f"Sum is an aggregate: aggregate(..., total=Sum(field)). {_OF_KEYS}",
    "to_sink": _BEFORE_BROADCAST,
    "uid": "Call with_uid(uid).",
    "union": _WITHOUT_KEYS,
    "where": "Call filter(predicate).",
    "window": _BEFORE_BROADCAST,
    "window_all": "Call global_().window(strategy).",
    "with_column": "Call map(function).",
    "write": _TO_SINK,
}
"""Replacements of methods of other kinds of streams, of Flink's DataStream V1, and of Spark's DataFrame."""


class Stream(Generic[T_co]):
    """One output of an operator, with a partitioning."""

    _kind: ClassVar[str]
    """The kind of stream as error messages show it. Configured streams have the name of their base class."""
    _non_parallel: ClassVar[bool] = False
    """True if its operators run in one subtask."""

    def __init__(self, builder: PlanBuilder, ref: InputRef) -> None:
        self._builder = builder
        self._ref = ref

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            raise missing_method(self, self._kind, name, _INSTEAD)

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
        check_whole_number(n, "n")
        try:
            pandas: Any = import_module("pandas")
        except ImportError as error:
            raise ConfigurationError("to_pandas requires pandas: pip install pandas") from error
        table = RecordTable(self._sample("to_pandas", n, as_seconds(timeout, "timeout")))
        frame: pd.DataFrame = pandas.DataFrame(table.rows, columns=table.columns)
        return frame

    def _sample(self, method: str, limit: int, seconds: float | None) -> list[T_co]:
        where = f"{method} at {caller_location()}"
        self._builder.require_open()
        part = pipeline_to(CollectSink[T_co](max_records=None, max_bytes=None), self._builder, self._ref)
        plan = part.plan_of(part, where)
        if seconds is None and any(isinstance(o.body, BaseSource) and not o.body.bounded for o in plan.operators):
            seconds = _SECONDS_WITHOUT_END
        try:
            records: list[T_co] = self._builder.sample(plan, limit, seconds)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where} runs the pipeline up to here on the local runtime. {error}") from error
        return records

    def _add(
        self,
        kind: OperatorKind,
        function: ProcessFunction,
        name: str,
        *others: InputRef,
        output_keys: tuple[KeySelector | None, ...] = (None,),
        version: int | None = None,
    ) -> InputRef:
        require_version(version, output_keys)
        inputs = (self._ref, *others)
        node = self._builder.add(kind, function, name, inputs, output_keys, self._non_parallel, version)
        return InputRef(node)

    def _through(
        self, exchange: Exchange, key_selector: KeySelector | None = None, version: int | None = None
    ) -> InputRef:
        return InputRef(self._ref.node, self._ref.output, exchange, key_selector, version)

    def _to_sink(self, sink: Sink[T_co]) -> ConfiguredSink:
        if not isinstance(sink, Sink):
            raise PlanError(f"to_sink at {caller_location()} takes a sink of dsv2.sinks, not {kind_of(sink)}.")
        node = self._builder.add(OperatorKind.SINK, sink, "Sink", (self._ref,), (), self._non_parallel)
        return ConfiguredSink(self._builder, InputRef(node))


def refuse_foreign(stream: Stream[Any], other: object, *kinds: type[Stream[Any]]) -> None:
    """Raise ``PlanError`` unless ``other`` is a stream of one of ``kinds`` in the same environment as ``stream``."""
    where = f"connect_and_process at {caller_location()}"
    if not isinstance(other, kinds):
        found = other._kind if isinstance(other, Stream) else type(other).__name__
        raise PlanError(
            f"{where}: a {stream._kind} connects to a {' or a '.join(kind._kind for kind in kinds)}, not to a {found}."
        )
    if other._builder is not stream._builder:
        raise PlanError(f"{where}: the two streams belong to different environments.")


def connect_broadcast(
    stream: Stream[Any],
    side: Stream[Any],
    function: object,
    wait: WaitForBroadcast | None,
    key_selector: KeySelector | None = None,
    version: int | None = None,
) -> InputRef:
    """Add an operator that runs ``function`` on ``stream``, keyed or not, with ``side`` as broadcast input."""
    require_selector("connect_and_process", key_selector, "new_key_selector")
    if wait is not None and not isinstance(wait, WaitForBroadcast):
        raise PlanError(
            f"connect_and_process at {caller_location()}: wait_for_broadcast must be a WaitForBroadcast, not {wait!r}."
        )
    name = "Broadcast-TwoInput-Process" if stream._ref.key_selector is None else "Keyed-TwoInput-Broadcast-Process"
    ref = stream._add(
        OperatorKind.TWO_INPUT_BROADCAST,
        require(function, TwoInputBroadcastStreamProcessFunction),
        name,
        side._ref,
        output_keys=(key_selector,),
        version=version,
    )
    ref.node.broadcast_wait = wait
    return ref
