"""The views of operators and edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dsv2.extension.event_time.generator import WatermarkGenerator
from dsv2.functions import CallableFunction, FilterFunction, FlatMapFunction, MapFunction, ProcessFunction
from dsv2.graph import Edge, Operator, OperatorKind, Plan, handlers_of
from dsv2.graph.flow import Flow, handlers, key_handlers
from dsv2.model.error_policy import ErrorPolicy
from dsv2.plan_view.code import code_of
from dsv2.plan_view.model import Code, EdgeView, HandlerView, OperatorView, Place, Processing, StateView
from dsv2.sinks import DriverSink
from dsv2.sources import BaseSource
from dsv2.spi import AsyncFunction, BatchFunction, ColumnarFunction, KeyedBatchFunction, WrappingFunction
from dsv2.state import StateDeclaration


def operator_view(operator: Operator, flow: Flow) -> OperatorView:
    """Return the view of an operator of a plan."""
    plan, body = flow.plan, operator.body
    is_sink = operator.kind is OperatorKind.SINK
    head = operator.id if is_sink else plan.chain_heads[operator.id]
    view = OperatorView(
        id=operator.id,
        uid=operator.uid,
        automatic_uid=operator.automatic_uid,
        name=operator.name,
        kind=operator.kind,
        function=function_of(body),
        location=operator.location,
        parallelism=operator.parallelism,
        max_parallelism=operator.max_parallelism,
        chain=head,
        level=None if is_sink else plan.depths.get(head, 0),
        place=_place(operator, plan),
        side_outputs=tuple(tag.name for tag in operator.side_outputs),
        declares=flow.declared[operator.id],
    )
    if isinstance(body, BaseSource):
        return replace(_source_view(view, operator), bounded=body.bounded, read_by=plan.read_by.get(operator.id))
    if not isinstance(body, ProcessFunction):
        return view
    view = replace(view, groups=tuple(sorted(operator.groups)), addressed=flow.addressed(operator))
    return _function_view(view, operator, body)


def _source_view(view: OperatorView, operator: Operator) -> OperatorView:
    strategy = operator.watermarks
    if strategy is None:
        return view
    return replace(
        view,
        idle_after_ms=strategy.idle_after_ms if strategy.emits else None,
        alignment_group="" if strategy.alignment is None else strategy.alignment.group,
    )


def _function_view(view: OperatorView, operator: Operator, function: ProcessFunction) -> OperatorView:
    return replace(
        view,
        processing=processing_of(operator),
        states=tuple(map(_state_view, _states(function))),
        layout=function.state_layout if isinstance(function, WrappingFunction | ColumnarFunction) else "",
        handlers=tuple(name for _, name in (*handlers(operator), *key_handlers(operator))),
        watermark_handlers=tuple(
            HandlerView(one.input, one.identifier, one.method) for one in handlers_of(operator.body, operator.kind)
        ),
        event_time=function.dsv2_has_event_time,
        error_policy=_policy_text(operator.error_policy),
        broadcast_wait="" if operator.broadcast_wait is None else str(operator.broadcast_wait),
        broadcast_wait_until=None if operator.broadcast_wait is None else operator.broadcast_wait.identifier,
        idle_after_ms=function.idle_after_ms if isinstance(function, WatermarkGenerator) else None,
    )


def edge_view(edge: Edge, flow: Flow) -> EdgeView:
    """Return the view of an edge of a plan."""
    plan = flow.plan
    target = plan.operators[edge.target]
    to_sink = target.kind is OperatorKind.SINK
    return EdgeView(
        source=edge.source,
        output=plan.operators[edge.source].output_name(edge.output),
        target=edge.target,
        input=edge.input,
        exchange=edge.exchange,
        chained=plan.is_chained(edge),
        read=plan.read_by.get(plan.chain_heads[edge.source]) == edge.target,
        channels=plan.channels_of(edge),
        key=None if edge.key_selector is None else code_of(edge.key_selector, target.key_versions[edge.input]),
        without=() if to_sink else tuple(sorted(flow.withheld(edge))),
        carries=() if to_sink else tuple(sorted(flow.arriving(edge))),
    )


def function_of(body: object) -> Code:
    """The user's own function or class in ``body``."""
    match body:
        case MapFunction() | FlatMapFunction() | CallableFunction():
            return code_of(body.function)
        case FilterFunction():
            return code_of(body.predicate)
        case WrappingFunction():
            parts = [code_of(part) for part in body.written_by_user]
            return Code(", ".join(part.text for part in parts), parts[0].location)
    return code_of(type(body))


def processing_of(operator: Operator) -> Processing:
    """Return the way the runtime calls the function, as ``FunctionCalls`` chooses it."""
    function = operator.function
    if isinstance(function, ColumnarFunction):
        return Processing.TABLES
    if isinstance(function, AsyncFunction):
        return Processing.IN_FLIGHT
    if operator.error_policy is not None:
        return Processing.RECORDS
    if operator.keyed:
        return Processing.STAMPED_BATCHES if isinstance(function, KeyedBatchFunction) else Processing.RECORDS
    in_batches = isinstance(function, BatchFunction) and function.takes_batches and not function.dsv2_emits_only_at_end
    return Processing.BATCHES if in_batches else Processing.RECORDS


def _place(operator: Operator, plan: Plan) -> Place:
    if operator.kind is OperatorKind.SINK:
        return Place.DRIVER if isinstance(operator.body, DriverSink) else Place.SINK_TASK
    in_subtask = plan.chain_heads[operator.id] in (*plan.chains, *plan.read_by)
    return Place.SUBTASK if in_subtask else Place.SOURCE_TASK


def _states(function: ProcessFunction) -> Iterator[StateDeclaration]:
    yield from function.uses_states()
    if isinstance(function, WrappingFunction):
        yield from function.further_states()


def _state_view(declaration: StateDeclaration) -> StateView:
    ttl = declaration.time_to_live
    return StateView(
        declaration.name,
        type(declaration).__name__.removesuffix("Declaration"),
        tuple(map(_type_text, declaration.types)),
        declaration.redistribution_mode,
        None if ttl is None else ttl.duration_ms,
        None if ttl is None else ttl.time_characteristic,
    )


def _type_text(form: object) -> str:
    return form.__qualname__ if type(form) is type else str(form).replace("typing.", "")


def _policy_text(policy: ErrorPolicy | None) -> str:
    if policy is None:
        return ""
    retries = [f"retry {_errors_text(rule.errors)} {rule.times} times" for rule in policy.retries]
    rules = [f"{rule.action.value.replace('_', ' ')} {_errors_text(rule.errors)}" for rule in policy.rules]
    return ", ".join((*retries, *rules))


def _errors_text(errors: tuple[type[Exception], ...]) -> str:
    return " or ".join(error.__name__ for error in errors) or "any error"
