"""Checks of records before sinks: a function that calls ``check_record`` precedes a sink with an error policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.type_variables import T
from dsv2.errors import JobError, PlanError, ResourceError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph.plan import Operator, OperatorKind, Plan
from dsv2.model.context import Collector, PartitionedContext
from dsv2.sinks import FileSink, Sink
from dsv2.spi import FailedCallbackError

if TYPE_CHECKING:
    from dsv2.graph.builder import InputRef, Node


class SinkCheck(OneInputStreamProcessFunction[T, T], Generic[T]):
    """Emits the records that ``sink`` can write. The error policy decides about the others."""

    dsv2_remember_keys = False
    dsv2_part_of = "to_sink"

    def __init__(self, sink: Sink[T]) -> None:
        self.sink = sink

    def process_record(self, record: T, output: Collector[T], ctx: PartitionedContext[T]) -> None:
        try:
            if (timestamp := ctx.timestamp) is not None:
                self.sink.check_timestamp(timestamp)
            self.sink.check_record(record)
        except JobError as error:  # such as a server that cannot be reached: every record would be skipped
            raise ResourceError(str(error)) from error
        except Exception as error:
            raise FailedCallbackError("check_record") from error
        output.collect(record)


def with_sink_checks(nodes: Sequence[Node]) -> list[Node]:
    """Copy ``nodes``, with a check before each sink with an error policy.

    Raises:
        PlanError: The sink cannot check its records.
    """
    expanded: list[Node] = []
    last: dict[int, Node] = {}  # the node whose outputs replace those of an original node, by its id

    def add(node: Node, inputs: tuple[InputRef, ...]) -> Node:
        copy = replace(node, id=len(expanded), inputs=inputs)
        expanded.append(copy)
        return copy

    for node in nodes:
        inputs = tuple(replace(ref, node=last[ref.node.id], output=_output(ref)) for ref in node.inputs)
        if not _is_checked(node):
            last[node.id] = add(node, inputs)
            continue
        last[node.id] = check = add(_check_before(node), inputs)
        add(replace(node, error_policy=None, side_outputs=[]), (type(inputs[0])(check),))
    return expanded


def with_schema_checks(plan: Plan, check: Callable[[FileSink[Any], str], Sink[Any]]) -> Plan:
    """Return ``plan`` with checks of the schema before file sinks that have an error policy.

    Args:
        plan: The plan.
        check: Returns what replaces a sink in the check before it, from the sink and its name for errors.
    """

    def checked(operator: Operator) -> Operator:
        if not isinstance(operator.body, SinkCheck) or not isinstance(operator.body.sink, FileSink):
            return operator
        name = f"The sink {operator}, defined at {operator.location}"
        return replace(operator, body=SinkCheck(check(operator.body.sink, name)))

    return replace(plan, operators=tuple(map(checked, plan.operators)))


def _is_checked(node: Node) -> bool:
    policy = node.error_policy
    return isinstance(node.body, Sink) and policy is not None and policy.handles_errors


def _output(ref: InputRef) -> int:
    """The dead letters of a sink are those of its check, which has an output for records before them."""
    return ref.output + 1 if _is_checked(ref.node) else ref.output


def _check_before(node: Node) -> Node:
    sink = node.body
    assert isinstance(sink, Sink)
    if type(sink).check_record is Sink.check_record:
        raise PlanError(
            f"{node.name} at {node.location}: {type(sink).__name__} cannot have an error policy, because it does not "
            f"check single records (check_record). Check the records in a function before it."
        )
    upstream = node.inputs[0].node
    return replace(
        node,
        kind=OperatorKind.ONE_INPUT,
        body=SinkCheck(sink),
        output_keys=(None,),
        uid=None if node.uid is None else f"{node.uid} check",
        parallelism=node.parallelism or (1 if upstream.non_parallel else upstream.parallelism),
    )
