"""The states of the subtasks of one operator in another program. The keyed store is not part of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from dsv2.graph import Operator
from dsv2.runtime.rescale.change import OperatorChange
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.watermark import WatermarkDeclaration

__all__ = ("OperatorState", "owner_of", "rescaled_states")

OperatorState: TypeAlias = dict[str, Any]
"""``OperatorTask.snapshot()`` without "store"."""


def owner_of(operator: Operator, key: Any) -> int:
    """Return the subtask of ``operator`` that owns ``key``: that to which the HASH exchange sends its records."""
    return subtask_of(key, operator.max_parallelism, operator.parallelism)


def rescaled_states(
    operator: Operator,
    change: OperatorChange,
    states: Sequence[OperatorState],
    declarations: Mapping[str, WatermarkDeclaration],
    codec: Codec,
) -> list[OperatorState]:
    """Return the states of the new subtasks of ``operator``, ordered by index.

    Args:
        operator: The operator in the new program.
        change: What has changed around it.
        states: The states of its old subtasks, ordered by index.
        declarations: The watermark declarations of the new program by identifier.
        codec: Decodes and encodes fields, states of the subtask and held records.

    Raises:
        IncompatibleCheckpointError: Something cannot be carried: the fields of the function differ between the
            subtasks, the parallelism exceeds the maximum, or an operator that has ended got a new input.
    """
    raise NotImplementedError
