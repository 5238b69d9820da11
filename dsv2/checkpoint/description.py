"""Describes the program of a checkpoint or savepoint: what must not change unnoticed between two starts.

Stored state is only bytes, so a job would continue with a program that interprets them differently.
"""

from __future__ import annotations

from inspect import isabstract
from typing import Any, TypeAlias

from dsv2.checkpoint.class_changes import classes_of
from dsv2.checkpoint.column_types import ColumnType, column_type
from dsv2.checkpoint.fingerprint import PYTHON, fingerprint
from dsv2.checkpoint.type_shapes import Shape, name_of, shape_of
from dsv2.functions import ProcessFunction
from dsv2.graph import Edge, KeySelector, Operator, OperatorKind, Plan
from dsv2.graph.record_types import declared_type
from dsv2.graph.state_detection import may_keep_state
from dsv2.runtime.serde.codec import FORMAT_VERSION
from dsv2.sources import HybridSource, Source
from dsv2.spi import ColumnarFunction, KeepsAggregates, WrappingFunction
from dsv2.state import ListStateDeclaration, StateDeclaration, StateTtl, TtlTimeCharacteristic
from dsv2.watermark import WatermarkDeclaration, WatermarkDelivery
from dsv2.watermark.value_type import BoolType, DataType, LongType, SetType

_WITH_LAYOUT = (WrappingFunction, ColumnarFunction)
_VALUE_TYPES: dict[type, str] = {
    LongType: "LongWatermarkDeclaration",
    BoolType: "BoolWatermarkDeclaration",
    DataType: "type_of()",  # the class is described apart, because it may be renamed
    SetType: "type_set()",
}
Description: TypeAlias = dict[str, Any]
"""The description of a program, as JSON values."""


FURTHER = " (further)"
"""Ends the names of states that a wrapping function keeps for the function that it wraps."""


def describe(plan: Plan) -> Description:
    """Describe the program of ``plan``. Called before a job starts, for the checkpoint and for comparisons."""
    return {
        "format_version": FORMAT_VERSION,
        "python": PYTHON,
        "job_name": plan.job_name,
        "operators": {
            operator.uid: _describe(plan, operator)
            for operator in plan.operators
            if operator.kind is not OperatorKind.SINK
        },
        "watermarks": {identifier: _declared(d) for identifier, d in sorted(plan.declarations.items())},
        "former_names": {
            former: name_of(registered.kind) for registered in plan.registered_types for former in registered.formerly
        },
    }


def class_name(operator: Operator) -> str:
    """Return the name of the class of an operator's function, source or sink."""
    return f"{type(operator.body).__module__}.{type(operator.body).__qualname__}"


def essence(program: Description) -> Description:
    """Return ``program`` without the parts that may change freely."""
    operators = {
        uid: {name: value for name, value in operator.items() if name not in ("function", "defined_at")}
        for uid, operator in program["operators"].items()
    }
    return program | {"operators": operators, "job_name": ""}


def _describe(plan: Plan, operator: Operator) -> dict[str, Any]:
    return {
        "kind": operator.kind.value,
        "function": class_name(operator),
        "defined_at": operator.location,
        "automatic_uid": operator.automatic_uid,
        "part_of": operator.body.dsv2_part_of if isinstance(operator.body, ProcessFunction) else "",
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "stateless": _is_stateless(plan, operator),
        "keeps_state": may_keep_state(operator.body),
        "inputs": [_input(plan, operator, edge) for edge in plan.edges_into[operator.id]],
        "output_keys": [
            _key(plan, operator, output, select, operator.output_key_version)
            for output, select in enumerate(operator.output_keys)
        ],
        "states": {name: describe_state(declaration) for name, declaration in declared_states(operator).items()},
        "split_sources": _split_sources(operator.body),
        "needs_clock": plan.needs_clock(operator),
        "state_layout": operator.body.state_layout if isinstance(operator.body, _WITH_LAYOUT) else "",
        "contents": operator.body.contents if isinstance(operator.body, _WITH_LAYOUT) else "",
        **_aggregates(operator.body),
    }


def _aggregates(body: object) -> dict[str, Any]:
    """Return the stored form of a function's declared aggregates."""
    parts = body.written_by_user if isinstance(body, WrappingFunction) else (body,)
    for part in parts:
        if isinstance(part, KeepsAggregates):
            kept = part.kept_aggregates
            types = list(map(shape_of, kept.kinds))
            return {"aggregates": {"fields": dict(kept.fields), "types": types, "classes": classes_of(kept.kinds)}}
    return {}


def _split_sources(body: object) -> list[list[str]]:
    """The classes that determine what a split means: for a source, and for each source in it, itself and its bases."""
    if not isinstance(body, Source):
        return []
    own = [name_of(base) for base in type(body).__mro__ if issubclass(base, Source) and not isabstract(base)]
    inner = body.sources if isinstance(body, HybridSource) else ()
    return [own, *(names for source in inner for names in _split_sources(source))]


def _is_stateless(plan: Plan, operator: Operator) -> bool:
    """Return whether the subtasks have nothing in the checkpoint, so that a restart may change the parallelism."""
    return isinstance(operator.body, Source) or operator in plan.chained_to_sources


def declared_states(operator: Operator) -> dict[str, StateDeclaration]:
    """Return the states that ``operator`` declares, by the name that they have in the description."""
    if not isinstance(operator.body, ProcessFunction):
        return {}
    declared = {declaration.name: declaration for declaration in operator.body.uses_states()}
    if isinstance(operator.body, WrappingFunction):
        declared |= {f"{declaration.name}{FURTHER}": declaration for declaration in operator.body.further_states()}
    return declared


def describe_state(declaration: StateDeclaration) -> dict[str, Any]:
    """Describe a state, as part of the description of its operator."""
    return {
        "kind": type(declaration).__name__.removesuffix("Declaration"),
        "types": list(map(shape_of, declaration.types)),
        "version": declaration.version,
        "has_converter": declaration.migrate is not None,
        "mode": declaration.redistribution_mode.name,
        "time_to_live": _time_to_live(declaration.time_to_live),
        "classes": classes_of(declaration.types),
        "column": _column(declaration),
    }


def state_shape(state: Description) -> Shape:
    """Return the type of a stored value. ``state``: The result of ``describe_state``."""
    kind, types = state["kind"], state["types"]
    if kind == "ListState":
        return ["builtins.list", *types]
    return ["builtins.dict", *types] if len(types) == 2 else list(types[0])


def holds_several_values(state: Description) -> bool:
    """Return whether a state holds a list or a map, removed when empty. ``state``: as for ``state_shape``."""
    return state["kind"] in ("ListState", "MapState", "BroadcastState")


def _time_to_live(ttl: StateTtl | None) -> bool | str:
    """Return whether values have a time to live. Those in event time expire by another clock."""
    by_event_time = ttl is not None and ttl.time_characteristic is TtlTimeCharacteristic.EVENT_TIME
    return "in event time" if by_event_time else ttl is not None


def _column(declaration: StateDeclaration) -> ColumnType | None:
    """The column type of a stored value, for the tables of savepoints."""
    columns = [column_type(form) for form in declaration.types]
    if None in columns:
        return None
    if isinstance(declaration, ListStateDeclaration):
        return {"list": columns[0]}
    return {"map": columns} if len(columns) == 2 else columns[0]


def _input(plan: Plan, operator: Operator, edge: Edge) -> dict[str, Any]:
    select = operator.input_keys[edge.input]
    return {
        "from": plan.operators[edge.source].uid,
        "from_stateless": _is_stateless(plan, plan.operators[edge.source]),
        "output": plan.operators[edge.source].output_name(edge.output),
        "exchange": edge.exchange.value,
        "key": _key(plan, plan.operators[edge.source], edge.output, select, operator.key_versions[edge.input]),
    }


def _key(
    plan: Plan, sender: Operator, output: int, select: KeySelector | None, version: int | None
) -> dict[str, Any] | None:
    if select is None:
        return None
    return {"digest": fingerprint(select, declared_type(plan, sender, output)), "version": version}


def _declared(declaration: WatermarkDeclaration) -> dict[str, Any]:
    policy = declaration.combination_policy
    delivery, across = policy.delivery, policy.across_inputs_function
    value_type, key_type = declaration.value_type, declaration.scope.key_type
    classes = classes_of(value_type.classes)
    return {
        "type": _VALUE_TYPES.get(type(value_type), value_type.builder_call),
        "function": policy.combination_function.name,
        "wait_for_all_channels": policy.combine_wait_for_all_channels,
        "aligned": policy.aligned,
        "across_inputs": policy.combine_across_inputs,
        "strategy": declaration.default_handling_strategy.name,
        **({} if across is None else {"across_inputs_function": across.name}),
        **({} if delivery is WatermarkDelivery.ON_CHANGE else {"delivery": delivery.name}),
        **({"expires": True} if declaration.scope.expires_after_ms is not None else {}),
        **({} if policy.barrier is None else {"barrier": True}),
        **({} if key_type is None else {"keys": [shape_of(key_type)]}),
        **({"values": list(map(shape_of, value_type.classes))} if isinstance(value_type, DataType | SetType) else {}),
        **({"classes": classes} if classes else {}),
    }
