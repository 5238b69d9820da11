"""The dead letters of a streaming job that nothing reads: where they are, and which the job has to process again."""

from __future__ import annotations

from pyspark.sql import SparkSession

from dsv2.base.folders import Folder
from dsv2.dead_letters.location import letters_path
from dsv2.dead_letters.replay import PendingReplay, pending_replay
from dsv2.dead_letters.store import JobLetters, LetterWriter
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions
from runtime_spark.checkpoint.generation import Generation
from runtime_spark.frames.failures import usable
from runtime_spark.platform.folders import open_folder


def batch_letters(spark: SparkSession, plan: Plan, options: RunOptions, job_id: str) -> LetterWriter:
    """Return the writer for the letters of a BATCH job.

    Raises:
        ConfigurationError: There is no folder for the letters, or it cannot be used.
    """
    path = letters_path(plan, options.dead_letters, None)
    letters = None if path is None else JobLetters(_open(spark, path), job_id)
    return LetterWriter(letters, plan.job_name, None)


def checkpoint_letters(spark: SparkSession, root: Folder, plan: Plan, options: RunOptions, job_id: str) -> JobLetters:
    """Return the letters of a streaming job.

    Args:
        spark: The session.
        root: The checkpoint.
        plan: The job.
        options: The options of the start.
        job_id: The job, as sinks know it.
    """
    path = letters_path(plan, options.dead_letters, root.path)
    assert path is not None
    return JobLetters(_open(spark, path), job_id)


def pending_in(
    spark: SparkSession, root: Folder, current: Generation, plan: Plan, options: RunOptions
) -> PendingReplay | None:
    """Return the letters that a start has to process again; None if there are none.

    Args:
        spark: The session.
        root: The checkpoint.
        current: Its current generation.
        plan: The program that starts.
        options: The options of the start.
    """
    letters = checkpoint_letters(spark, root, plan, options, current.stored.job_id)
    found = pending_replay(letters, current.stored.replays, current.next_batch)
    return found if found is not None and found.letters else None


def is_withdrawn(
    spark: SparkSession, root: Folder, current: Generation, begun: Generation, plan: Plan, options: RunOptions
) -> bool:
    """Return whether the generation ``begun`` processes letters again for a request that was withdrawn since."""
    own = set(begun.stored.replays.requests) - set(current.stored.replays.requests)
    if not own:
        return False
    letters = checkpoint_letters(spark, root, plan, options, current.stored.job_id)
    return not own <= {request.name for request in letters.requests()}


def _open(spark: SparkSession, path: str) -> Folder:
    with usable(f"The folder {path} for dead letters"):
        return open_folder(spark, path)
