"""Outputs that no operator reads."""

from __future__ import annotations

from collections.abc import Iterator

from dsv2.graph.plan import Operator, OperatorKind, Plan
from dsv2.graph.record_types import declared_type

__all__ = ("unread_outputs",)


def unread_outputs(plan: Plan) -> Iterator[tuple[Operator, str, str]]:
    """The outputs without a consumer: their operator, what they are, and how to read them.

    An output with the declared type None is skipped, because it emits nothing.
    """
    read = {(edge.source, edge.output) for edge in plan.edges}
    for operator in plan.operators:
        for output in range(0 if operator.kind is OperatorKind.SINK else operator.outputs):
            if (operator.id, output) not in read and declared_type(plan, operator, output) not in (None, type(None)):
                yield operator, *_described(operator, output)


def _described(operator: Operator, output: int) -> tuple[str, str]:
    """An output, and how to read it."""
    tag = operator.side_output(output)
    if tag is not None:
        return f"the side output {tag.name!r}", "Read side_output(tag) of the result, or do not declare the tag."
    which = ("first ", "second ")[output] if operator.kind is OperatorKind.TWO_OUTPUT else ""
    return f"the {which}stream", "Add to_sink or process."
