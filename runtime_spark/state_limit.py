"""How large the checkpointed value of a subtask may become: the limit, and the warnings that come well before it.

Spark writes the value into one row, and a row cannot reach 2 GiB. Workers, the JVM and the state store hold several
copies of it, so the limit is half of that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from dsv2.errors import JobError
from dsv2.graph import Plan
from runtime_spark.layout import StateLayout

__all__ = ("LARGEST_STATE", "StateSizes", "check_state_size")

LARGEST_STATE = 1 << 30  # bytes

_LOG = logging.getLogger(__name__)
_STEPS = 8  # warnings come at every eighth of the limit, from half of it on
_ADVICE = {
    StateLayout.BLOB: "Change the program so that it keeps less for each key or clears what it no longer needs, and "
    "start it again from the same checkpoint. A higher parallelism or StateLayout.MAP also helps, but both need a new "
    "checkpoint_location.",
    StateLayout.MAP: "With StateLayout.MAP only function fields and states of the subtask count. Change the program so "
    "that it keeps less there or clears what it no longer needs, and start it again from the same checkpoint.",
}
_SEE = 'See "How large state may become" in docs/state.md.'


def check_state_size(owner: str, size: int, layout: StateLayout) -> None:
    """Called in the worker before a value of ``size`` bytes is written.

    Raises ``JobError`` naming ``owner``, a subtask, if Spark should not be given that much.
    """
    if size > LARGEST_STATE:
        raise JobError(
            f"{owner}: its state has grown to {size} bytes; the limit is {LARGEST_STATE}. The checkpoint still holds "
            f"the last micro-batch that fitted. {_ADVICE[layout]} {_SEE}"
        )


class StateSizes:
    """Warns in the driver's log while there is still time to act."""

    def __init__(self, plan: Plan, layout: StateLayout) -> None:
        self._operators = {operator.uid: operator for operator in plan.operators}
        self._layout = layout
        self._steps: dict[tuple[str, int], int] = {}

    def note(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Called with what the subtasks said of themselves, after each micro-batch."""
        for report in reports:
            if (size := report.get("state_bytes")) is not None:
                self._note(report["uid"], report["subtask"], size)

    def _note(self, uid: str, subtask: int, size: int) -> None:
        step = size * _STEPS // LARGEST_STATE
        if step < _STEPS // 2 or step <= self._steps.get((uid, subtask), 0):
            return
        self._steps[uid, subtask] = step
        _LOG.warning(
            "%s, subtask %d: its state has grown to %d bytes. At %d bytes the job will fail. %s %s",
            *(self._operators[uid], subtask, size, LARGEST_STATE, _ADVICE[self._layout], _SEE),
        )
