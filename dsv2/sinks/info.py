"""The identity of a sink, of its job and of the run that writes it."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.errors import JobError


@dataclass(frozen=True, slots=True)
class SinkRunInfo:
    """A run of a job, for sinks that record which micro-batches they have written.

    Attributes:
        run_id: A different id for each start.
        first_batch: The micro-batch with which the run begins.
        earlier: The earlier runs that may have written ``first_batch`` with the same records, because this run retries
            it.
    """

    run_id: str = ""
    first_batch: int = 0
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkInfo:
    """The identity of a sink.

    Attributes:
        job_id: The same in all runs from one checkpoint, and different for every other checkpoint.
        uid: The uid of the sink, unique in its job.
        parallelism: Number of subtasks. It may differ in a later run.
        run: The run that writes.
    """

    job_id: str
    uid: str
    parallelism: int
    run: SinkRunInfo = SinkRunInfo()

    @property
    def name(self) -> str:
        """The job and the uid, by which an external system knows the sink."""
        return f"{self.job_id}/{self.uid}"

    def is_written(self, batch_id: int, last: int, run_id: str) -> bool:
        """Return whether the sink has written a micro-batch already.

        For sinks that skip repeated micro-batches. Call it with ``run.first_batch`` when a run begins, and with each
        micro-batch.

        Args:
            batch_id: The micro-batch.
            last: The last micro-batch that the sink has recorded as written.
            run_id: The run that the sink has recorded for it.

        Raises:
            JobError: The checkpoint is older than the data in the sink, because a backup was restored or a later run
                has started.
        """
        run = self.run
        known = run_id == run.run_id or (last == run.first_batch and run_id in run.earlier)
        if last >= run.first_batch and not known:
            raise JobError(
                f"The sink already has micro-batch {last} from a run that is not in the checkpoint, which continues "
                f"with micro-batch {run.first_batch}. The checkpoint is older than the data in the sink, or another "
                f"run has continued from it. If the program has changed since, start it once without the changes: it "
                f"completes the micro-batch. Otherwise restore a newer checkpoint, or remove the data that was written "
                f"since and start with a new checkpoint_location."
            )
        return last >= batch_id
