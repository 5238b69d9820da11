"""Finds state that a program no longer uses, although a checkpoint or savepoint holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv2.checkpoint.description import declared_states
from dsv2.checkpoint.program import FURTHER, ProgramDescription
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.graph.state_detection import mentioned_names


def dropped_state(
    plan: Plan, program: ProgramDescription, fields: Mapping[str, Sequence[str]]
) -> list[tuple[Operator, str]]:
    """Return the operators with stored states or fields that ``plan`` no longer uses, and describe these.

    Args:
        plan: The program that is to start.
        program: The last program that ran with the state. The user has allowed to drop what only earlier ones used.
        fields: For each uid, the names of the stored fields of its function.
    """
    dropped = []
    for operator in plan.operators:
        if operator.kind in (OperatorKind.SOURCE, OperatorKind.SINK):
            continue
        unused = sorted(program.states_of(operator.uid).keys() - declared_states(operator).keys())
        states = [f"the state {name.removesuffix(FURTHER)!r}" for name in unused]
        gone = sorted(set(fields.get(operator.uid, ())) - mentioned_names(operator.function))
        if states or gone:
            dropped.append((operator, ", ".join([*states, *(f"the field {name!r} of its function" for name in gone)])))
    return dropped
