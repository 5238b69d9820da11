"""The rules by which the state of an operator's subtasks is carried to another program."""

from dsv2.runtime.rescale.change import EarlierInput, EarlierOperator, InputChange, OperatorChange, Senders, changes
from dsv2.runtime.rescale.operator_states import OperatorState, owner_of, rescaled_states
from dsv2.runtime.rescale.snapshots import ProgramSuccession, rescale

__all__ = (
    "EarlierInput",
    "EarlierOperator",
    "InputChange",
    "OperatorChange",
    "OperatorState",
    "ProgramSuccession",
    "Senders",
    "changes",
    "owner_of",
    "rescale",
    "rescaled_states",
)
