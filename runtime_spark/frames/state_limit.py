"""Limits the size of the checkpointed value of a subtask, and warns when it is slow and well before the limit.

Spark writes the value into one row, which must be smaller than 2 GiB. Workers, the JVM and the state store hold several
copies of it, so the limit is half of that. ``applyInPandasWithState`` returns the values of all slots of a task in one
Arrow array of binary values, which must also be smaller than 2 GiB.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from dsv2.errors import JobError
from dsv2.graph import Plan
from dsv2.runtime.report.subtask_report import SubtaskReport
from runtime_spark.frames.layout import Layout, StateLayout, spark_partition

LARGEST_STATE = 1 << 30  # bytes
LARGEST_OF_A_TASK = 1 << 31
SLOW_STATE = 64 << 20

_Place: TypeAlias = tuple[str, int]  # uid and subtask
_Task: TypeAlias = tuple[int, int]  # level and partition

_LOG = logging.getLogger("dsv2.spark.state_limit")
_STEPS = 8  # a warning at every eighth of the limit, from half of it on
_MS_PER_MB = 5, 20
_ADVICE = {
    StateLayout.BLOB: "Change the program so that it stores less per key or clears state that it no longer needs, and "
    "start it again from the same checkpoint. Or take a savepoint of the checkpoint, and start from it with a higher "
    "parallelism or with StateLayout.MAP, where a micro-batch reads and writes only the state of the keys that it "
    "accesses. Function fields are read and written whole in both layouts.",
    StateLayout.MAP: "With StateLayout.MAP only function fields and states of the subtask count. Change the program so "
    "that it stores less there or clears state that it no longer needs, and start it again from the same checkpoint.",
}
_SEE = 'See "How large state may become" in docs/state.md.'


def check_state_size(owner: str, size: int, layout: StateLayout) -> None:
    """Called in the worker before a value of ``size`` bytes is written.

    Raises:
        JobError: The value is too large for Spark; the message names ``owner``, the subtask.
    """
    if size > LARGEST_STATE:
        raise JobError(
            f"{owner}: its state has grown to {size} bytes; the limit is {LARGEST_STATE}. The checkpoint still holds "
            f"the last micro-batch below the limit. {_ADVICE[layout]} {_SEE}"
        )


class StateSizes:
    """Warns in the driver's log before states reach the limit."""

    def __init__(self, plan: Plan, layout: Layout) -> None:
        self._advice = f"{_ADVICE[layout.state]} {_SEE}"
        self._names = {operator.uid: str(operator) for operator in plan.operators}
        self._tasks = _shared_tasks(plan, layout) if layout.state is StateLayout.BLOB else {}
        self._sizes: dict[_Place, int] = {}
        self._steps: dict[_Place | _Task, int] = {}
        self._slow: dict[_Place, int] = {}

    def note(self, reports: Iterable[SubtaskReport]) -> None:
        """Called after each micro-batch with the reports of the subtasks."""
        for report in reports:
            if (size := report.state_bytes) is not None:
                place = report.uid, report.subtask
                self._sizes[place] = size
                self._warn_of_time(place, size)
                self._warn(place, [place], size, LARGEST_STATE)
        for task, places in self._tasks.items():
            self._warn(task, places, sum(self._sizes.get(place, 0) for place in places), LARGEST_OF_A_TASK)

    def _warn_of_time(self, place: _Place, size: int) -> None:
        """Warn at ``SLOW_STATE``, and again when the size has doubled. ``_warn`` takes over near the limit."""
        if size < self._slow.get(place, SLOW_STATE) or size * 2 >= LARGEST_STATE:
            return
        self._slow[place] = 2 * size
        uid, subtask = place
        least, most = (size * ms / (1 << 20) / 1000 for ms in _MS_PER_MB)
        _LOG.warning(
            "%s, subtask %d: its state has grown to %d MB. Each micro-batch reads and writes all of it, which takes "
            "about %.1f to %.1f s. %s",
            self._names[uid],
            subtask,
            size >> 20,
            least,
            most,
            self._advice,
        )

    def _warn(self, what: _Place | _Task, places: Sequence[_Place], size: int, limit: int) -> None:
        step = size * _STEPS // limit
        if step < _STEPS // 2 or step <= self._steps.get(what, 0):
            return
        self._steps[what] = step
        owners = " and ".join(f"{self._names[uid]}, subtask {subtask}" for uid, subtask in places)
        subject = f"{owners}: its state has" if len(places) == 1 else f"{owners} share a Spark task: their states have"
        _LOG.warning("%s grown to %d bytes. At %d bytes the job will fail. %s", subject, size, limit, self._advice)


def _shared_tasks(plan: Plan, layout: Layout) -> dict[_Task, list[_Place]]:
    """Return the subtasks of each task that has several."""
    tasks: dict[_Task, list[_Place]] = {}
    for level, heads in enumerate(layout.levels):
        for head in heads:
            operator = plan.operators[head]
            for subtask in range(operator.parallelism):
                partition = spark_partition(layout.slots[head, subtask], layout.partitions)
                tasks.setdefault((level, partition), []).append((operator.uid, subtask))
    return {task: places for task, places in tasks.items() if len(places) > 1}
