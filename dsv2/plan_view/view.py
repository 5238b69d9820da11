"""Builds the view of a plan, or of a pipeline that cannot be built."""

from __future__ import annotations

from collections.abc import Sequence

from dsv2.errors import Dsv2Error
from dsv2.graph import Node, Plan
from dsv2.graph.flow import Flow
from dsv2.plan_view.code import code_of
from dsv2.plan_view.findings import findings_of
from dsv2.plan_view.model import FORMAT_VERSION, EdgeView, OperatorView, PlanView, WatermarkView
from dsv2.plan_view.operators import edge_view, function_of, operator_view
from dsv2.plan_view.runtime_view import RuntimeView
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
