"""The sections of a plan: the parts before, between and after the DataFrames that its records pass through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsv2.errors import PlanError
from dsv2.graph.reachability import reachable
from dsv2.sources import ContinuedDataFrameSource

if TYPE_CHECKING:
    from dsv2.graph.plan import Operator, Plan


@dataclass(frozen=True)
class Passage:
    """A passage of records from one section to the next. ``sink``: their exit. ``source``: their entrance."""

    sink: Operator
    source: Operator


def passages_of(plan: Plan) -> tuple[Passage, ...]:
    """Return the passages of ``plan``, upstream first."""
    by_body = {id(operator.body): operator for operator in plan.operators}
    return tuple(
        Passage(by_body[id(operator.body.sink)], operator)
        for operator in plan.operators
        if isinstance(operator.body, ContinuedDataFrameSource)
    )


def sections_of(plan: Plan, passages: tuple[Passage, ...]) -> Mapping[int, int]:
    """Return the number of the section of each operator.

    Raises:
        PlanError: Records would have to pass by a DataFrame. A query of Spark cannot divide its rows.
    """
    sections: dict[int, int] = {}
    before: Passage | None = None
    for number, passage in enumerate(passages):
        upstream = _upstream(plan, passages, passage.sink.id)
        if before is not None and before.source.id not in upstream:
            raise PlanError(
                f"{_shown(before.source)} and {_shown(passage.source)} are DataFrames of different streams. In a job "
                f"one must be made of the records of the other."
            )
        for operator_id in upstream:
            sections.setdefault(operator_id, number)
        _check_nothing_passes_by(plan, upstream, passage)
        before = passage
    return {operator.id: sections.get(operator.id, len(passages)) for operator in plan.operators}


def _upstream(plan: Plan, passages: tuple[Passage, ...], operator_id: int) -> set[int]:
    """Return the operators from which records reach an operator, through earlier passages as well, and itself."""
    behind = {passage.source.id: passage.sink.id for passage in passages}

    def senders(current: int) -> list[int]:
        sent = [edge.source for edge in plan.edges_into[current]]
        return [*sent, behind[current]] if current in behind else sent

    return reachable([operator_id], senders)


def _check_nothing_passes_by(plan: Plan, upstream: set[int], passage: Passage) -> None:
    for operator_id in sorted(upstream):
        for edge in plan.edges_out_of[operator_id]:
            if edge.target not in upstream:
                sender, receiver = plan.operators[operator_id], plan.operators[edge.target]
                raise PlanError(
                    f"{_shown(sender)} sends records to {_shown(receiver)}, which is not part of "
                    f"{passage.source}, defined at {passage.source.location}. All records have to pass through the "
                    f"DataFrame. Write the others in a job of their own, or mark them with a column and separate them "
                    f"afterwards."
                )


def _shown(operator: Operator) -> str:
    return f"{operator}, defined at {operator.location},"
