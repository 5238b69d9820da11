"""The base class of all streams: one output of an operator, to which further operators are added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from dsv2.errors import PlanError
from dsv2.functions import ProcessFunction
from dsv2.graph import Exchange, InputRef, KeySelector, Node, OperatorKind, PlanBuilder
from dsv2.graph.builder import caller_location, kind_of
from dsv2.graph.plan import DEAD_LETTERS
from dsv2.graph.side_outputs import find_output
from dsv2.missing_methods import missing_method
from dsv2.output_tag import OutputTag
from dsv2.sinks import Sink
from dsv2.stream_arguments import require_version
from dsv2.stream_samples import StreamSamples
from dsv2.stream_sinks import ConfiguredSink

__all__ = ("Stream", "dead_letters", "preserving", "refuse_foreign", "side_output")

T_co = TypeVar("T_co", covariant=True)

_WITHOUT_KEYS = "It is a method of streams without keys: call it before key_by, global_ or broadcast."
_OF_RECORDS = "Call it before key_by, global_ or broadcast, or call process(function), which knows the key."
_OF_KEYS = "It is a method of keyed streams: call key_by before it."
_BEFORE_BROADCAST = "Call it before broadcast. A broadcast stream is a side input of connect_and_process."
_TO_SINK = "Call to_sink(sink)."
_INSTEAD = {
    "add_sink": _TO_SINK,
    "aggregate": _OF_KEYS,
    "assign_timestamps_and_watermarks": "Pass watermarks=... to from_source, or process the stream with a generator.",
    "connect": "Call connect_and_process(other, function).",
    "count": f"Count is an aggregate: aggregate(..., n=Count()). {_OF_KEYS}",
    "deduplicate": _WITHOUT_KEYS,
    "filter": _OF_RECORDS,
    "flat_map": _OF_RECORDS,
    "for_each": "Call process(function), or to_sink(sink).",
    "foreach": "Call process(function), or to_sink(sink).",
    "get_side_output": "Call side_output(tag) on the result of process.",
    "group_by": "Call key_by(key_selector).",
    "join": "Call connect_and_process with a join of dsv2.extension.join.",
    "key_by": _BEFORE_BROADCAST,
    "limit": _WITHOUT_KEYS,
    "map": _OF_RECORDS,
    "name": "Call with_name(name).",
    "print": "Call to_sink(PrintSink()), or show() to look at some records.",
    "process": _BEFORE_BROADCAST,
    "rebalance": "Call shuffle().",
    "reduce": "Call process(reduce(strategy, function)) of dsv2.extension.window, or aggregate, after key_by.",
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
    "window": _OF_KEYS,
    "window_all": "Call process(window(strategy, function)) on global_().",
    "with_column": "Call map(function).",
    "write": _TO_SINK,
}
"""What to call instead of methods of other kinds of streams, of Flink's DataStream V1, and of Spark's DataFrame."""


class Stream(StreamSamples[T_co], Generic[T_co]):
    """One output of an operator, with a partitioning."""

    _kind: ClassVar[str]
    """The kind of stream as error messages show it. Configured streams have the name of their base class."""

    def __init__(self, builder: PlanBuilder, ref: InputRef) -> None:
        self._builder = builder
        self._ref = ref

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            raise missing_method(self, self._kind, name, _INSTEAD)

    def _add(
        self,
        kind: OperatorKind,
        function: ProcessFunction,
        name: str,
        *others: InputRef,
        output_keys: tuple[KeySelector | None, ...] = (None,),
        non_parallel: bool = False,
        version: int | None = None,
    ) -> InputRef:
        require_version(version, output_keys)
        node = self._builder.add(kind, function, name, (self._ref, *others), output_keys, non_parallel, version)
        return InputRef(node)

    def _through(
        self, exchange: Exchange, key_selector: KeySelector | None = None, version: int | None = None
    ) -> InputRef:
        return InputRef(self._ref.node, self._ref.output, exchange, key_selector, version)

    def _to_sink(self, sink: Sink[T_co], non_parallel: bool = False) -> ConfiguredSink:
        if not isinstance(sink, Sink):
            raise PlanError(f"to_sink at {caller_location()} takes a sink of dsv2.sinks, not {kind_of(sink)}.")
        node = self._builder.add(OperatorKind.SINK, sink, "Sink", (self._ref,), (), non_parallel)
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


def side_output(node: Node, tag: OutputTag[Any]) -> InputRef:
    """The side output ``tag`` of an operator. Raises ``PlanError`` if its function does not declare it."""
    where = f"side_output at {caller_location()}"
    if not isinstance(tag, OutputTag):
        raise PlanError(f"{where} takes an OutputTag, not {kind_of(tag)}.")
    reading_declares = isinstance(node.body, ProcessFunction) and node.body.dsv2_reading_declares
    number = find_output(node.side_outputs, tag, reading_declares, f"{where}, of {node.name} at {node.location}")
    return InputRef(node, len(node.output_keys) + number)


def dead_letters(node: Node) -> InputRef:
    """The dead letters of an operator."""
    if DEAD_LETTERS not in node.side_outputs:
        node.side_outputs.append(DEAD_LETTERS)
    return InputRef(node, len(node.output_keys) + node.side_outputs.index(DEAD_LETTERS))


def preserving(ref: InputRef) -> InputRef:
    """The output ``ref`` of an operator whose output keeps the key of its input, without an exchange."""
    node = ref.node
    return InputRef(node, ref.output, None, node.output_keys[ref.output], node.output_key_version)
