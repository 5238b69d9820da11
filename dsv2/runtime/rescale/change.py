"""Changes around an operator: its parallelism, and the senders of its inputs.

Computed on the driver from the plan and a description of the earlier program. It is small and can be pickled, so the
tasks that restore subtasks get it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from dsv2.graph import Edge, Exchange, Plan


class EarlierInput(Protocol):
    """One input of an operator in the earlier program: the output that it received."""

    @property
    def sender(self) -> str:
        """The uid of the upstream operator."""

    @property
    def output(self) -> int | str:
        """Its output, as ``Operator.output_name``."""

    @property
    def exchange(self) -> Exchange:
        """The distribution of its records."""


class EarlierOperator(Protocol):
    """An operator in the earlier program."""

    @property
    def parallelism(self) -> int:
        """Its number of subtasks."""

    @property
    def max_parallelism(self) -> int:
        """Its number of key groups."""

    @property
    def inputs(self) -> Sequence[EarlierInput]:
        """Its inputs, in order. Empty for a source."""


class Senders(Enum):
    """The relation of the upstream subtasks of an input to those before.

    ``SAME``: each continues with its own state, and has the same channel as before. ``MERGED``: their number or their
    own inputs have changed, so the state of each is that of all. ``NEW``: it is another operator or another output.
    """

    SAME = "same"
    MERGED = "merged"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class InputChange:
    """One input, before and after.

    Attributes:
        senders: What has become of the upstream subtasks.
        before: The earlier exchange; None if ``senders`` is ``NEW``.
        after: The exchange now.
        senders_before: The earlier number of upstream subtasks; 0 if ``senders`` is ``NEW``.
        senders_after: The number of upstream subtasks now.
    """

    senders: Senders
    before: Exchange | None
    after: Exchange
    senders_before: int
    senders_after: int

    @property
    def channels(self) -> int:
        """The number of channels into each subtask now."""
        return 1 if self.after is Exchange.FORWARD else self.senders_after

    @property
    def unchanged(self) -> bool:
        """True if every channel is the same as before."""
        return self.senders is Senders.SAME and self.before is self.after


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """An operator, before and after.

    Attributes:
        before: Its earlier parallelism.
        after: Its parallelism now.
        inputs: Its inputs now, in order.
        inputs_before: Its earlier number of inputs.
        moves_keys: Whether keys move between subtasks even if the parallelism is the same: max parallelism has changed.
    """

    before: int
    after: int
    inputs: tuple[InputChange, ...]
    inputs_before: int
    moves_keys: bool = False

    @property
    def keeps_data(self) -> bool:
        """True if each subtask keeps its keys and fields."""
        return self.before == self.after and not self.moves_keys

    @property
    def keeps_subtasks(self) -> bool:
        """True if each subtask continues exactly as it was."""
        inputs_kept = len(self.inputs) == self.inputs_before and all(change.unchanged for change in self.inputs)
        return self.keeps_data and inputs_kept


def changes(plan: Plan, before: Mapping[str, EarlierOperator]) -> dict[str, OperatorChange]:
    """Compare ``plan`` with the operators of an earlier program, which are given by uid.

    Returns:
        The change of each operator that existed before, by uid.
    """
    kept: set[int] = set()
    found: dict[str, OperatorChange] = {}
    for operator in plan.operators:  # upstream first
        earlier = before.get(operator.uid)
        if earlier is None:
            continue
        edges = plan.edges_into[operator.id]
        inputs = tuple(_input_change(plan, edge, earlier.inputs, before, kept) for edge in edges)
        moves_keys = operator.keyed and earlier.max_parallelism != operator.max_parallelism
        change = OperatorChange(earlier.parallelism, operator.parallelism, inputs, len(earlier.inputs), moves_keys)
        found[operator.uid] = change
        if change.keeps_subtasks:
            kept.add(operator.id)
    return found


def _input_change(
    plan: Plan,
    edge: Edge,
    earlier_inputs: Sequence[EarlierInput],
    before: Mapping[str, EarlierOperator],
    kept: set[int],
) -> InputChange:
    sender = plan.operators[edge.source]
    earlier = earlier_inputs[edge.input] if edge.input < len(earlier_inputs) else None
    if earlier is None or (earlier.sender, earlier.output) != (sender.uid, sender.output_name(edge.output)):
        return InputChange(Senders.NEW, None, edge.exchange, 0, sender.parallelism)
    senders = Senders.SAME if edge.source in kept else Senders.MERGED
    number = before[sender.uid].parallelism
    return InputChange(senders, earlier.exchange, edge.exchange, number, sender.parallelism)
