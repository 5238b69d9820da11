"""Builds the view of a plan, or of a pipeline that cannot be built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dsv2.errors import Dsv2Error
from dsv2.extension.event_time.generator import WatermarkGenerator
from dsv2.functions import CallableFunction, FilterFunction, FlatMapFunction, MapFunction, ProcessFunction
from dsv2.graph import Edge, Node, Operator, OperatorKind, Plan, handlers_of
from dsv2.graph.flow import Flow, handlers, key_handlers
from dsv2.model.error_policy import ErrorPolicy
from dsv2.plan_view.code import code_of
from dsv2.plan_view.column_findings import moves_columns
from dsv2.plan_view.findings import findings_of
from dsv2.plan_view.model import (
    FORMAT_VERSION,
    Code,
    EdgeView,
    HandlerView,
    OperatorView,
    Place,
    PlanView,
    Processing,
    StateView,
    WatermarkView,
)
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.sinks import DriverSink
from dsv2.sources import BaseSource
from dsv2.spi import AsyncFunction, BatchFunction, ColumnarFunction, KeyedBatchFunction, WrappingFunction
from dsv2.state import StateDeclaration
from dsv2.watermark import WatermarkDeclaration, WatermarkHandlingStrategy


def view_of(plan: Plan, runtime: RuntimeView | None = None) -> PlanView:
    """Return the view of ``plan``. ``runtime``: How the runtime would run it, if it is known."""
    flow = Flow(plan)
    return PlanView(
        format_version=FORMAT_VERSION,
        job_name=plan.job_name,
        mode=plan.mode.value,
        levels=max(plan.depths.values(), default=0),
        operators=tuple(operator_view(operator, flow) for operator in plan.operators),
        edges=tuple(edge_view(edge, flow) for edge in plan.edges),
        watermarks=tuple(_watermark_view(declaration, flow) for declaration in plan.declarations.values()),
        findings=findings_of(flow, in_one_process=runtime is not None and runtime.one_process),
        runtime=runtime,
    )


def view_of_nodes(nodes: Sequence[Node], job_name: str, mode: str, parallelism: int, error: Dsv2Error) -> PlanView:
    """Return the view of a pipeline that cannot be built, with what is known of it.

    Args:
        nodes: The nodes of the pipeline.
        job_name: The name of the job.
        mode: The execution mode that the user has set.
        parallelism: The default parallelism.
        error: Why it cannot be built.
    """
    operators = tuple(
        OperatorView(
            id=node.id,
            uid=node.uid,
            automatic_uid=node.uid is None,
            name=node.name,
            kind=node.kind,
            function=function_of(node.body),
            location=node.location,
            parallelism=1 if node.non_parallel else node.parallelism or parallelism,
            chain=node.id,
        )
        for node in nodes
    )
    edges = tuple(
        EdgeView(
            source=ref.node.id,
            output=ref.node.output_name(ref.output),
            target=node.id,
            input=number,
            exchange=ref.exchange,
            key=None if ref.key_selector is None else code_of(ref.key_selector, ref.key_version),
        )
        for node in nodes
        for number, ref in enumerate(node.inputs)
    )
    text = f"{type(error).__name__}: {error}"
    return PlanView(FORMAT_VERSION, job_name, mode, 0, operators, edges, error=text)


def _watermark_view(declaration: WatermarkDeclaration, flow: Flow) -> WatermarkView:
    policy, identifier = declaration.combination_policy, declaration.identifier
    received_by = tuple(flow.receivers(identifier))
    return WatermarkView(
        identifier=identifier,
        type=declaration.value_type.name,
        combination=policy.combination_function.value,
        waits_for_all=policy.combine_wait_for_all_channels,
        aligned=policy.aligned,
        across_inputs=policy.combine_across_inputs,
        forwarded=declaration.default_handling_strategy is WatermarkHandlingStrategy.FORWARD,
        declared_by=tuple(number for number, declared in flow.declared.items() if identifier in declared),
        received_by=tuple(operator.id for operator in received_by),
        handled_by=tuple(operator.id for operator in received_by if flow.handles(operator, identifier)),
        across_inputs_combination="" if policy.across_inputs_function is None else policy.across_inputs_function.value,
        delivery=policy.delivery.value,
        addressed_to=tuple(one.id for one in flow.plan.operators if identifier in flow.addressed(one)),
        key_type=_type_name(declaration.scope.key_type),
        expires_after_ms=declaration.scope.expires_after_ms,
        barrier=None if policy.barrier is None else str(policy.barrier),
    )


def _type_name(kind: type | None) -> str:
    return "" if kind is None else getattr(kind, "__qualname__", str(kind))


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
        processing=Processing.TABLES if moves_columns(plan, operator) else None,
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
