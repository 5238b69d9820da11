"""Describes the program of a plan, for its checkpoint and for comparisons."""

from __future__ import annotations

from inspect import isabstract

from dsv2.checkpoint.class_changes import classes_of
from dsv2.checkpoint.column_types import ColumnType, column_type, list_of, map_of
from dsv2.checkpoint.fingerprint import PYTHON, fingerprint
from dsv2.checkpoint.program import (
    FURTHER,
    AggregatesDescription,
    InputDescription,
    KeyDescription,
    OperatorDescription,
    ProgramDescription,
    StateDescription,
    WatermarkDescription,
)
from dsv2.checkpoint.type_shapes import name_of, shapes_of
from dsv2.functions import ProcessFunction
from dsv2.graph import Edge, KeySelector, Operator, OperatorKind, Plan
from dsv2.graph.record_types import declared_type
from dsv2.graph.state_detection import may_keep_state
from dsv2.runtime.serde.codec import FORMAT_VERSION
from dsv2.sources import HybridSource, Source
from dsv2.spi import ColumnarFunction, KeepsAggregates, WrappingFunction
from dsv2.state import ListStateDeclaration, StateDeclaration, TtlTimeCharacteristic
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.value_type import DataType, SetType

_WITH_LAYOUT = (WrappingFunction, ColumnarFunction)


def describe(plan: Plan) -> ProgramDescription:
    """Describe the program of ``plan``. Called before a job starts."""
    return ProgramDescription(
        format_version=FORMAT_VERSION,
        python=PYTHON,
        job_name=plan.job_name,
        operators={
            operator.uid: _describe(plan, operator)
            for operator in plan.operators
            if operator.kind is not OperatorKind.SINK
        },
        watermarks={identifier: _declared(d) for identifier, d in sorted(plan.declarations.items())},
        former_names={
            former: name_of(registered.kind) for registered in plan.registered_types for former in registered.formerly
        },
    )


def class_name(operator: Operator) -> str:
    """Return the name of the class of an operator's function, source or sink."""
    return f"{type(operator.body).__module__}.{type(operator.body).__qualname__}"


def _describe(plan: Plan, operator: Operator) -> OperatorDescription:
    body = operator.body
    return OperatorDescription(
        kind=operator.kind,
        function=class_name(operator),
        defined_at=operator.location,
        automatic_uid=operator.automatic_uid,
        part_of=body.dsv2_part_of if isinstance(body, ProcessFunction) else "",
        parallelism=operator.parallelism,
        max_parallelism=operator.max_parallelism,
        stateless=_is_stateless(plan, operator),
        keeps_state=may_keep_state(body),
        inputs=tuple(_input(plan, operator, edge) for edge in plan.edges_into[operator.id]),
        output_keys=tuple(
            _key(plan, operator, output, select, operator.output_key_version)
            for output, select in enumerate(operator.output_keys)
        ),
        states={name: describe_state(declaration) for name, declaration in declared_states(operator).items()},
        split_sources=_split_sources(body),
        needs_clock=plan.needs_clock(operator),
        state_layout=body.state_layout if isinstance(body, _WITH_LAYOUT) else "",
        contents=body.contents if isinstance(body, _WITH_LAYOUT) else "",
        aggregates=_aggregates(body),
    )


def _aggregates(body: object) -> AggregatesDescription | None:
    parts = body.written_by_user if isinstance(body, WrappingFunction) else (body,)
    for part in parts:
        if isinstance(part, KeepsAggregates):
            kept = part.kept_aggregates
            return AggregatesDescription(dict(kept.fields), shapes_of(kept.kinds), classes_of(kept.kinds))
    return None


def _split_sources(body: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(body, Source):
        return ()
    own = tuple(name_of(base) for base in type(body).__mro__ if issubclass(base, Source) and not isabstract(base))
    inner = body.sources if isinstance(body, HybridSource) else ()
    return (own, *(names for source in inner for names in _split_sources(source)))


def _is_stateless(plan: Plan, operator: Operator) -> bool:
    return isinstance(operator.body, Source) or operator in plan.chained_to_sources


def declared_states(operator: Operator) -> dict[str, StateDeclaration]:
    """Return the states that ``operator`` declares, by the name that they have in the description."""
    if not isinstance(operator.body, ProcessFunction):
        return {}
    declared = {declaration.name: declaration for declaration in operator.body.uses_states()}
    if isinstance(operator.body, WrappingFunction):
        declared |= {f"{declaration.name}{FURTHER}": declaration for declaration in operator.body.further_states()}
    return declared


def describe_state(declaration: StateDeclaration) -> StateDescription:
    """Describe a state, as part of the description of its operator."""
    ttl = declaration.time_to_live
    in_event_time = ttl is not None and ttl.time_characteristic is TtlTimeCharacteristic.EVENT_TIME
    return StateDescription(
        kind=type(declaration).__name__.removesuffix("Declaration"),
        types=shapes_of(declaration.types),
        version=declaration.version,
        has_converter=declaration.migrate is not None,
        mode=declaration.redistribution_mode.name,
        time_to_live="in event time" if in_event_time else ttl is not None,
        classes=classes_of(declaration.types),
        column=_column(declaration),
    )


def _column(declaration: StateDeclaration) -> ColumnType | None:
    first, *others = map(column_type, declaration.types)
    if isinstance(declaration, ListStateDeclaration):
        return list_of(first)
    return map_of(first, *others) if others else first


def _input(plan: Plan, operator: Operator, edge: Edge) -> InputDescription:
    sender = plan.operators[edge.source]
    return InputDescription(
        sender=sender.uid,
        sender_is_stateless=_is_stateless(plan, sender),
        output=sender.output_name(edge.output),
        exchange=edge.exchange,
        key=_key(plan, sender, edge.output, operator.input_keys[edge.input], operator.key_versions[edge.input]),
    )


def _key(
    plan: Plan, sender: Operator, output: int, select: KeySelector | None, version: int | None
) -> KeyDescription | None:
    if select is None:
        return None
    return KeyDescription(fingerprint(select, declared_type(plan, sender, output)), version)


def _declared(declaration: WatermarkDeclaration) -> WatermarkDescription:
    policy, scope, value_type = declaration.combination_policy, declaration.scope, declaration.value_type
    across = policy.across_inputs_function
    return WatermarkDescription(
        type=f"{value_type.builder_call.partition('(')[0]}()",
        function=policy.combination_function.name,
        wait_for_all_channels=policy.combine_wait_for_all_channels,
        aligned=policy.aligned,
        across_inputs=policy.combine_across_inputs,
        across_inputs_function="that of the channels" if across is None else across.name,
        delivery=policy.delivery.name,
        strategy=declaration.default_handling_strategy.name,
        expires=scope.expires_after_ms is not None,
        barrier=policy.barrier is not None,
        keys=() if scope.key_type is None else shapes_of([scope.key_type]),
        values=shapes_of(value_type.classes) if isinstance(value_type, DataType | SetType) else (),
        classes=classes_of(value_type.classes),
    )
