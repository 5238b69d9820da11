"""The parts of the handles of streaming jobs that use their checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from os import PathLike

from pyspark.sql import SparkSession

from dsv2.errors import Dsv2Error, JobError
from dsv2.graph import Plan
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.savepoint.live_state import LiveState, QueryableHandle
from dsv2.sources import BaseSource, IndexedSource
from dsv2.views.notebook import NotebookHandle
from runtime_spark.frames.state_key import StateKey
from runtime_spark.savepoint.create import check_unused_path, take_savepoint
from runtime_spark.savepoint.live_state import CheckpointState
from runtime_spark.start.checkpoint import Checkpoint

_COMMIT_SECONDS = 0.05


class QueryJob(QueryableHandle, NotebookHandle):
    """Base class of the handles of streaming jobs. They take savepoints, and read the committed state."""

    _spark: SparkSession
    _checkpoint: Checkpoint
    _state_key: StateKey | None
    _states: tuple[LiveState, CheckpointState] | None = None  # once they are asked for

    def _live_state(self) -> LiveState:
        if self._states is None:
            checkpoint, plan, types = self._checkpoint, self._plan, TypeRegistry.of(self._plan)
            begun = checkpoint.next_batch - checkpoint.first_batch
            read = CheckpointState(self._spark, checkpoint.folder, begun, types, self._state_key, plan.job_name)
            self._states = LiveState(plan, checkpoint.program, types, read.committed), read
        return self._states[0]

    def _release_states(self) -> None:
        """Let Spark forget the state that was asked for. The job has ended."""
        if self._states is not None:
            with contextlib.suppress(Exception):  # the session has been stopped
                self._states[1].release()

    def _take_savepoint(self, path: str | PathLike[str], *, stop: bool) -> str:
        """Take a savepoint as of the last complete micro-batch. Unless ``stop``, the job continues meanwhile."""
        if stop:
            check_unused_path(self._spark, path)
        self._await_commit()
        if stop:
            self.stop()
            self.await_termination()
        if (failure := self.exception()) is not None:
            raise failure
        folder = check_unused_path(self._spark, path)
        take_savepoint(self._spark, self._checkpoint.folder, folder, self._state_key)
        return folder.path

    def _await_commit(self) -> None:
        """Wait for the first complete micro-batch of the checkpoint. Before it there is no state."""
        while not self._is_over() and not self._checkpoint.has_commits():
            time.sleep(_COMMIT_SECONDS)


def unprocessed(plan: Plan, held: Mapping[str, int]) -> Dsv2Error | None:
    """Return the error of a job whose input has ended before all records were processed, or None.

    ``held``: The number of records buffered behind aligned watermarks, by operator.
    """
    if not held or not _input_ends(plan):
        return None
    where = ", ".join(f"{count} in {operator}" for operator, count in held.items())
    return JobError(
        f"Job {plan.job_name!r} has reached the end of its input, but records are still buffered behind aligned "
        f"watermarks: {where}."
    )


def _input_ends(plan: Plan) -> bool:
    """Return whether a run that is not stopped reaches the end of all input."""
    sources = [operator.body for operator in plan.operators if isinstance(operator.body, BaseSource)]
    schedules = [source.schedule(str(source)) for source in sources if isinstance(source, IndexedSource)]
    if any(schedule is not None and schedule.ends_run for schedule in schedules):
        return False
    return all(source.bounded for source in sources)
