"""Finds state that a program no longer uses, although a checkpoint or savepoint holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv2.checkpoint.description import FURTHER, Description, declared_states
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.graph.state_detection import mentioned_names


def dropped_state(
    plan: Plan, programs: Sequence[Description], fields: Mapping[str, Sequence[str]]
) -> list[tuple[Operator, str]]:
    """Return the operators with stored states or fields that ``plan`` no longer uses, and describe these.

    Args:
        plan: The program that is to start.
        programs: The programs that wrote the state.
        fields: For each uid, the names of the stored fields of its function.
    """
    dropped = []
    for operator in plan.operators:
        if operator.kind in (OperatorKind.SOURCE, OperatorKind.SINK):
            continue
        held = {name for program in programs for name in program["operators"].get(operator.uid, {}).get("states", ())}
        unused = sorted(held - declared_states(operator).keys())
        states = [f"the state {name.removesuffix(FURTHER)!r}" for name in unused]
        gone = sorted(set(fields.get(operator.uid, ())) - mentioned_names(operator.function))
        if states or gone:
            dropped.append((operator, ", ".join([*states, *(f"the field {name!r} of its function" for name in gone)])))
    return dropped
