"""Which sink of which job is written, and by which run of it."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.errors import JobError

__all__ = ("SinkInfo", "SinkRunInfo")


@dataclass(frozen=True, slots=True)
class SinkRunInfo:
    """A run of a job, for sinks that remember which micro-batches they have.

    ``run_id``: another one for each start. ``first_batch``: the micro-batch with which the run begins. ``earlier``: the
    runs that may have written that one already, with the same records, because it is a repeated one.
    """

    run_id: str = ""
    first_batch: int = 0
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkInfo:
    """Which sink of which job is written.

    ``job_id``: the same in all runs from one checkpoint, another one for every other checkpoint. ``uid``: the sink's,
    unique in its job. ``parallelism``: the number of its subtasks; a later run may have another. ``run``: the run that
    writes.
    """

    job_id: str
    uid: str
    parallelism: int
    run: SinkRunInfo = SinkRunInfo()

    def is_written(self, batch_id: int, last: int, run_id: str) -> bool:
        """Whether micro-batch ``batch_id`` was written, given a note of the last one that was, and of its run.

        For sinks that leave out what they have. Call it with ``run.first_batch`` when a run begins, and with each
        micro-batch. Raises ``JobError`` if the note cannot be this job's: its checkpoint is older than what the sink
        has, because a backup was put back; or a later run has begun meanwhile.
        """
        run = self.run
        known = run_id == run.run_id or (last == run.first_batch and run_id in run.earlier)
        if last >= run.first_batch and not known:
            raise JobError(
                f"It has got micro-batch {last} already, from a run that the checkpoint does not know, and the "
                f"checkpoint goes on with micro-batch {run.first_batch}. So the checkpoint is older than what was "
                f"written, or another run has gone on from it. Put back a newer checkpoint; or remove what was "
                f"written since, and start from a new checkpoint_location."
            )
        return last >= batch_id
