"""Checks of operators, made while the plan is built: their states, several inputs, and the classes of their records.

Any operator may have REDISTRIBUTABLE state. State of mode NONE belongs to a key, so it requires a keyed stream.
IDENTICAL state is updated by records that reach every subtask, so it requires a broadcast input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from dsv2.errors import IllegalRedistributionModeError, PlanError, StateDeclarationError
from dsv2.graph.plan import Operator, OperatorKind, Plan
from dsv2.graph.record_types import declared_type
from dsv2.sinks import Sink
from dsv2.spi import AsyncFunction, ColumnarFunction
from dsv2.state import ListStateBuilder, MapStateBuilder, RedistributionMode, StateDeclaration
from dsv2.watermark.event_time import EVENT_TIME


def check_states(operator: Operator) -> None:
    """Check what the function of ``operator`` returns from ``uses_states``.

    Raises:
        StateDeclarationError: An element is not a declaration, or two different declarations have the same name.
        IllegalRedistributionModeError: The operator does not support the mode of a state.
    """
    where = f"{operator} at {operator.location}"
    declarations: object = operator.function.uses_states()
    if not isinstance(declarations, Collection):
        raise StateDeclarationError(
            f"{where}: uses_states returned {declarations!r}, not a collection of declarations. "
            f"Return a list or a tuple."
        )
    declared: dict[str, StateDeclaration] = {}
    for declaration in declarations:
        if not isinstance(declaration, StateDeclaration):
            unfinished = isinstance(declaration, ListStateBuilder | MapStateBuilder)
            advice = "Call its build()" if unfinished else "Create one with StateDeclarations"
            raise StateDeclarationError(
                f"{where}: uses_states returned {declaration!r}, which is not a state declaration. {advice}."
            )
        first = declared.setdefault(declaration.name, declaration)
        if first != declaration:
            raise StateDeclarationError(
                f"{where}: state {declaration.name!r} has two different declarations:\n  {first!r}\n"
                f"  {declaration!r}\nThe name of a state is unique in a function: rename one of them."
            )
        _check_mode(operator, declaration, where)


def _check_mode(operator: Operator, declaration: StateDeclaration, where: str) -> None:
    mode = declaration.redistribution_mode
    if mode is not RedistributionMode.NONE and isinstance(operator.body, AsyncFunction):
        reason = "records in flight would overwrite each other's changes of a state that belongs to the subtask"
        advice = "Declare keyed state, or use a field of the function"
    elif mode is RedistributionMode.NONE and not operator.keyed:
        reason = "state of mode NONE belongs to a key, and this stream is not keyed"
        advice = "Call key_by first, or declare a list with redistribute_by(...)"
    elif mode is RedistributionMode.IDENTICAL and operator.kind is not OperatorKind.TWO_INPUT_BROADCAST:
        reason = "state of mode IDENTICAL is the same in all subtasks, which requires a broadcast input"
        advice = "Connect to a broadcast stream, or declare keyed state"
    else:
        return
    raise IllegalRedistributionModeError(f"{where}: {declaration} cannot be used here: {reason}. {advice}.")


def check_unions(plan: Plan) -> None:
    """Raise ``PlanError`` if an operator before a union declares an aligned watermark.

    The inputs of a union are combined, but do not wait for each other.
    """
    for union in plan.operators:
        if union.kind is not OperatorKind.UNION:
            continue
        for operator in plan.upstream_of(union):
            for name in (declaration.identifier for declaration in operator.declared_watermarks):
                policy = plan.declarations[name].combination_policy
                if policy.aligned and policy.barrier is None:
                    raise PlanError(
                        f"{union} at {union.location}: the aligned watermark {name!r}, which {operator} at "
                        f"{operator.location} declares, cannot pass a union. Declare it as a barrier() or without "
                        f"aligned(), or connect the streams with a function that has two inputs."
                    )


def check_waits(plan: Plan) -> None:
    """Raise ``PlanError`` if an operator waits for a watermark that nothing declares, or that one channel can send."""
    for operator in plan.operators:
        name = None if operator.broadcast_wait is None else operator.broadcast_wait.identifier
        if name is None:
            continue
        what, problem = "watermark", ""
        if name not in plan.declarations:
            problem = "but no function or source of the job declares it."
        elif plan.declarations[name].combination_policy.barrier is not None:
            what = "barrier"
            problem = (
                "which itself waits for the other input. Wait for another watermark. A barrier needs no "
                "WaitForBroadcast: both inputs stop at it."
            )
        elif name in operator.passes_on:
            problem = (
                f"which is addressed to other operators. Address it to this one as well: deliver_to({operator.uid!r})."
            )
        elif name != EVENT_TIME and not plan.declarations[name].combination_policy.combine_wait_for_all_channels:
            problem = "which the first subtask can send alone. Declare it with combine_wait_for_all_channels(True)."
        if problem:
            who = f"{operator} at {operator.location}"
            raise PlanError(f"{who} waits for the {what} {name!r} of its broadcast side, {problem}")


def check_record_classes(plan: Plan) -> None:
    """Raise ``PlanError`` if the declared records of a stream are of another class than its consumer declares."""
    for operator in plan.operators:
        wanted = operator.body.dsv2_tables_of if isinstance(operator.body, ColumnarFunction | Sink) else None
        if wanted is None:
            continue
        for upstream, given in _declared(plan, operator):
            if _differ(given, wanted):
                raise PlanError(
                    f"{operator} at {operator.location} takes records of {wanted.__qualname__}, but those of "
                    f"{upstream}, defined at {upstream.location}, are of {given.__qualname__}. Map them to "
                    f"{wanted.__qualname__}."
                )


def _declared(plan: Plan, operator: Operator) -> Iterator[tuple[Operator, Any]]:
    """The operators from which the records come, with their declared classes."""
    for edge in plan.edges_into[operator.id]:
        upstream = plan.operators[edge.source]
        if upstream.kind is OperatorKind.UNION:
            yield from _declared(plan, upstream)
        else:
            yield upstream, declared_type(plan, upstream, edge.output)


def _differ(given: Any, wanted: type) -> bool:
    """Return whether no record of one class can be one of the other."""
    if not isinstance(given, type) or given is Any or getattr(given, "_is_protocol", False):
        return False
    return not issubclass(given, wanted) and not issubclass(wanted, given)
